"""Slow and silent ranks, found as steps close and published in the run: series, a table, a picture, sentences."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from otel_ml.wire.attributes import RESERVED_PREFIX, TIME_AXIS
from otel_ml.wire.published_name import published_name
from otel_ml_exporters.records import Image, JsonValue, Table
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.naming import exposed_names
from otel_ml_service.aggregation.newest_spans import NewestSpans
from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.rank_timers import RankTimers
from otel_ml_service.aggregation.say_finding import say_finding
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.step_streams import Attempt, StepStream
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.top_ranks import TopRanks
from otel_ml_service.aggregation.watched_steps import PUBLISHED_EVERY, WatchedSteps
from otel_ml_service.findings.blocking_ranks import blocking_ranks, without
from otel_ml_service.findings.evidence_span import is_shown, linked
from otel_ml_service.findings.finding import COLUMNS, Finding, row_of
from otel_ml_service.findings.frontier import Exposed, in_no_timer
from otel_ml_service.findings.phases import NOTHING_SAID, TimerKind
from otel_ml_service.findings.slow_role import Beside, SlowRole
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["Stragglers"]

_SAID = 8
"""Ranks that are named at one step; of more, the table tells."""

_LOOKUPS = 16
"""Findings without a span of their own that are looked up again for a table; each costs up to a millisecond."""

_NESTED_EVERY = 100
"""Steps after which spans are looked at again for which timer is around which: a millisecond."""

_MOST_KINDS = 1_000
"""Timers of a role whose kind is remembered; of more the names tell."""

_LEVELS = {"warning": 1.0, "critical": 2.0}


class Stragglers:
    """Owned by one engine. What is found survives a restart of the service, the evidence is gathered anew."""

    def __init__(self, output: Output, spans: NewestSpans, settings: EngineSettings) -> None:
        self._output = output
        self._is_on = settings.findings
        self._top_ranks = TopRanks(output, settings.top_ranks)
        self._spans = spans
        self._timers = RankTimers()
        self._watches: dict[tuple[str, str], WatchedSteps] = {}
        self._kinds: dict[str, dict[str, TimerKind]] = {}
        self._roles: dict[str, dict[str, SlowRole]] = {}
        self._given_up = set[tuple[str, str]]()

    def declare(self, role: str, kinds: Iterable[tuple[str, TimerKind]]) -> None:
        """Take what a writer says that timers of its role measure; who says it first counts."""
        known = self._kinds.setdefault(role, {})
        for timer, kind in kinds:
            if len(known) < _MOST_KINDS:
                known.setdefault(timer, kind)

    def look(
        self, attempt: Attempt, window: StepWindow, absent: frozenset[int], held_by: frozenset[int], time_ns: int
    ) -> dict[str, float]:
        """Compare the ranks of a window that closes; return what belongs into its row.

        A defect of ours does not take the row with it: it is said, and nobody is looked for anymore.

        Args:
            attempt: of the window.
            window: that closes.
            absent: ranks that are silent.
            held_by: ranks that are still in the window, where nobody has gone on from it.
            time_ns: of its row.
        """
        with self._beside_the_rows(attempt.stream):
            return self._look(attempt, window, absent, held_by, time_ns)
        return {}

    def _look(
        self, attempt: Attempt, window: StepWindow, absent: frozenset[int], held_by: frozenset[int], time_ns: int
    ) -> dict[str, float]:
        stream = attempt.stream
        if (stream.role, stream.axis) in self._given_up:
            return {}
        # A role is known from its first step on, also one of which nothing is looked at: others may wait for it.
        self._roles.setdefault(stream.role, {})
        watch = self._watch(attempt, window, absent) if self._is_on or self._top_ranks.is_asked else None
        if watch is None:
            self._look_at_one_rank(attempt, window, absent, time_ns)
            return {}
        # Before anything is found in it: what an older attempt had found there goes first.
        watch.close(window.step, time_ns)
        timers = self._timers.of(window, absent)._replace(kinds=self._kinds.get(stream.role, NOTHING_SAID))
        if held_by:
            timers = self._without_who_hangs(stream, watch, timers, held_by)
        else:
            watch.go_on_from(timers)
        self._top_ranks.add(stream, window.step, time_ns, timers)
        if not self._is_on:
            return {}
        parents = self._parents(stream, watch, timers)
        timers = in_no_timer(timers, parents).in_order_of(watch.order)
        found = watch.step_findings.step(window.step, timers, parents, self._beside(stream, watch, time_ns))
        changes = [self._linked(stream, watch, finding) for finding in found]
        watch.heat.add(window.step, watch.step_findings.slowdowns)
        self._note(stream, watch, changes)
        return _account(stream, watch.step_findings.account) | dict(self._values(stream, watch))

    def publish(self, stream: StepStream) -> None:
        """Emit the table and the picture where there is news, not more often than every ten steps."""
        with self._beside_the_rows(stream):
            self._publish(stream, at_end=False)

    def _publish(self, stream: StepStream, *, at_end: bool) -> None:
        watch = self._watches.get((stream.role, stream.axis))
        if watch is None or (watch.closes < PUBLISHED_EVERY and not at_end) or not (watch.is_news or watch.is_unlinked):
            return
        # Spans are looked up in any case: a link that is found is news as well.
        is_news = self._link_the_rest(stream, watch) or watch.is_news
        watch.tell()
        if not is_news:
            return
        place = {"time": watch.time_ns / 1e9, "axis": stream.axis, "step": watch.step}
        rows = tuple(row_of(finding) for finding in watch.findings)
        self._output.emit(Table, **place, name=_name(stream, "findings"), columns=COLUMNS, rows=rows)
        picture = watch.heat.picture(watch.step_findings.ranks)
        if picture is not None:
            self._output.emit(Image, **place, name=_name(stream, "stragglers"), **picture._asdict())

    def finish(self, streams: Sequence[StepStream]) -> None:
        """Publish what was kept back: the run ends."""
        for stream in streams:
            with self._beside_the_rows(stream):
                self._finish(stream)

    def _finish(self, stream: StepStream) -> None:
        watch = self._watches.get((stream.role, stream.axis))
        if watch is not None:
            self._note(stream, watch, watch.step_findings.take_last())
        if watch is not None and any(watch.step_findings):
            watch.note_news()  # what they cost in the end
        self._publish(stream, at_end=True)
        self._top_ranks.publish(stream)

    def found(self) -> list[dict[str, JsonValue]]:
        """Return all findings that are remembered, as plain data."""
        return [
            {"role": role, "axis": axis, "attempt": watch.attempt, **asdict(finding), "place": finding.place}
            for (role, axis), watch in self._watches.items()
            for finding in watch.findings
        ]

    def state(self) -> dict[str, object]:
        """Return what survives a restart; empty where there is nothing yet."""
        watches = [
            [*place, watch.attempt, watch.is_news, watch.is_published, watch.step, watch.time_ns, *map(asdict, found)]
            for place, watch in self._watches.items()
            if (found := watch.findings)
        ]
        return {"watches": watches, "kinds": self._kinds} if watches or self._kinds else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what was found and declared before."""
        self._kinds = {role: dict(kinds) for role, kinds in state.get("kinds", {}).items()}
        watches = state.get("watches", ()) if self._is_on else ()
        for role, axis, attempt, is_news, is_published, step, time_ns, *entries in watches:
            # Older forms lack fields that have defaults; JSON has lists for tuples.
            found = [Finding(**{**entry, "ranks": tuple(entry.get("ranks", ()))}) for entry in entries]
            step_findings = StepFindings([one for one in found if not one.is_over])
            self._watches[role, axis] = WatchedSteps(
                attempt,
                step_findings,
                over=[one for one in found if one.is_over],
                is_news=is_news,
                is_published=is_published,
                step=step,
                time_ns=time_ns,
                told={finding.subject: finding.level for finding in step_findings},
            )

    @contextmanager
    def _beside_the_rows(self, stream: StepStream) -> Iterator[None]:
        """Give up looking at a role's steps where that fails; what was found in them is in the tables so far."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (a defect of ours, in what is found, must not take a row with it)
            self._give_up((stream.role, stream.axis), error)

    def _give_up(self, place: tuple[str, str], error: Exception) -> None:
        self._given_up.add(place)
        self._watches.pop(place, None)
        self._roles.get(place[0], {}).pop(place[1], None)  # other roles are compared with it no longer
        *_, where = traceback.extract_tb(error.__traceback__)
        self._output.say(
            "internal-error",
            f"Who is slow in role {place[0]!r}, axis {place[1]!r} is not looked for anymore, for a defect of otel_ml: "
            f"{error!r} at {Path(where.filename).name}:{where.lineno}. All values are there.",
        )

    def _watch(self, attempt: Attempt, window: StepWindow, absent: frozenset[int]) -> WatchedSteps | None:
        """Return who looks at the attempt; None where nobody needs to: one rank alone, no steps, an older attempt."""
        key = (attempt.stream.role, attempt.stream.axis)
        watch = self._watches.get(key)
        if attempt.stream.axis == TIME_AXIS or (watch is not None and attempt.ordinal < watch.attempt):
            return None
        if watch is None:
            first = window.pieces[0].source.rank if window.pieces else None
            if not absent and all(piece.source.rank == first for piece in window.pieces):
                return None
            watch = self._watches[key] = WatchedSteps(attempt.ordinal)
        elif attempt.ordinal > watch.attempt:
            self._note(attempt.stream, watch, watch.step_findings.finish())
            self._top_ranks.publish(attempt.stream)
            watch.follow(attempt.ordinal, window.step)
        return watch

    def _beside(self, stream: StepStream, watch: WatchedSteps, time_ns: int) -> Beside | None:
        """Return the other roles of the run; None where there is one alone."""
        self._roles[stream.role][stream.axis] = watch.step_findings.of_role
        # The role "" is the service, whose own counters are in the run.
        others = [tuple(axes.values()) for role, axes in self._roles.items() if role not in {stream.role, ""}]
        return Beside(stream.role, time_ns, others) if others else None

    def _look_at_one_rank(self, attempt: Attempt, window: StepWindow, absent: frozenset[int], time_ns: int) -> None:
        """Follow how long a rank takes that is alone in its role: whether another role waits for it."""
        stream = attempt.stream
        if not self._is_on or stream.axis == TIME_AXIS or (stream.role, stream.axis) in self._watches:
            return
        if len(self._roles.keys() - {""}) > 1:
            of_role = self._roles[stream.role].setdefault(stream.axis, SlowRole())
            timers = self._timers.of(window, absent)._replace(kinds=self._kinds.get(stream.role, NOTHING_SAID))
            of_role.step(window.step, timers, {}, Beside(stream.role, time_ns, ()))

    def _without_who_hangs(
        self, stream: StepStream, watch: WatchedSteps, timers: StepTimers, held_by: frozenset[int]
    ) -> StepTimers:
        """Say who has not finished what most have, and count those as silent: all others wait for them."""
        if watch.timers is None:
            return timers
        phases = {rank: phase for rank, phase in blocking_ranks(timers, watch.timers).items() if rank in held_by}
        for rank, phase in list(phases.items())[:_SAID]:
            self._output.say(
                "straggler",
                f"{stream.axis} {watch.step} of role {stream.role!r} stands still: rank {rank} has not finished "
                f"{phase!r}, most of {len(timers.ranks)} ranks have.",
            )
        return without(timers, frozenset(phases))

    def _parents(self, stream: StepStream, watch: WatchedSteps, timers: StepTimers) -> Mapping[str, str]:
        """Return which timer is around which: looked up in spans when there are other timers, and now and then.

        Spans may come later than the values of their step, so at first it is looked again soon.
        """
        every = _NESTED_EVERY if watch.has_spans else PUBLISHED_EVERY
        if watch.nested != timers.phases or watch.step >= watch.nested_at + every:
            # The lowest rank stands for all: they run one program.
            lines = self._spans.of(stream.role, timers.ranks[0], watch.attempt) if timers.ranks else ()
            spans = [span for span in SpanLines(tuple(lines)) if span.axis == stream.axis]
            watch.learn_nesting(timers.phases, spans)
        return watch.parents

    def _linked(self, stream: StepStream, watch: WatchedSteps, finding: Finding) -> Finding:
        """Return the finding with the span that shows it; the detector goes on with it while it lasts."""
        if finding.rank is None or is_shown(finding):
            return finding
        found = linked(finding, stream.axis, self._spans.of(stream.role, finding.rank, watch.attempt))
        if not finding.is_over:
            watch.step_findings.know(found)
        return found

    def _link_the_rest(self, stream: StepStream, watch: WatchedSteps) -> bool:
        """Look again for the spans of what lasts: they may have come after the step had closed."""
        unshown = [finding for finding in watch.step_findings.slow_ranks if not is_shown(finding)]
        asked = unshown[:_LOOKUPS]
        return [self._linked(stream, watch, finding) for finding in asked] != asked

    def _note(self, stream: StepStream, watch: WatchedSteps, changes: Sequence[Finding]) -> None:
        if not changes:
            return
        watch.note(changes)
        told = [finding for finding in changes if watch.tells(finding)]
        for finding in told[:_SAID]:
            say_finding(self._output, finding, stream.role, stream.axis)
        if len(told) > _SAID:
            self._output.say(
                "straggler",
                f"{len(told) - _SAID} more ranks of role {stream.role!r} became slow or quick again at {stream.axis} "
                f"{watch.step}: they are in the table {_name(stream, 'findings')}.",
            )

    def _values(self, stream: StepStream, watch: WatchedSteps) -> Iterator[tuple[str, float]]:
        """Yield the series while a rank is slow, and once more when none is; a silent one is in `writers_missing`."""
        worst = watch.step_findings.slowest
        if worst is None and not watch.is_published:
            return
        watch.publish(is_slow=worst is not None)
        yield _name(stream, "straggler/cost"), watch.step_findings.cost_s
        yield _name(stream, "straggler/level"), 0.0 if worst is None else _LEVELS[worst.level]
        if worst is not None and worst.rank is not None:
            yield _name(stream, "straggler/rank"), float(worst.rank)
            yield _name(stream, "straggler/slowdown"), worst.slowdown


def _name(stream: StepStream, name: str) -> str:
    return published_name(stream.role, stream.axis, RESERVED_PREFIX + name)


def _account(stream: StepStream, account: Sequence[Exposed]) -> dict[str, float]:
    values: dict[str, float] = {}
    for phase, seconds, rank in account:
        of_seconds, of_rank = exposed_names(stream.role, stream.axis, phase)
        values[of_seconds], values[of_rank] = seconds, float(rank)
    return values
