"""What each file of `native/` gains: the same call with its functions and with their twins in Python, in turns.

python -m tests.benchmarks.compiled [FILE…]

Prints a table: the files that are left out together, what is called, µs with the twin and with C, and how much less
that is. A turn is a process of its own, in which all else is compiled. Calls are made in a loop; whole steps and
diagnostics with cold caches, as between two steps of training. It is CPU time: others may be at work.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.benchmarks.caches import evict
from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.cold_step import our_step
from tests.benchmarks.sink import sink

__all__ = ["measure", "turn"]

PAIRS = 5
CALLS, TURNS = 500, 30
COLD_CALLS = 9
COLLECTIONS = 40
METRICS, TIMERS = 100, 20

Taken = Callable[[], list[float]]
"""Answers µs of some calls."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        files: of `native/`, which are left out together.
        what: is called.
        twins: name of a compiled function → what has its place; given the compiled one, it returns what is called.
        taken: is called in the process of a turn.
    """

    files: str
    what: str
    twins: Mapping[str, Callable[[Any], Any]]
    taken: Taken


def cold(statement: Callable[[], object]) -> list[float]:
    """Return µs of calls with cold caches."""
    for _ in range(3):
        statement()
    taken = []
    for _ in range(COLD_CALLS):
        evict()
        begin = time.thread_time()
        statement()
        taken.append((time.thread_time() - begin) * 1e6)
    return taken


def calls(statement: str) -> Taken:
    """Return what makes calls of the public interface in a loop, `metric`, `TEN` and `STEP` being known."""

    def taken() -> list[float]:
        import otel_ml

        otel_ml.init("bench")
        otel_ml.set_step(0)
        names = {
            "otel_ml": otel_ml,
            "metric": otel_ml.get_meter().metric("one"),
            "TEN": {f"metric_{i}": 0.5 + i for i in range(10)},
            "STEP": itertools.count(1),
        }
        timer = timeit.Timer(statement, "import gc; gc.enable()", timer=time.thread_time, globals=names)
        timer.timeit(CALLS)
        found = []
        for _ in range(TURNS):
            found.append(timer.timeit(CALLS) / CALLS * 1e6)
            otel_ml.flush(10)  # what one turn has recorded is not a load of the next
        otel_ml.shutdown()
        return found

    return taken


def collections(reduce: Any, *, metrics: int = METRICS, timers: int = 0, times: int = 1) -> Taken:
    """Return what collects steps: fold, encode, watermark, spans."""

    def taken() -> list[float]:
        from otel_ml._internal.messages.recorder import RecordSettings, recorder
        from otel_ml._internal.record.log import log
        from otel_ml._internal.steps.step import set_step
        from otel_ml._internal.timers.timing import timed

        recorder.configure(RecordSettings())
        recorder.enabled = True
        found = []
        for index in range(COLLECTIONS):
            set_step(index)
            for more in range(times):
                log({f"metric_{number}": 0.5 + number + more for number in range(metrics)}, reduce=reduce)
            for _ in range(timers):
                with timed("phase"):
                    pass
            begin = time.thread_time()
            recorder.collect(time.time_ns() + 20_000_000)
            found.append((time.thread_time() - begin) * 1e6)
        return found[5:]

    return taken


def whole_step() -> list[float]:
    """Return µs of a step of 100 metrics and 20 timers on the training thread."""
    import otel_ml

    otel_ml.init("bench")
    step, numbers = our_step(), itertools.count()
    found = cold(lambda: step(next(numbers)))
    otel_ml.shutdown()
    return found


def measures() -> list[float]:
    """Return µs of what a diagnostic records of a step."""
    import otel_ml
    from otel_ml.diagnostics.progress import Progress

    otel_ml.init("bench")
    otel_ml.set_step(0)
    progress = Progress(steps=1_000_000)
    found = cold(lambda: progress.step(samples=32, tokens=32_768))
    otel_ml.shutdown()
    return found


def norms() -> list[float]:
    """Return µs of the norms of a model of small tensors, as a training loop on the host has."""
    import torch

    import otel_ml
    from otel_ml.diagnostics import dynamics

    otel_ml.init("bench")
    otel_ml.set_step(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(32)))
    model(torch.ones(1, 64)).sum().backward()
    recorded = dynamics.Norms(model)
    found = cold(recorded.record_gradients)
    otel_ml.shutdown()
    return found


def operations() -> list[float]:
    """Return µs of a block whose memory is looked at."""
    import otel_ml

    otel_ml.init("bench")
    otel_ml.set_step(0)

    def operation() -> None:
        with otel_ml.operation("actor_train/train_step"):
            pass

    found = cold(operation)
    otel_ml.shutdown()
    return found


def first(_: Any) -> Any:
    """Bind nothing: what a function in Python is given first is the function that stays."""
    return lambda twin, *_: twin


def second(_: Any) -> Any:
    """Bind nothing: of a class and its method, the method stays."""
    return lambda _, twin, *__: twin


def in_python(where: str) -> Callable[[Any], Any]:
    """Return what has the place of a compiled function: `module:function`, found when it is first called."""
    module, _, name = where.partition(":")

    def call(*arguments: Any) -> Any:
        return getattr(sys.modules[module], name)(*arguments)

    return lambda _: call


RECORD = {
    "record_method": second,
    "log_function": first,
    "take": in_python("otel_ml._internal.series.buffer:take"),
}
TIMING = {"timed_function": first, "timing_methods": lambda _: lambda timing, enter, leave: (enter, leave)}
SPANS = {"bind_alone": lambda _: lambda *__: None, "bind_opentelemetry": lambda _: lambda *__: None}
FOLD = {
    "fold_records": in_python("otel_ml._internal.record.fold:fold_in_python"),
    "merge_group": lambda _: lambda pending, series, values: pending.add_values(series, values),
}
ENCODE = {"encoders": lambda _: lambda *bound: (bound[6][0], bound[6][3])}
GAUGE = {"encoders": lambda compiled: lambda *bound: (compiled(*bound)[0], bound[6][3])}
NORMS = {name: (lambda _: lambda *__: None) for name in ("statistics", "sums", "extent")}
STATM = {
    "statm": lambda _: (
        lambda descriptor, *__: sys.modules["otel_ml.diagnostics.hardware.process_memory"]._read_in_python(descriptor)
    )
}

ROWS = [
    Row("record.c", "`metric.record(0.5)`", RECORD, calls("metric.record(0.5)")),
    Row("log.c", "`log()` of one", RECORD, calls("otel_ml.log({'loss': 0.5})")),
    Row("log.c", "`log()` of one, with a step", RECORD, calls("otel_ml.log({'loss': 0.5}, step=3)")),
    Row("log.c", "`record('loss', 0.5)`", RECORD, calls("otel_ml.record('loss', 0.5)")),
    Row("log.c", "`log()` of ten", RECORD, calls("otel_ml.log(TEN)")),
    Row("record.c log.c", "a cold step of 100 metrics, 20 timers", RECORD, whole_step),
    Row("step.c", "`set_step()`", {"set_step_function": first}, calls("otel_ml.set_step(next(STEP))")),
    Row("step.c", "a cold step of 100 metrics, 20 timers", {"set_step_function": first}, whole_step),
    Row("timing.c spans.c", "`with timed()`", TIMING, calls("with otel_ml.timed('forward'): pass")),
    Row("timing.c spans.c", "a cold step of 100 metrics, 20 timers", TIMING, whole_step),
    Row("spans.c", "`with timed()`", SPANS, calls("with otel_ml.timed('forward'): pass")),
    Row("measures.c", "a cold `Progress.step()`", {"measures_method": second}, measures),
    Row("statm.c", "a cold `with operation()`", STATM, operations),
    Row("norms.c elements.c", "cold norms of 64 gradients", NORMS, norms),
    Row("fold.c reduce.c", "a step of 100 means", FOLD, collections("mean")),
    Row("fold.c reduce.c", "the same, recorded 10 times", FOLD, collections("mean", times=10)),
    Row("fold.c m2.c", "a step of 100 deviations, 10 times", FOLD, collections("std", times=10)),
    Row("fold.c buckets.c", "a step of 100 medians, 10 times", FOLD, collections("p50", times=10)),
    Row("fold.c pending.c", "a step of 100 last values, 10 times", FOLD, collections("last", times=10)),
    Row("encode.c and its files", "a step of 100 means", ENCODE, collections("mean")),
    Row("encode.c exponential.c", "a step of 100 medians", ENCODE, collections("p50")),
    Row("encode.c gauge.c", "a step of 100 last values", ENCODE, collections("last")),
    Row("whole_gauge.c", "a step of 1 mean", GAUGE, collections("mean", metrics=1)),
    Row("whole_gauge.c", "a step of 100 means", GAUGE, collections("mean")),
    Row(
        "encode_spans.c",
        "a step of 20 timers",
        {"span_encoder": first},
        collections("mean", metrics=1, timers=TIMERS),
    ),
]


def turn(place: int, compiled: bool) -> float:
    """Return the median of what a row takes in this process, with its functions in C or in Python."""
    row = ROWS[place]
    if not compiled:
        _switch(row.twins)
    return statistics.median(row.taken())


def _switch(twins: Mapping[str, Callable[[Any], Any]]) -> None:
    """Let otel_ml import a module that has all that is compiled, but for what `twins` has."""
    import otel_ml
    from otel_ml import _native as whole
    from otel_ml._internal import native as found

    assert "otel_ml._internal.series.buffer" not in sys.modules, "what is bound already would stay compiled"
    part = ModuleType("otel_ml._native")
    part.__dict__.update(vars(whole))
    for name, twin in twins.items():
        setattr(part, name, twin(getattr(whole, name)))
    sys.modules[part.__name__] = found.native = otel_ml._native = part  # type: ignore[attr-defined]


def measure(place: int) -> tuple[float, float]:
    """Return µs of a row with the twins and with C: medians of processes that took turns."""
    from tests.benchmarks import compiled as this  # by its name, also where it is the program

    sides: dict[bool, list[float]] = {False: [], True: []}
    with sink() as url:
        env = sending_to(url, OTEL_ML_SPANS_PER_STEP="1000000000")  # a span over the budget would cost nothing
        for pair in range(PAIRS):
            for side in (False, True) if pair % 2 else (True, False):
                sides[side].append(answer_of(this.turn, env=env, place=place, compiled=side))
    return statistics.median(sides[False]), statistics.median(sides[True])


def main(names: list[str]) -> None:
    """Print the table, of all rows or of those whose files have one of `names`."""
    print("| files | row | in Python | in C | less |\n| --- | --- | --- | --- | --- |")
    for place, row in enumerate(ROWS):
        if names and not any(name in row.files for name in names):
            continue
        twin, compiled = measure(place)
        print(
            f"| {row.files} | {row.what} | {twin:.3g} µs | {compiled:.3g} µs | {1 - compiled / twin:.0%} |", flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:])
