"""Folding: the buffer is taken apart into what each step has gathered."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from otel_ml._internal.device_tensor import Deferred
from otel_ml._internal.devices.cuda_graphs import CAPTURED
from otel_ml._internal.devices.device_timers import DEVICE_TIMERS
from otel_ml._internal.devices.non_blocking_copy import STAGING
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.native import native
from otel_ml._internal.own_threads import is_own_thread
from otel_ml._internal.run_scope import NOBODY, NOW, SCOPES, dropped_of
from otel_ml._internal.safe_repr import text_of
from otel_ml._internal.series.buckets import MAX_BUCKETS, SCALE, ExponentialBuckets
from otel_ml._internal.series.buffer import RECORDS, STRIDE, take
from otel_ml._internal.series.definition import DEFINITIONS, UNSETTLED, Series
from otel_ml._internal.series.pending import Order, StepPartials
from otel_ml._internal.series.row import WIDE, Row
from otel_ml._internal.single_thread_executor import SingleThreadExecutor
from otel_ml._internal.steps.axes import Steps
from otel_ml._internal.steps.axis import Step

__all__ = ["BACKLOG", "FOLDER", "NO_RUN", "Folder", "fold_in_python"]


Waiting = tuple[Series, Step, Deferred, int]
"""A record whose value a device has yet to give."""


class Folder:
    """Owner of all that is recorded and not yet collected.

    Attributes:
        lock: guards everything below, `Step.pending` and taking from the buffer. Callers never take it.
        taking: held inside of that for each thing that is taken or given back, and never while a device is asked: who
            leaves a run whose background thread does not come back takes over with it.
        steps: those with something pending, in the order of their first record.
        points: partials that they hold.
        most_points: partials from which callers wait for the background thread to collect them.
        deferred: device values that could not be read yet.
        values: folded since the last collection.
        recorded: folded since the process began.
        recorded_of: the same of each of several runs, by the generation of its steps.
        caller_s: seconds callers waited for a fold.
        background: the thread that folds for callers.
    """

    MAX_POINTS = 200_000
    """Of `most_points`: about 60 MB."""

    POINT_BYTES = 200
    """A partial in the spool, at most, with what a step of its own costs."""

    MAX_DEFERRED = 100_000
    """Device values kept while the device is behind; their copies are memory of the device. From half of it on callers
    wait until those have been read that are done."""

    def __init__(self) -> None:
        self.deferred: list[Waiting] = []
        self.forget_threads()
        self.forget()

    def forget_threads(self) -> None:
        """In a forked child: nobody is left who could give back what one of them held."""
        self.taking = threading.RLock()

    def forget(self) -> None:
        """Start with nothing, and with a lock nobody holds; `taking` is held by the caller."""
        self.lock = threading.Lock()
        self.background = SingleThreadExecutor()
        # A forked child must not free device memory of its parent: what is deferred stays referenced.
        self._inherited = self.deferred
        self.deferred = []
        self.steps: dict[Step, None] = {}
        self.points = 0
        self.most_points = self.MAX_POINTS
        self.values = 0
        self.recorded = 0
        self.recorded_of: Counter[int] = Counter()
        self.caller_s = 0.0

    def fold(self) -> None:
        """Fold all records; the lock is held by the caller, or `taking`."""
        # The locks are for those that take, never for those that record: a caller appends in one C call, and a prefix
        # is cut off in another. What is appended meanwhile stays for the next fold.
        with self.taking:
            part = _take()
            if not NOW.several:
                self.points += _fold_records(self, part)
                return
            for generation, records in _by_run(part).items():
                before = self.recorded
                self.points += _fold_records(self, records)
                self.recorded_of[generation] += self.recorded - before

    def share_out(self, steps: Steps) -> None:
        """Count what was recorded so far as that of the run of `steps`: another one begins beside it."""
        if is_own_thread():  # by a finalizer: here nobody waits for another thread
            return
        # Not on the caller's own thread, as in `relieve()`: a signal handler that ends a run would wait for a thread
        # that waits for the lock.
        if not NOW.several:
            self.background.begin_or_do(partial(self._share_out, steps.generation)).outcome()
        steps.ask_contexts()

    def _share_out(self, generation: int) -> None:
        with self.lock, self.taking:
            # Under the lock: what is folded before is of the first run alone, and of all that follows each step says
            # whose it is.
            if not NOW.several:
                self.points += _fold_records(self, _take())
                self.recorded_of[generation] = self.recorded
                NOW.several = True

    @property
    def is_held_here(self) -> bool:
        """Whether this thread holds `taking`: a signal handler or a finalizer may run meanwhile, and record."""
        return bool(self.taking._is_owned())  # type: ignore[attr-defined] # noqa: SLF001 (as `threading.Condition` asks)

    def uncount(self, generation: int, values: int) -> None:
        """Know that values of a run that were counted when they were folded are not recorded after all."""
        with self.taking:
            self.recorded -= values
            if NOW.several:
                self.recorded_of[generation] -= values

    def take_steps(self, generation: int) -> dict[Step, None]:
        """Take what a run has pending, and what is nobody's anymore; `taking` is held by the caller."""
        if not NOW.several:
            steps, self.steps, self.points = self.steps, {}, 0
            return steps
        # Of a run that is over: its own thread comes no more, so that of any other one counts it.
        for step in [step for step in self.steps if SCOPES.of(step.generation) is None]:
            self._refuse(step)
        steps = {step: None for step in self.steps if step.generation == generation}
        self.steps = {step: None for step in self.steps if step.generation != generation}
        self.points -= sum(step.pending.size for step in steps if step.pending is not None)
        return steps

    def refuse(self, generation: int) -> None:
        """Count what a run has pending as nobody's: it is over, and others go on; `taking` is held by the caller."""
        for step in [step for step in self.steps if step.generation == generation]:
            self._refuse(step)

    def _refuse(self, step: Step) -> None:
        del self.steps[step]
        refused, step.pending = step.pending, None
        if refused is not None:
            self.points -= refused.size
            NOBODY.dropped["no_run"] += refused.records
            reporter.say("no-run", NO_RUN)

    def take_apart(self, part: list[Any]) -> dict[StepPartials, int]:
        """Sort records by step and series; return what was added to, and its size before."""
        items = 0  # of rows, with their values: these are counted one by one
        step_before: Step | None = None
        touched: dict[StepPartials, int] = {}
        pending = StepPartials(0)  # of no step
        last = 0
        records = iter(part)
        # One iterator four times: each turn takes a record, and `_fold_row()` the values that follow a row.
        for series, step, value, time_ns in zip(records, records, records, records, strict=False):
            # Records come in runs of one step: the step's dictionaries are looked up once per run, not once per record.
            if step is not step_before:
                pending.last_ns = max(pending.last_ns, last)
                step_before = step
                pending = self._pending(step, time_ns)
                touched.setdefault(pending, pending.size)
                groups = pending.groups
            last = time_ns
            # The common record is a plain float of a series of which only sums matter; everything else leaves this
            # loop.
            if type(value) is not float or series.special:
                if type(series) is Row:
                    items += self._fold_row(pending, step, series, records, time_ns)
                else:
                    self._fold_special(pending, step, series, value, time_ns)
                continue
            group = groups.get(series)
            if group is None:
                pending.add(series, value)
            elif isinstance(group, list):
                group.append(value)
            else:
                groups[series] = [group, value]
        pending.last_ns = max(pending.last_ns, last)
        # One for each record but rows; `_fold_special()` corrects it for those that are none or several values.
        self._count((len(part) - items) // STRIDE)
        return touched

    def read_deferred(self, see_that_it_is: Callable[[], None], *, everything: bool = False) -> None:
        """Put device values that are done by now back into the buffer; the lock is held by the caller.

        Args:
            see_that_it_is: raises where the run of the caller is over: a device may have taken as long as that.
            everything: those that are still gathered on their device are sent now.
        """
        STAGING.look(everything=everything)
        DEVICE_TIMERS.look()
        CAPTURED.look()
        looked_at, done = list(self.deferred), set()
        try:
            for record in looked_at:
                records, error = _records_of(record)
                with self.taking:
                    see_that_it_is()
                    if records is not None:
                        self._give_back(record, records, error)
                        done.add(id(record))
        finally:
            with self.taking:
                # Also where the run turned out to be over: what was given back above must not be given back again.
                self.deferred = [record for record in self.deferred if id(record) not in done]

    def _give_back(self, record: Waiting, records: Iterable[Any], error: BaseException | None) -> None:
        series, step, value, _ = record
        if error is not None:
            dropped_of(step)["device_error"] += value.size
            reporter.say(
                "device-error",
                f"Metric {series.definition.name!r}: the device did not give its value: {text_of(error)}.",
            )
        # Back into the buffer, with the time and step of the call: from here on it is a record like any other. The
        # step's watermark has waited for it (`waiting`).
        (step.base or step).waiting -= 1
        RECORDS.extend(records)

    def drop_deferred(self, generation: int) -> None:
        """Give up on device values of a run that never came; `taking` is held by the caller."""
        for _, step, value, _ in self.let_go(generation):
            (step.base or step).waiting -= 1
            dropped_of(step)["device_not_done"] += value.size

    def let_go(self, generation: int) -> list[Waiting]:
        """Forget the device values of a run that could not be read, and return them; `taking` is held."""
        gone = self.deferred_of(generation)
        known = set(map(id, gone))
        self.deferred = [record for record in self.deferred if id(record) not in known]
        return gone

    def deferred_of(self, generation: int) -> list[Waiting]:
        """Return the device values of a run that could not be read yet."""
        return [record for record in self.deferred if not NOW.several or record[1].generation == generation]

    def _count(self, values: int) -> None:
        self.values += values
        self.recorded += values

    def _pending(self, step: Step, time_ns: int) -> StepPartials:
        pending = step.pending
        if pending is None:
            pending = step.pending = StepPartials(time_ns)
            self.steps[step] = None
        pending.know_rows()
        pending.first_ns = min(pending.first_ns, time_ns)
        return pending

    def _fold_row(self, pending: StepPartials, step: Step, row: Row, records: Iterator[Any], time_ns: int) -> int:
        """Fold the values that follow in `records`, and return how many items the row was."""
        values = tuple(islice(records, len(row.series)))
        self._count(len(values))
        if len(values) >= WIDE and row.is_plain():
            pending.add_row(row, values)
            return STRIDE + len(values)
        for series, value in zip(row.series, values, strict=True):
            if series.special:
                self._fold_special(pending, step, series, value, time_ns)
            else:
                pending.add(series, value)
        return STRIDE + len(values)

    def _fold_special(self, pending: StepPartials, step: Step, series: Series, value: Any, time_ns: int) -> None:
        # The caller has counted it as a value of the program.
        if series.internal:
            self._count(-1)
        if isinstance(value, Deferred):
            # It counts when it comes back with its values, as many as it has then.
            self._count(-1)
            self._defer(series, step, value, time_ns)
        elif type(value) is list:
            self._count(len(value) - 1)
            for item in value:
                self._fold_one(pending, series, item, time_ns)
        else:
            self._fold_one(pending, series, value, time_ns)

    def _fold_one(self, pending: StepPartials, series: Series, value: Any, time_ns: int) -> None:
        if type(value) is tuple:
            pending.add_special(series, value[0], value[1], time_ns)
        else:
            pending.add_special(series, value, None, time_ns)

    def _defer(self, series: Series, step: Step, value: Deferred, time_ns: int) -> None:
        # Each deferred value holds memory of the device. A device that hangs must not make the job run out of it.
        if len(self.deferred) >= self.MAX_DEFERRED:
            dropped_of(step)["device_backlog"] += value.size
            reporter.say("device-backlog", BACKLOG)
            return
        # A step as a stage sees it counts on the step itself, which is the one that has a watermark.
        (step.base or step).waiting += 1
        self.deferred.append((series, step, value, time_ns))

    def bound(self, spool_bytes: int) -> None:
        """Hold no more than an eighth of what the spool may."""
        self.most_points = min(self.MAX_POINTS, spool_bytes // (8 * self.POINT_BYTES))

    def drop_oldest(self) -> None:
        """Keep no more than there is room for; the lock and `taking` are held by the caller."""
        # Never the only one: the step that everybody records in is better than none.
        while self.points > self.most_points and len(self.steps) > 1:
            oldest = next(iter(self.steps))
            del self.steps[oldest]
            dropped, oldest.pending = oldest.pending, None
            if dropped is not None:
                self.points -= dropped.size
                dropped_of(oldest)["buffer_full"] += dropped.records
                reporter.say(
                    "buffer-full",
                    f"Nobody collected for {self.most_points:,} points: the oldest are dropped (buffer_full).",
                )


BACKLOG = "The device is so far behind that its newest values are not recorded (device_backlog)."
"""Said where no memory is left for values that a device has yet to give."""

NO_RUN = (
    "Something was recorded where no run is current: several runs are active in this process, and this thread has none "
    "of its own, or one that has ended. It is not in any run (no_run). Record with the methods of a run, run.log(…), "
    "or in `with run.use():`."
)
"""Said of what is nobody's."""


def _records_of(record: Waiting) -> tuple[Iterable[Any] | None, BaseException | None]:
    """Ask a device for a value, which may take any time: return the records it is, None before that; or why none."""
    series, step, value, time_ns = record
    try:
        return (value.records(series, step, time_ns) if value.ready() else None), None
    except BaseException as error:  # noqa: BLE001 - whatever a device raises costs one value, not our thread
        return (), error


def _by_run(part: list[Any]) -> dict[int, list[Any]]:
    """Sort records by whose they are."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(part):
        series, step = part[at], part[at + 1]
        # The values of a row stand behind its four items.
        end = at + STRIDE + (len(series.series) if type(series) is Row else 0)
        found.setdefault(step.generation, []).extend(part[at:end])
        at = end
    return found


def fold_in_python(folder: Folder, part: list[Any]) -> int:
    """Fold records into what their steps have gathered; return how many partials there are more."""
    more = 0
    for pending, before in folder.take_apart(part).items():
        pending.reduce()
        more += pending.size - before
    return more


_fold_records: Callable[[Folder, list[Any]], int] = fold_in_python
_take: Callable[[], list[Any]] = take
if native is not None:
    native.bind_fold(
        StepPartials, Order, Series, Row, Step, DEFINITIONS, UNSETTLED, ExponentialBuckets, SCALE, MAX_BUCKETS, WIDE
    )
    _fold_records, _take = native.fold_records, native.take

FOLDER = Folder()
