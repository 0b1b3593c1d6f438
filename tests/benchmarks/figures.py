"""What a measurement found: figures, curves, and the part of the harness they came from."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Curve", "Figure", "Found", "absent", "middle", "quartiles", "ratio"]

Better = Literal["less", "more", "neither"]


@dataclass(frozen=True)
class Figure:
    """One number.

    Attributes:
        unit: `µs`, `points/s`, `1` for a ratio, `%`, …
        low: lower end of its spread, with `high`.
        spread: what that is: quartiles of the repetitions, or a 95 % confidence interval of the value.
        better: which direction is an improvement; `neither` for what only describes.
        absent: why there is no number.
    """

    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    better: Better = "less"
    note: str = ""
    absent: str = ""
    spread: Literal["quartiles", "confidence"] = "quartiles"

    @property
    def confidence(self) -> tuple[float, float] | None:
        """Its 95 % confidence interval, where it has one."""
        if self.spread != "confidence" or self.low is None or self.high is None:
            return None
        return self.low, self.high


@dataclass(frozen=True)
class Curve:
    """Cost against something: lines of points, drawn and printed.

    Attributes:
        lines: label → (x, y) in ascending order of x.
        note: one sentence on what the reader sees.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    note: str = ""


@dataclass(frozen=True)
class Found:
    """All that one part of the harness measured."""

    figures: Mapping[str, Figure] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON's types, numbers with four significant digits."""
        found = {
            "figures": {name: _without_defaults(asdict(one)) for name, one in self.figures.items()},
            "curves": {name: asdict(one) for name, one in self.curves.items()},
        }
        rounded: dict[str, Any] = _rounded(found)
        return rounded

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Found:
        return cls(
            {name: Figure(**one) for name, one in found["figures"].items()},
            {name: Curve(**one) for name, one in found["curves"].items()},
        )


def absent(unit: str, why: str) -> Figure:
    """Return a figure that could not be measured here."""
    return Figure(None, unit, absent=why)


def middle(samples: Sequence[float], unit: str, *, better: Better = "less") -> Figure:
    """Return the median of repetitions, with their quartiles."""
    low, high = quartiles(samples)
    return Figure(statistics.median(samples), unit, low, high, better)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """Return the median of ours/theirs over pairs that were measured one after the other, with its quartiles."""
    return middle([mine / other for mine, other in zip(ours, theirs, strict=True)], "1")


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def _without_defaults(figure: dict[str, Any]) -> dict[str, Any]:
    default = asdict(Figure(figure["value"], figure["unit"]))
    return {key: value for key, value in figure.items() if key in {"value", "unit"} or value != default[key]}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value
