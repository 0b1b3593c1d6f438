"""How good change points are: series of which it is known whether they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.change_points import change_points

__all__ = ["NOISE", "STEPS", "Told", "series", "table", "told_of_change", "told_of_none"]

Floats = npt.NDArray[np.float64]

STEPS = 1000
"""Of a series in which nothing changes."""

CHANGES_AT, SHORT = 100, 200


def _following(rng: np.random.Generator, steps: int, correlation: float) -> Floats:
    values, value = np.empty(steps), 0.0
    for at, pushed in enumerate(rng.normal(size=steps)):
        value = values[at] = correlation * value + pushed
    return values


NOISE: Mapping[str, tuple[float, Callable[[np.random.Generator, int], Floats]]] = {
    "normal": (1.0, lambda rng, steps: rng.normal(size=steps)),
    "uniform": (0.29, lambda rng, steps: rng.uniform(size=steps)),
    "Student t, 3 degrees": (1.73, lambda rng, steps: rng.standard_t(3, steps)),
    "Student t, 2 degrees": (1.73, lambda rng, steps: rng.standard_t(2, steps)),  # it has no deviation
    "log-normal": (2.16, lambda rng, steps: rng.lognormal(size=steps)),
    "log-normal, shape 1.5": (8.97, lambda rng, steps: rng.lognormal(sigma=1.5, size=steps)),
    "trend, 2 σ a step": (1.0, lambda rng, steps: rng.normal(size=steps) + 2.0 * np.arange(steps)),
    "trend, t with 2 degrees": (1.73, lambda rng, steps: rng.standard_t(2, steps) - 0.2 * np.arange(steps)),
    "correlated, 0.3": (1.05, lambda rng, steps: _following(rng, steps, 0.3)),
    "correlated, 0.5": (1.15, lambda rng, steps: _following(rng, steps, 0.5)),
    "random walk": (0.0, lambda rng, steps: np.cumsum(rng.normal(size=steps))),
    "falling loss": (0.05, lambda rng, steps: 2 + 3 * np.exp(-np.arange(steps) / 300) + 0.05 * rng.normal(size=steps)),
    "steeply falling loss": (
        0.1,
        lambda rng, steps: 2 + 20 / np.sqrt(np.arange(steps) + 1) + 0.1 * rng.normal(size=steps),
    ),
}
"""Name → standard deviation (0: a level of its own it does not have), values."""


@dataclass
class Told:
    """Attributes:
    series, steps: looked at.
    changes: told where there are none.
    untold: series of which it was said that nothing can be told.
    found: of the changes that are so.
    near: of those, within 2 steps.
    latest: steps from the change to the one with which it was certain, in 95 of 100.
    """

    series: int = 0
    steps: int = 0
    changes: int = 0
    untold: int = 0
    found: int = 0
    near: int = 0
    latest: int = 0


def series(kind: str, seed: int, steps: int) -> Floats:
    return NOISE[kind][1](np.random.default_rng(seed), steps)


def told_of_none(kind: str, seeds: range) -> Told:
    """Return what is told of series in which nothing changes."""
    told = Told(len(seeds), len(seeds) * STEPS)
    for seed in seeds:
        found = change_points(range(STEPS), series(kind, seed, STEPS).tolist())
        told.changes += len(found.changes)
        told.untold += not found.is_told
    return told


def told_of_change(kind: str, deviations: float, seeds: range) -> Told:
    """Return what is told of series that rise by so many deviations, at one half of their steps."""
    told, waits = Told(len(seeds)), []
    for seed in seeds:
        values = series(kind, seed, SHORT)
        values[CHANGES_AT:] += deviations * NOISE[kind][0]
        found = change_points(range(SHORT), values.tolist())
        told.untold += not found.is_told
        near = [change for change in found.changes if abs(change.step - CHANGES_AT) <= 8]
        told.found += bool(near)
        told.near += any(abs(change.step - CHANGES_AT) <= 2 for change in near)
        waits += [change.found_at - CHANGES_AT + 1 for change in near[:1]]
    told.latest = int(np.quantile(waits, 0.95)) if waits else 0
    return told


def table(count: int, tell: Callable[[str], None] = lambda _: None) -> str:
    """Return a row for each kind of noise, in Markdown; `tell` is told which one is looked at."""
    lines = [
        "| noise | told in 10,000 steps without a change | of 3 σ found | within 2 steps | known after | not told |",
        "|---|---|---|---|---|---|",
    ]
    for kind, (deviation, _) in NOISE.items():
        tell(kind)
        none, some = told_of_none(kind, range(count)), told_of_change(kind, 3.0, range(count, 2 * count))
        found = f"{some.found / count:.1%} | {some.near / count:.1%} | {some.latest} steps" if deviation else " | | "
        lines.append(f"| {kind} | {none.changes / none.steps * 1e4:.2f} | {found} | {none.untold / count:.1%} |")
    return "\n".join(lines)
