"""Every call of the public face, taken from the package, and what a program may get wrong in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch

import otel_ml
import otel_ml.types
from otel_ml.diagnostics.operation import Operation
from otel_ml.exceptions import OtelMLError

__all__ = ["HOSTILE", "METHODS", "NAMES", "RAISES", "RUN_METHODS", "Call", "Mistake", "Shy", "method", "mistakes"]


class Shy:
    """An object that raises whatever it is asked."""

    def _refuse(self, *_: object) -> NoReturn:
        raise RuntimeError("shy")

    __repr__ = __str__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __float__ = __index__ = _refuse
    __getattr__ = __fspath__ = __format__ = __lt__ = _refuse


class ShyMapping(Mapping[str, Any]):
    """A mapping that has a key, and raises where it is asked for the value: a lazy one whose source is gone."""

    def __getitem__(self, key: str) -> NoReturn:
        raise RuntimeError("shy")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


HOSTILE: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "an object that raises": Shy,
    "an int": lambda: 7,
    "a negative int": lambda: -1,
    "a huge int": lambda: 10**400,
    "a float": lambda: 1.5,
    "NaN": lambda: float("nan"),
    "a text": lambda: "3",
    "a huge text": lambda: "x" * 1_000_000,
    "a text that is no Unicode": lambda: "\ud800\0",
    "bytes": lambda: b"\xff",
    "a list": lambda: [1, None],
    "a dict": lambda: {None: []},
    "a mapping that raises": ShyMapping,
    "an array": lambda: np.zeros((2, 3)),
    "an array of two": lambda: np.array([True, False]),
    "a tensor": lambda: torch.zeros(2, 3),
    "a tensor without data": lambda: torch.zeros(2, device="meta"),
    "a class": lambda: Shy,
    "a function": lambda: lambda: None,
}

RAISES: Mapping[str, type[Exception]] = {"init": OtelMLError, "read": OtelMLError, "instrument_ray": OtelMLError}
"""Calls that configure, or read, and raise an error of ours, with all that is wrong."""

PROPER: Mapping[str, Any] = {
    "name": "x", "value": 1.0, "iterable": (1, 2), "contexts": f"00-{1:032x}-{1:016x}-01", "path": __file__,
    "text": "t", "data": {"a": [1]}, "image": np.zeros((2, 2)), "audio": np.zeros(4),
    "sample_rate": 8000,
    "values": {"x": 1.0}, "index": 3, "amount": 1.0, "params": {"lr": 1}, "run": "no/such/run", "key": "k",
    "attributes": {"a": 1}, "exception": ValueError("v"), "status": "ok", "context": None, "function": len,
    "figure": b"\x89PNG\r\n\x1a\n",
}  # fmt: skip
"""By the name of a parameter that has to be given, what a program gives."""

NAMES = sorted(
    name for name in otel_ml.__all__ if callable(getattr(otel_ml, name)) and not inspect.isclass(getattr(otel_ml, name))
)
RUN_METHODS = sorted(name for name, value in vars(otel_ml.Run).items() if not name.startswith("_") and callable(value))


def _done(timing: Any) -> Any:
    """Return a timing whose block is over: it is the current span of nothing that follows."""
    with timing:
        return timing


_MADE: Mapping[str, Callable[[], Any]] = {
    "Context": lambda: otel_ml.context(),
    "Meter": lambda: otel_ml.get_meter("m"),
    "Metric": lambda: otel_ml.get_meter().metric("metric"),
    "Counter": lambda: otel_ml.get_meter().create_counter("counter"),
    "UpDownCounter": lambda: otel_ml.get_meter().create_up_down_counter("level"),
    "Histogram": lambda: otel_ml.get_meter().create_histogram("histogram"),
    "Gauge": lambda: otel_ml.get_meter().create_gauge("gauge"),
    "Operation": lambda: otel_ml.operation("operation"),
    "Timer": lambda: otel_ml.timer("timer"),
    "Timing": lambda: _done(otel_ml.timed("timing")),
}
_MADE_BY_RUN: Mapping[str, Callable[[Any], Any]] = {
    "RunTimer": lambda run: run.timer("timer"),
    "RunTiming": lambda run: run.timed("timing"),
}
_OWN = {"look_up", "is_running", "compare", "of", "begin", "end", "before", "after", "timer", "see"}
"""What is called by otel_ml alone, though its name has no underscore."""


def _methods() -> Iterator[str]:
    kinds = {name: getattr(otel_ml.types, name) for name in otel_ml.types.__all__} | {"Operation": Operation}
    for kind, found in sorted(kinds.items()):
        if inspect.isclass(found) and kind not in {"StepLoop", "StepBlock"}:  # no methods but those of `for`, `with`
            of_kind = {
                name
                for one in found.__mro__
                if one.__module__.startswith("otel_ml")
                for name, value in vars(one).items()
                if callable(value) and not name.startswith("_") and name not in _OWN
            }
            yield from (f"{kind}.{name}" for name in sorted(of_kind))


METHODS = list(_methods())


def method(name: str, run: Any) -> Callable[..., Any]:
    """Return a method of what a call returns."""
    kind, _, of_kind = name.partition(".")
    owner = _MADE[kind]() if kind in _MADE else _MADE_BY_RUN[kind](run)
    found: Callable[..., Any] = getattr(owner, of_kind)
    return found


@dataclass(frozen=True)
class Mistake:
    """A call as a program makes it.

    Attributes:
        kind: `missing`, `more`, `unknown`, or the parameter that has a wrong value.
    """

    kind: str
    given: str
    args: tuple[Any, ...]
    named: Mapping[str, Any]


Call = Callable[..., Any]


def mistakes(call: Call) -> Iterator[Mistake]:
    """Yield what may be wrong with a call, by its signature."""
    takes = [one for one in inspect.signature(call).parameters.values() if one.name != "self"]
    named = [one for one in takes if one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}]
    needed = [one for one in named if one.kind is not one.KEYWORD_ONLY and one.default is one.empty]
    proper = tuple(PROPER[one.name] for one in needed)
    if needed:
        yield Mistake("missing", "nothing", (), {})
    if not any(one.kind is one.VAR_POSITIONAL for one in takes):
        yield Mistake("more", "one too many", (*proper, *[None] * 20, 7), {})
        yield Mistake("more", "forty", (*proper, *range(40)), {})
    if not any(one.kind is one.VAR_KEYWORD for one in takes):
        yield Mistake("unknown", "a name there is not", proper, {"no_such_option": 7})
        yield Mistake("unknown", "forty of them", proper, {f"no_such_option_{n}": n for n in range(40)})
    if named and named[0].kind is not inspect.Parameter.KEYWORD_ONLY:
        yield Mistake("twice", named[0].name, (PROPER.get(named[0].name), *proper[1:]), {named[0].name: 7})
    for place, one in enumerate(named):
        for given, make in HOSTILE.items():
            if place < len(needed):
                yield Mistake(one.name, given, (*proper[:place], make(), *proper[place + 1 :]), {})
            else:
                yield Mistake(one.name, given, proper, {one.name: make()})
