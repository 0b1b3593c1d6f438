"""The engine's thread: journal entries in, commits out; then the journal may forget them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from otel_ml.exceptions import VersionError
from otel_ml.explanation import explained
from otel_ml_service.aggregation.observation import Observation, ShutdownMessage, Writer
from otel_ml_service.live_runs.dead_writers import DeadWriters, Died
from otel_ml_service.live_runs.engine_queue import EngineQueue
from otel_ml_service.live_runs.leftover_spools import Left
from otel_ml_service.live_runs.live_run import LiveRun
from otel_ml_service.live_runs.run_registry import RunRegistry
from otel_ml_service.live_runs.self_telemetry import INTERVAL_S, self_points
from otel_ml_service.live_runs.storage_errors import StorageErrors
from otel_ml_service.live_runs.undecided import Undecided
from otel_ml_service.receiver.partial_success import Rejected
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.storage.database import DamagedError, NoSpaceError, StorageError
from otel_ml_service.telemetry import Telemetry

__all__ = ["EngineLoop"]

_log = logging.getLogger(__name__)

_COMMIT_S = 0.1
"""Least time between commits: each is a disk sync for every run that changed, and writes what it knows of open steps.
With half of it 1,024 ranks took a twentieth more CPU time, and saw their rows 0.03 s sooner (0.40 s)."""

_IDLE_S = 1.0
"""How often the loop looks around when nothing arrives: exporters' positions, ended runs, disk."""

_KEEP_S = 60.0
"""How long a run that is over stays open, for those who still ask about it."""

_KEEP_WANTED_S = 5.0
"""The same where another run waits for its place: as long as a process may ask at its end."""

_EARLY = 100
"""Runs, and reasons of one, of which something was rejected before they began."""

_DISK_S = 10.0
"""How often the size of the outboxes is looked at."""

_TRIM = 0.1
"""Share of the largest outbox that goes, beyond what is too much, when the disk limit is reached."""


class EngineLoop:
    """Feeds the engines in journal order, and commits.

    Args:
        runs: owned by this loop's thread.
        queue: of what is in the journal.
        refusals: told whose points are rejected, where there is no run to tell.
        digested: told how many bytes of requests are decided and committed.
        drop: told up to which entry everything is committed.
        dir_max: bytes of all outboxes.
        unreadable: takes what a request has of a run whose files cannot be opened.
        damaged: told that a run's file was found damaged; a new start puts what is left of it into a new one.
        left: what this instance of a dead writer has left. None where that may still be in a Collector.
        refused_at: when something could not be stored last, by the same clock.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        runs: RunRegistry,
        queue: EngineQueue,
        telemetry: Telemetry,
        refusals: RefusalLog,
        *,
        digested: Callable[[int], None],
        drop: Callable[[int], None],
        dir_max: int,
        unreadable: Callable[[Undecided, str], None],
        damaged: Callable[[], None] = lambda: None,
        left: Callable[[str], Left] | None = None,
        refused_at: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._dead = None if left is None else DeadWriters(left)
        self._refused_at = refused_at
        self._runs = runs
        self._telemetry = telemetry
        self._refusals = refusals
        self._digested = digested
        self._drop = drop
        self._dir_max = dir_max
        self._unreadable = unreadable
        self._damaged = damaged
        self._clock = clock
        self._queue = queue
        self._undigested: deque[tuple[int, int]] = deque()
        self._not_looked_after = ""
        self._rejected_early: dict[str, dict[Rejected, int]] = {}
        self._held_up: dict[str, list[Undecided]] = {}
        self._observed = self._decided = 0
        # Monotonic, as the next one: after the time of day is set back, nothing would be committed for as long.
        self._committed_at = self._begin_again_at = self._commit_again_at = 0.0
        self._disk_at = time.monotonic()
        self._defects: set[str] = set()
        self._waiting = StorageErrors("A new run")
        self._told_at: dict[str, float] = {}
        self._over_since: dict[str, float] = {}
        self._thread = threading.Thread(target=self._work, name="otel-ml-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def undecided(self) -> int:
        """Entries that are acknowledged, and not decided and committed yet."""
        return self._queue.put_in - self._decided

    def stop(self) -> None:
        """Take what is queued, commit, and end; safe twice."""
        self._queue.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            entries, is_all, stopping = self._next()
            now = self._clock()
            before = self._observed
            ended = self._observe(self._queue.for_a_round(entries), now)
            is_all = is_all and self._observed - before == len(entries)
            if self._dead is not None and is_all and (ended or self._dead.is_due):
                ended |= self._look_for_the_dead(self._dead, now)
            if self._held_up and (stopping or time.monotonic() >= self._begin_again_at):
                self._begin_again_at = time.monotonic() + _IDLE_S
                self._begin_again(now)
            for run in self._runs:
                if not run.is_stuck:  # its clock stands still until what was decided is on the disk
                    with run.log.speaking():
                        self._advance(run, now, is_ending=run.experiment in ended)
            if stopping or entries or time.monotonic() - self._committed_at >= _COMMIT_S:
                self._commit()
            self._try_to_look_after(now)
            if stopping and not entries:
                return

    def _next(self) -> tuple[list[Undecided], bool, bool]:
        """Wait for entries; return those of a round, whether these are all there are, and whether to stop."""
        # Asked first: what is put here until then is taken, too.
        stopping = self._queue.is_stopped
        # Of all runs: not while the receiver waits for us.
        entries = self._queue.take(0.0 if self._queue else self._seconds_to_wait())
        left = _COMMIT_S - (time.monotonic() - self._committed_at)
        if entries and not self._queue and not stopping and left > 0:
            # Requests that arrive within one commit's time share it.
            time.sleep(left)
            entries += self._queue.take()
        return entries, not self._queue, stopping

    def _look_for_the_dead(self, dead: DeadWriters, now: float) -> set[str]:
        """Tell the engines who has died; return the runs of which a shutdown message was in a spool meanwhile."""
        died = dead.among([writer for run in self._runs for writer in run.awaited_writers])
        # What a spool held that is not there anymore is in the queue, if not earlier.
        ended = self._observe(self._queue.take_all(), now)
        for run in self._runs:
            with run.log.speaking():
                self._note_died(run, died, now)
        return ended

    def _note_died(self, run: LiveRun, died: Died, now: float) -> None:
        try:
            run.note_died(died, now)
        except Exception:  # noqa: BLE001 (as in _advance)
            self._defective(run)

    def _seconds_to_wait(self) -> float:
        now = self._clock()
        deadlines = [deadline - now for run in self._runs if (deadline := run.next_deadline()) is not None]
        commit_s = _COMMIT_S if any(run.awaits_the_dead or run.is_ending for run in self._runs) else _IDLE_S
        # At least that: a deadline that is over and stays must not make the loop spin.
        return max(0.005, min([_IDLE_S if self._dead is None else self._dead.wait_s, commit_s, *deadlines]))

    def _observe(self, entries: Iterable[Undecided], now: float) -> set[str]:
        """Feed the engines; return the runs of which a writer sent its shutdown message."""
        ended = set()
        for entry in entries:
            for experiment in entry.observations.keys() | entry.rejections.experiments.keys():
                if self._fed(entry, experiment, now):
                    ended.add(experiment)
            self._undigested.append((entry.number, entry.size))
            self._observed += 1
        return ended

    def _fed(self, entry: Undecided, experiment: str, now: float) -> bool:
        """Feed a run; what nobody foresaw holds up neither the others nor the thread, and stays in the journal."""
        try:
            return self._feed(entry, experiment, now)
        except Exception:  # noqa: BLE001 (as in _advance)
            if experiment not in self._defects:  # said once: until a restart the journal keeps everything
                self._defects.add(experiment)
                _log.exception("Run %s: an internal error. Please report it with this log.", experiment)
            return False

    def _feed(self, entry: Undecided, experiment: str, now: float) -> bool:
        observations = entry.observations.get(experiment, ())
        if experiment in self._held_up:
            self._held_up[experiment].append(entry)
            return False
        run = self._run_of(entry, _naming(observations)) if observations else self._runs.get(experiment)
        rejected = {of: items for of, items in entry.rejections.told.items() if of.experiment == experiment}
        if run is None:  # held up, set aside, or nothing but rejected points: no run begins with that
            self._keep_for_later(experiment, rejected)
            return False
        for each, items in self._rejected_early.pop(experiment, {}).items():
            rejected[each] = rejected.get(each, 0) + items
        with run.log.speaking():
            run.observe(entry.number, observations, now, rejected=rejected)
        return any(isinstance(observation, ShutdownMessage) for observation in observations)

    def _keep_for_later(self, experiment: str, rejected: dict[Rejected, int]) -> None:
        """Log what is rejected where there is no run to tell; should it begin, it is told too."""
        for each in rejected:
            self._refusals.reject(each)
        if rejected and (experiment in self._rejected_early or len(self._rejected_early) < _EARLY):
            early = self._rejected_early.setdefault(experiment, {})
            for each, items in rejected.items():
                if each in early or len(early) < _EARLY:
                    early[each] = early.get(each, 0) + items

    def _run_of(self, entry: Undecided, writer: Writer) -> LiveRun | None:
        """Return the run of a request; None where it cannot begin yet, or where its files cannot be used."""
        try:
            run = self._runs.of(writer)
        except NoSpaceError as error:
            self._waiting.note(error)
            self._held_up[writer.experiment] = [entry]
            return None
        except (StorageError, VersionError, OSError) as error:
            self._quarantine(entry, writer.experiment, error)
            self._runs.withdraw([writer.experiment])
            return None
        if (told := self._waiting.over()) is not None:
            run.say("storage", told)
        return run

    def _begin_again(self, now: float) -> None:
        """Begin the runs for which there was no room; what came for them meanwhile has waited in its order."""
        held_up, self._held_up = self._held_up, {}
        for experiment, entries in held_up.items():
            for entry in entries:
                self._fed(entry, experiment, now)

    def _quarantine(self, entry: Undecided, experiment: str, error: Exception) -> None:
        """Keep for the next start what a request has of a run that cannot take it, if there is room for it."""
        try:
            self._unreadable(entry, experiment)
        except OSError as second:
            self._defects.add(experiment)
            _log.error("A request of run %s stays in the journal: %s %s", experiment, error, second)
        else:
            _log.error("%s", explained(f"A request of run {experiment} is set aside: {error}", "damaged-file"))

    def _advance(self, run: LiveRun, now: float, *, is_ending: bool) -> None:
        try:
            self._self_telemetry(run, now, is_ending=is_ending)
            run.advance(now, self._refused_at())
        except Exception:  # noqa: BLE001 (a defect of ours must not take the other runs with it)
            self._defective(run)

    def _defective(self, run: LiveRun) -> None:
        """Say a defect once; until a restart the journal keeps everything from here on."""
        if run.experiment not in self._defects:
            self._defects.add(run.experiment)
            _log.exception("Run %s: an internal error. Please report it with this log.", run.experiment)
            run.say(
                "internal-error", "The service has an internal error, see its log. What arrives is kept in the journal."
            )

    def _self_telemetry(self, run: LiveRun, now: float, *, is_ending: bool) -> None:
        # Only beside data: points of our own must not keep a silent run from ending.
        told = self._told_at.setdefault(run.experiment, now)
        if run.status.state == "running" and run.is_touched and (is_ending or now - told >= INTERVAL_S):
            self._told_at[run.experiment] = now
            run.tell(self_points(run, now), now)

    def _commit(self) -> None:
        """Commit every run. What one of them cannot store, on a full disk, the journal keeps; the others go on."""
        stuck = [run for run in self._runs if not self._is_committed(run)]
        self._committed_at = time.monotonic()
        if stuck:  # an entry may be of several runs: while one of them is not on the disk, the journal lets nothing go
            return
        held_up = {entry.number for entries in self._held_up.values() for entry in entries}
        self._decided = self._observed - len(held_up)
        if not self._defects:
            self._forget(before=min(held_up, default=None))

    def _forget(self, before: int | None) -> None:
        """Let the journal drop what is committed, up to the first entry that waits for its run."""
        dropped = size = 0
        while self._undigested and (before is None or self._undigested[0][0] < before):
            dropped, bytes_ = self._undigested.popleft()
            size += bytes_
        if dropped:
            self._drop(dropped)
            self._digested(size)

    def _is_committed(self, run: LiveRun) -> bool:
        if run.is_stuck and time.monotonic() < self._commit_again_at and not self._queue.is_stopped:
            return False
        try:
            with run.log.speaking():
                run.commit()
        except DamagedError as error:
            # Not stuck: trying again mends nothing. As a defect, it has the journal keep everything for the new start.
            if run.experiment not in self._defects:
                run.trouble.note(error)
                self._defects.add(run.experiment)
                self._damaged()
        except (StorageError, OSError) as error:
            run.trouble.note(error)
            self._commit_again_at = time.monotonic() + _IDLE_S
            return False
        except Exception:  # noqa: BLE001 (as in _advance)
            self._defective(run)
        return True

    def _try_to_look_after(self, now: float) -> None:
        """Look after the runs; what cannot be done now, on a disk that is read-only or full, is tried again."""
        try:
            self._look_after(now)
        except Exception as error:  # noqa: BLE001 (as in _advance)
            if self._not_looked_after != repr(error):
                _log.exception("Runs that are over cannot be closed, or made smaller; it is tried again.")
            self._not_looked_after = repr(error)

    def _look_after(self, now: float) -> None:
        keep_s = _KEEP_WANTED_S if self._runs.is_crowded else _KEEP_S
        for run in self._runs:
            self._runs.look_after(run)
            run.finish()
            if run.is_stuck or not run.is_over:
                self._over_since.pop(run.experiment, None)
            elif now - self._over_since.setdefault(run.experiment, now) >= keep_s:
                self._over_since.pop(run.experiment)
                self._told_at.pop(run.experiment, None)
                self._runs.forget(run)
        if time.monotonic() - self._disk_at >= _DISK_S:
            self._disk_at = time.monotonic()
            self._trim()

    def _trim(self) -> None:
        """Make room by letting the oldest records of the largest outbox go, as far as one exporter has them."""
        sizes = self._runs.size()
        excess = sum(sizes.values()) - self._dir_max
        if excess <= 0:
            return
        largest = max(sizes, key=lambda experiment: sizes[experiment])
        run = self._runs.get(largest)
        if run is not None:
            run.forget_oldest(excess / sizes[largest] + _TRIM, self._dir_max)


def _naming(observations: Sequence[Observation]) -> Writer:
    """Return a writer of a request that knows the name of its run, if one does.

    A Collector may put what it scraped, and knows by the id alone, in front of what a rank sent.
    """
    first = observations[0].writer
    if first.experiment_name:
        return first
    return next((one.writer for one in observations if one.writer.experiment_name), first)
