"""One experiment run: observations in, closed records out (docs/protocol.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from otel_ml.wire.attributes import DEFAULT_AXIS, EVENT_STARTED_END, TIME_AXIS
from otel_ml_exporters.records import Artifact, JsonValue
from otel_ml_service.aggregation.lazy_entries import LazyEntries
from otel_ml_service.aggregation.learned_reductions import declare
from otel_ml_service.aggregation.ledger import ONE_EVENT, Amount, Place
from otel_ml_service.aggregation.observation import (
    Event,
    Fragment,
    Observation,
    Position,
    ShutdownMessage,
    Spans,
    ThirdPartyPoints,
    Watermark,
    Writer,
    recorded_at,
)
from otel_ml_service.aggregation.outcome import Outcome, RunFacts, Status
from otel_ml_service.aggregation.parameters import Parameters
from otel_ml_service.aggregation.piece import Piece, values_in
from otel_ml_service.aggregation.quota import Quota
from otel_ml_service.aggregation.run_end import RunEnd
from otel_ml_service.aggregation.run_events import RunEvents
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.run_status import facts_of, status_of
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.settling import Settling
from otel_ml_service.aggregation.snapshot import Snapshot
from otel_ml_service.aggregation.spans import SpanIntake
from otel_ml_service.aggregation.steps import Steps
from otel_ml_service.aggregation.summaries import Summaries
from otel_ml_service.aggregation.third_party import ThirdParty
from otel_ml_service.aggregation.writer_state import WriterState
from otel_ml_service.aggregation.writer_totals import WriterTotals

__all__ = ["Engine"]

_DEFAULTS = EngineSettings()


class Engine:
    """Aligns what the writers of one experiment send by step, and reduces it across ranks.

    Not thread-safe: one thread owns it. It knows no clock: `now` is seconds since the epoch, as the service
    reads it. `observe` closes nothing; call `advance` after a batch of observations, then `take`.

    Args:
        experiment: `ml.experiment.id`.
        settings: limits.
        state: the entries that earlier `take()`s handed out; the engine continues from there. Those whose keys begin
            with `disk/` may be left out.
        kept: returns one of the entries that begin so, as they are committed, or None where there is none; the engine
            keeps them itself, in memory, where nobody else does.
        seq: after which records are numbered where there is no state.
    """

    def __init__(
        self,
        experiment: str,
        settings: EngineSettings = _DEFAULTS,
        state: Mapping[str, bytes] | None = None,
        *,
        kept: Callable[[str], bytes | None] | None = None,
        seq: int = 0,
    ) -> None:
        self._run = RunState(experiment, settings, LazyEntries(kept, state or {}))
        self._run.output.number_after(seq)
        # Records were numbered, and there is no state: it was lost.
        self._run.writers.begin_anew(not state and seq > 0)
        self._totals = WriterTotals(self._run.writers)
        self._settling = Settling(self._run)
        self._steps = Steps(self._run)
        self._quota = Quota(self._run)
        self._third_party = ThirdParty(self._run, self._steps, self._quota)
        self._parameters = Parameters(self._run.output, self._run.writers, settings.params)
        self._summaries = Summaries(self._run.output, settings.summaries)
        self._items = RunEvents(self._run.output, self._parameters, self._summaries)
        self._spans = SpanIntake(self._run)
        self._ending = RunEnd(self._run, self._steps, self._summaries)
        self._snapshot = Snapshot(
            self._run,
            self._ending,
            self._steps.closed,
            self._third_party.streams,
            self._parameters,
            self._summaries,
            self._spans,
        )
        self._takers: dict[type, Callable[[WriterState, Any], None]] = {
            Fragment: self._fragment,
            Watermark: self._watermark,
            Position: self._position,
            ShutdownMessage: self._shutdown_message,
            ThirdPartyPoints: self._third_party_points,
            Event: self._event,
            Spans: self._spans.take,
        }
        self._first_at: float | None = None
        self._is_resumed = bool(state)
        if state:
            self._snapshot.restore(state)
            self._steps.late.restore()
            self._steps.restart_detection.restore()
            self._steps.stepless.restore()

    def observe(self, observation: Observation, now: float) -> None:
        """Take one observation; cheap, closes nothing."""
        run = self._run
        if now > run.now:
            run.hear(now)
        if run.started_at is None:
            self._first_at = now
        if now == self._first_at:  # the first request: what it holds was recorded before it was sent
            run.begin_by(min(now, recorded_at(observation, now)))
        writer = self._quota.writer(observation)
        if writer is None:
            return
        # Time is an argument everywhere in this package: the service passes its clock, a replay passes the times that
        # were recorded. So the same input gives the same records, whenever and wherever it is reduced.
        if writer.heard_at != now or run.clock.heard_at != now:  # a request brings tens of observations at one time
            self._hear(writer, observation, now)
        run.writers.dirty.add(writer.number)
        # Observing never closes a step. A request brings many observations, and closing after the first of them would
        # decide on half a request; `advance` closes, once the whole request has been observed.
        self._takers[type(observation)](writer, observation)

    def note_rejected(self, items: int) -> None:
        """Note how many items of the run, in all, arrived and will never be accepted."""
        self._run.note_rejected(items)

    def note_refused(self, at: float) -> None:
        """Note that something could not be stored at that time (seconds since the epoch): its sender lives."""
        self._run.hear_refused(at)

    @property
    def awaited_writers(self) -> Sequence[Writer]:
        """Those of which more may come, children too."""
        return [one.writer for one in self._run.writers if one.native and not one.has_left]

    def note_died(self, writers: Iterable[Writer], now: float, leaving: Iterable[Writer] = ()) -> None:
        """Note that processes are gone that sent no shutdown message, and that all they left behind has arrived.

        Args:
            writers: these processes.
            now: seconds since the epoch.
            leaving: others that are gone, of which more may come, a shutdown message too.
        """
        self._run.hear(now)
        self._ending.note_died(writers, leaving)

    def _hear(self, writer: WriterState, observation: Observation, now: float) -> None:
        run = self._run
        if isinstance(observation, ThirdPartyPoints) and run.native:
            return  # a scraped GPU does not tell that the job lives
        # It is heard for the first time.
        if not writer.since:
            run.writers.dismiss_if_late(writer, run.now)
        if isinstance(observation, Position) and observation.axis is None:
            run.hear_waiting()
            writer.hear(run.now)
            return
        run.outage.hear(run.now)
        run.clock.hear(writer.number, now, run.live)
        writer.hear(run.now)

    def advance(self, now: float) -> None:
        """Close what is due at `now`."""
        self._settling.settle()
        run = self._run
        run.hear(now)
        if self._is_resumed:
            run.resume()
            self._is_resumed = False
        run.clock.advance(run.now)
        self._settling.give_up()
        # The order matters: a gap that is given up above may complete a step here, and a step that closes here may end
        # the run below.
        self._steps.settle()
        self._third_party.streams.forget_idle()
        self._spans.emit()
        self._ending.advance()

    def next_deadline(self) -> float | None:
        """Return when `advance` could change something though nothing arrives; None where it cannot."""
        run = self._run
        timeout = run.settings.allowed_lateness_s
        active = [attempt.due for attempt in run.step_streams if attempt.due is not None]
        active += [writer.gap_since + timeout for writer in run.writers if writer.gap_since is not None]
        active += [due for due in (self._steps.late.due(), self._steps.stepless.due()) if due is not None]
        moments = [run.clock.when(moment) for moment in active]
        moments += [self._ending.due(), self._steps.restart_detection.due()]
        return min((moment for moment in moments if moment is not None), default=None)

    def take(self) -> Outcome:
        """Return what to commit in one transaction, and forget it."""
        self._settling.settle()
        self._spans.emit()
        self._ending.repeat()
        # Before `changes()`, which empties `writers.dirty`.
        self._totals.refresh()
        # Records and the state that made them are committed in one transaction. If only the records were durable, a
        # restart would close the same step again and number it differently.
        changes = self._snapshot.changes()
        self._run.disk.keep(changes)
        output = self._run.output
        outcome = Outcome(
            tuple(output.records),
            changes,
            tuple(output.notices),
            tuple(output.too_late),
            dict(output.files),
            tuple(output.named),
        )
        output.clear()
        return outcome

    def found(self, artifact: Artifact) -> None:
        """Take back an artifact of an earlier `Outcome.named`: with its file, or as the reference that it stays."""
        self._run.output.found(artifact)

    def expect(self, artifacts: int) -> None:
        """Know of artifacts that will be `found()`, of which a predecessor's outcomes told: the run ends after them."""
        self._run.output.expect(artifacts)

    @property
    def status(self) -> Status:
        """How the run stands."""
        return status_of(self._run, self._totals, self._ending.state, self._spans, self._steps.closing_trigger)

    @property
    def facts(self) -> RunFacts:
        """What the writers said about the run."""
        return facts_of(self._run, self._totals)

    @property
    def findings(self) -> Sequence[Mapping[str, JsonValue]]:
        """Slow and silent ranks, as plain data."""
        return self._run.stragglers.found()

    def _fragment(self, writer: WriterState, fragment: Fragment) -> None:
        run = self._run
        if not writer.native:
            run.know_as_ours(writer)
        partials = fragment.partials
        series, role = partials.series, writer.writer.role
        axis = fragment.axis if fragment.axis is not None else TIME_AXIS
        points = len(series)
        rows = writer.take(fragment.seq, fragment.seq_points, series)
        # None stands for all rows, and an empty list for none.
        if rows != []:
            writer.ledger.take(fragment.seq, _amount(fragment, rows), writer.floor)
        self._settling.hear(writer)
        # Only now: what there is no room for has arrived, and leaves no gap in the running numbers.
        if not self._quota.axis(role, axis, fragment, rows):
            return
        tally = run.step_streams.stream(role, axis).tally
        # Duplicates are counted as received, too: received = closed + open + waiting + duplicate + … must balance.
        tally.receive(points)
        if rows is not None:
            tally.repeat(points - len(rows))
        if not points or rows == []:
            return
        self._ending.heard()
        piece = self._admitted(writer, fragment, self._piece(writer, fragment, rows))
        if piece is None:
            return
        # The axis `time` starts at the first point that counts, not at the start of the service, so that a replay gives
        # the same rows.
        if run.origin_ns is None:
            run.begin_time(int(piece.partials.times.min()))
        if fragment.axis is None or fragment.step is None:
            self._steps.stepless.add(piece, writer, fragment)
        else:
            self._steps.points(writer, fragment, piece, fragment.axis, fragment.step)

    def _third_party_points(self, writer: WriterState, sent: ThirdPartyPoints) -> None:
        if sent.step is None and self._run.native and self._ending.state != "running":
            # Engines and nodes live on; nothing would ever close their windows.
            tally = self._run.step_streams.stream(writer.writer.role, TIME_AXIS).tally
            tally.receive(len(sent.starts))
            tally.ignore(len(sent.starts))
            return
        self._third_party.points(writer, sent)

    def _piece(self, writer: WriterState, fragment: Fragment, rows: list[int] | None) -> Piece:
        partials = fragment.partials
        shape = self._run.shapes.of(partials.series)
        piece = Piece(writer.source, fragment.seq, fragment.reduction, shape, partials, partials.newest_ns)
        if rows is None:
            return piece
        some = piece.some(rows)
        return some._replace(shape=self._run.shapes.of(some.partials.series))

    def _admitted(self, writer: WriterState, fragment: Fragment, piece: Piece) -> Piece | None:
        """Return as much of a piece of a fragment as there is room for."""
        if self._quota.has_taken(writer.writer.role, piece.shape):
            return piece
        rows = self._quota.rows(writer.writer.role, piece.shape, fragment._replace(partials=piece.partials))
        if rows is None:
            return piece
        some = piece.some(rows)
        return some._replace(shape=self._run.shapes.of(some.partials.series)) if rows else None

    def _watermark(self, writer: WriterState, watermark: Watermark) -> None:
        fresh = self._once(writer, watermark.seq, watermark.axis)
        if fresh and self._quota.axis(writer.writer.role, watermark.axis):
            self._ending.heard()
            self._steps.watermark(writer, watermark)

    def _position(self, writer: WriterState, position: Position) -> None:
        if position.totals is not None:
            place = None if position.axis is None or position.step is None else (position.axis, position.step)
            writer.ledger.hear(position.seq, position.totals, place)
        fresh = self._once(writer, position.seq, position.axis or DEFAULT_AXIS)
        if not fresh or (position.axis is not None and not self._quota.axis(writer.writer.role, position.axis)):
            return
        run = self._run
        if position.declared:
            declare(run, writer.writer.role, writer.writer.rank, position.declared)
        if position.kinds:
            run.stragglers.declare(writer.writer.role, position.kinds)
        if position.boot_s:
            run.writers.lived(writer, position.boot_s, position.time_ns, run.now)
        else:
            writer.lived(position.time_ns, run.now)
        if writer.replaced_at is not None:
            self._steps.attempt_assignment.heard_again(writer)
        if position.axis is None or position.step is None:
            return
        stream = run.step_streams.stream(writer.writer.role, position.axis)
        if stream.axis == DEFAULT_AXIS:
            self._steps.stepless.inside(writer)
            attempt = run.attempts.newest if writer.attempt is None else writer.attempt
            run.training.note(stream.role, attempt, position.step, run.believed(position.time_ns))

    def _shutdown_message(self, writer: WriterState, shutdown_message: ShutdownMessage) -> None:
        writer.ledger.hear(shutdown_message.seq, shutdown_message.totals, self._furthest(writer))
        self._run.know_as_ours(writer)
        fresh = writer.receive(shutdown_message.seq)
        was_told_killed = fresh and self._ending.has_told_killed(writer)
        if fresh:  # before what waited for it is settled: it says what of that the writer gave up itself
            writer.shut_down(shutdown_message)
        self._settling.hear(writer)
        if fresh:
            if not writer.born_at:  # it recorded nothing, and this is its only sign of life
                writer.lived(shutdown_message.time_ns, self._run.now)
            self._ending.note_shutdown()
            self._run.clock.forget(writer.number)
        if writer.retract_death() or was_told_killed:  # from a spool that was not read sooner
            self._ending.heard_after_all(writer)

    def _furthest(self, writer: WriterState) -> Place | None:
        """Return the last step of a writer that was heard of, on the axis that it was on last."""
        attempts = [(self._run.step_streams.all[number], progress) for number, progress in writer.progress.items()]
        heard = [(progress.arrived_at, attempt.stream.axis, progress.current) for attempt, progress in attempts]
        known = [(at, axis, step) for at, axis, step in heard if step is not None]
        return max(known)[1:] if known else None

    def _event(self, writer: WriterState, event: Event) -> None:
        if event.seq is not None:
            self._run.know_as_ours(writer)
            fresh = writer.receive(event.seq)
            if fresh:  # before what waited for it is settled: it is not missing
                writer.ledger.take(event.seq, ONE_EVENT, writer.floor)
            self._settling.hear(writer)
        else:
            identity = (writer.number, event.kind, event.time_ns, event.axis, event.step, repr(event.body))
            fresh = self._run.recent.add(identity, self._run.now)
        if fresh:
            self._ending.heard()  # or a backend that opens its run again for it would never hear how that ended
            self._run.count_event()
            if event.kind == EVENT_STARTED_END and event.seq is not None:
                self._run.writers.dismiss_those_of(writer, event.time_ns / 1e9, self._run.now)
            else:
                self._items.take(event)

    def _once(self, writer: WriterState, seq: int, axis: str) -> bool:
        """Whether this running number is new; everything but points has one point, itself."""
        if not writer.native:
            self._run.know_as_ours(writer)
        fresh = writer.receive(seq)
        self._settling.hear(writer)
        return fresh


def _amount(fragment: Fragment, rows: list[int] | None) -> Amount:
    """Return what of a fragment is new: all of it, or some rows."""
    points = fragment.partials if rows is None else fragment.partials.some(rows)
    return tuple.__new__(Amount, (len(points.series), values_in(points, fragment.reduction), 0))
