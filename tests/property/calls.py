"""A program that calls at random what records, and prints all that came of it; with `python` without the compiled part.

python -m tests.property.calls compiled|python FIRST_SEED SEEDS
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

if __name__ == "__main__" and sys.argv[1] == "python":
    sys.modules["otel_ml._native"] = None  # type: ignore[assignment]

import numpy as np
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider

from otel_ml._internal import native
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.lifecycle.isolation import forget_everything
from otel_ml._internal.messages.recorder import RecordSettings, recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.steps.axes import STEPS
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.manual_timer import timer
from otel_ml._internal.timers.timing import timed
from otel_ml.diagnostics.measure import Measure, Measures
from tests.unit.otel_ml.record.decoded import every_point, plain, spans

NAMES = [f"name/{i}" for i in range(8)]
MANY = [f"many/{i}" for i in range(300)]


class Name(str):
    """A name that is a str and more."""


class Loud(float):
    """A number that is a float and more."""

    def __float__(self) -> float:
        return 7.0


NUMBERS = (
    0.5,
    -0.0,
    3,
    True,
    10**400,
    float("nan"),
    float("inf"),
    np.float64(2.5),
    np.float32(0.1),
    np.int64(4),
    np.bool_(True),
    Decimal("0.1"),
    Fraction(1, 3),
    Loud(1),
)
NO_STEPS: tuple[Any, ...] = (-1, 2**63, 2**64, True, 1.0, np.int64(3), "1")
OTHERS = (None, "text", [1.0, 2.0], [1, None], (3.0,), np.array(1.5), np.array([1.0, 2.0]), {}, object(), 1j)


class Program:
    """One random program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tracer = trace.get_tracer("user")
        self.metrics = [get_meter().metric(name) for name in NAMES[:3]]
        self.metrics.append(get_meter().metric("otel_ml.reserved"))
        kinds: list[tuple[str, ...]] = [("mean",), ("max",), ("std",), ("p50",), ("sum",), ("last",)]
        self.measures = Measures(*(Measure(f"own/{n}", "1", kind, "") for n, kind in enumerate(kinds)), prefix="own/")

    def value(self) -> Any:
        return self.random.choice(NUMBERS if self.random.random() < 0.9 else OTHERS)

    def call(self) -> None:
        name = self.random.choice(
            [
                "record",
                "record",
                "log",
                "log",
                "log_options",
                "named",
                "measures",
                "set_step",
                "block",
                "timer",
                "wrong",
                "switch",
                "end",
            ]
        )
        with suppress(TypeError):  # of a call that fits no signature
            getattr(self, f"_{name}")()

    def _record(self) -> None:
        options = self.random.choice(
            [{}, {}, {}, {"weight": 2.0}, {"attributes": {"a": 1}}, {"step": 3}, {"axis": "v"}]
        )
        self.random.choice(self.metrics).record(self.value(), *self.random.choice([[], [None] * 4]), **options)

    def _log(self) -> None:
        names: list[Any] = self.random.sample(NAMES, self.random.choice([1, 4, 5, 5, 8]))
        if self.random.random() < 0.05:
            names = [*MANY]
        if self.random.random() < 0.1:
            names[0] = self.random.choice([None, 3, Name("name/0"), ""])
        values = {name: self.value() if self.random.random() < 0.3 else self.random.random() for name in names}
        index: Any = self.random.choice([*range(5)] * 3 + [None, *NO_STEPS])
        calls = (lambda: log(values), lambda: log(values), lambda: log(values, step=index), lambda: log(values, index))
        self.random.choice(calls)()

    def _log_options(self) -> None:
        options = [
            {"step": 2},
            {"prefix": "val"},
            {"reduce": "last"},
            {"weight": 1.5},
            {"attributes": {"k": "v"}},
            {"axis": "v"},
        ]
        log(dict.fromkeys(NAMES[:5], 0.25), **self.random.choice(options))

    def _named(self) -> None:
        record(self.random.choice(NAMES), self.value(), reduce=self.random.choice([None, "sum", "p50", "nonsense"]))
        index = self.random.choice([*range(5), None, *NO_STEPS])
        record(self.random.choice(NAMES), self.value(), index, **self.random.choice([{}, {}, {"axis": "v"}]))

    def _measures(self) -> None:
        names = self.random.sample([*self.measures], self.random.randrange(4))
        values = {name: self.value() if self.random.random() < 0.2 else self.random.random() for name in names}
        options: list[dict[str, Any]] = [{}, {}, {"step": self.random.choice([*range(5), *NO_STEPS])}, {"over": "dp"}]
        several: list[dict[str, Any]] = [{}, {"0": (0.5, 2.0)}, {"1": [3.0, -3.0]}, {"0": (2.0, 0.0), "2": [1.0, 2.0]}]
        more = self.random.choice([{}, {"several": None}, *({"several": one} for one in several)])
        self.measures.record(values, **self.random.choice(options), **more)

    def _set_step(self) -> None:
        index: Any = self.random.choice([*range(5)] * 8 + [None, *NO_STEPS])
        set_step(index, *self.random.choice([[], [], ["v"], ["step"], [""], [3]]))
        set_step(self.random.randrange(5), axis=self.random.choice(["step", "v"]))

    def _block(self) -> None:
        with step(self.random.randrange(5)):
            self.some(2)

    def _wrong(self) -> None:
        wrong: list[Any] = [lambda: log(), lambda: log(3), lambda: log([("a", 1)]), lambda: log({}, nothing=1)]
        wrong += [lambda: self.metrics[0].record(), lambda: self.metrics[0].record(1.0, 2, 3, 4, 5, 6)]
        wrong += [lambda: timed("x", level="high"), lambda: timed(3), lambda: timed("x", 1, 2, 3, 4, 5, 6, 7)]
        wrong += [lambda: set_step(), lambda: set_step(1, "v", 3), lambda: set_step(1, axs="v")]
        wrong += [lambda: timed(""), lambda: timed("x", level=2**70), lambda: timed("y", level=True)]
        self.random.choice(wrong)()

    def _switch(self) -> None:
        recorder.enabled = self.random.random() < 0.8

    def _end(self) -> None:
        time.sleep(0)
        self.open_timer().stop()

    def open_timer(self) -> Any:
        return timer(self.random.choice(NAMES))

    def _timer(self) -> None:
        kind = self.random.choice(
            ["with", "with", "raise", "level", "twice", "user", "function", "task", "thread", "hand"]
        )
        getattr(self, f"_timer_{kind}")()

    def _timer_with(self) -> None:
        options = self.random.choice([{}, {}, {"level": 1}, {"span": False}, {"reduce": "mean"}, {"within": "last"}])
        with timed(self.random.choice(NAMES), **options) as timing:
            if self.random.random() < 0.2 and hasattr(timing, "set_attribute"):
                timing.set_attribute("count", 3)
            self.some(3)

    def _timer_raise(self) -> None:
        with suppress(KeyError), timed(self.random.choice(NAMES)):
            self.some(1)
            raise KeyError("lost")

    def _timer_level(self) -> None:
        with timed(f"detail/{self.random.randrange(3)}", level=self.random.randrange(4)):
            self.some(1)

    def _timer_twice(self) -> None:
        again = timed(self.random.choice(NAMES))
        with again, again:
            self.some(1)
        with again:
            pass

    def _timer_user(self) -> None:
        outer, inner = self.tracer.start_as_current_span("user"), self.tracer.start_as_current_span("inside")
        with outer, timed(self.random.choice(NAMES)), inner:
            self.some(1)

    def _timer_function(self) -> None:
        @timed(self.random.choice(NAMES))
        def function() -> Iterator[int]:
            self.some(1)
            yield 1

        for _ in function():
            break

    def _timer_task(self) -> None:
        async def one() -> None:
            with timed(self.random.choice(NAMES)):
                await asyncio.sleep(0)
                self.some(1)

        async def both() -> None:
            await asyncio.gather(one(), one())

        with suppress(RuntimeError):  # asyncio.run() inside a task
            running = both()
            try:
                asyncio.run(running)
            finally:
                running.close()

    def _timer_thread(self) -> None:
        thread = threading.Thread(target=self._timer_with)
        thread.start()
        thread.join()

    def _timer_hand(self) -> None:
        by_hand = self.open_timer()
        by_hand.start()
        self.some(1)
        by_hand.stop()

    @contextmanager
    def deeper(self) -> Iterator[bool]:
        self.depth = getattr(self, "depth", 0) + 1
        yield self.depth < 5
        self.depth -= 1

    def some(self, most: int) -> None:
        with ExitStack() as stack:
            if stack.enter_context(self.deeper()):
                for _ in range(self.random.randrange(most + 1)):
                    self.call()


def outcome(seed: int) -> object:
    """Return what a program recorded, without times."""
    forget_everything()
    reporter.forget()
    recorder.enabled = True
    budget = random.Random(seed).choice([0, 3, 100])
    settings = RecordSettings(spans_per_step=budget, timer_level=1 + seed % 2)
    recorder.configure(settings, otel_tracing=seed % 3 > 0)
    program = Program(seed)
    points: list[object] = []
    traced: list[object] = []
    for _ in range(3):
        for _ in range(20):
            program.call()
        take(points, traced)
    recorder.enabled = True
    assert context.get_current() == {}, "a context was left behind"
    counted = {"dropped": dict(reporter.dropped), "recorded": recorder.recorded}
    return {"points": points, "spans": traced, "steps": where(), **counted}


def where() -> list[str]:
    """Return the steps there are, and which are current."""
    known = [
        (
            axis.name,
            axis.latest,
            axis.entered,
            axis.explicit,
            axis.current,
            [(one, one.ended, one.spans) for one in axis.steps.values()],
        )
        for axis in STEPS.axes.values()
    ]
    return [repr((STEPS.boundaries, STEPS.process, NOW.step)), *map(repr, known)]


def take(points: list[object], traced: list[object]) -> None:
    """Collect, and add what came of it."""
    batch = recorder.collect(time.time_ns())
    for point in every_point(batch):
        if point.name in {"otel_ml.position", "otel_ml.step.points"}:  # when they are said depends on the time
            continue
        numbers = (
            []
            if point.name.startswith("time/")
            else [repr(point.moments) if point.kind != "gauge" else repr(point.value)]
        )
        identity = (point.step, point.axis, point.reduction, point.name, point.kind, sorted(point.attributes.items()))
        counts = point.raw.count if point.kind != "gauge" else 1
        points.append(repr((identity, counts, numbers)))
    found = spans(batch)
    names = {span.span_id: span.name for span in found}
    traced += [
        repr(
            (
                one.name,
                names.get(one.parent_span_id, bool(one.parent_span_id)),
                sorted(plain(one.attributes).items()),
                one.status.code,
                one.status.message,
                one.kind,
            )
        )
        for one in found
    ]


if __name__ == "__main__":
    assert (native.native is None) == (sys.argv[1] == "python")
    trace.set_tracer_provider(TracerProvider())
    for number in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):
        print(json.dumps(outcome(number)))
