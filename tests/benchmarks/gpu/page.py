"""The generated parts of `docs/gpu.md`: what was measured, on which GPU, and whether the code is still the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.benchmarks.gpu.behind import behind, parts_of
from tests.benchmarks.gpu.targets import FIRST_SEEN, GPU_TARGETS
from tests.benchmarks.recorded import Part, Recorded
from tests.benchmarks.report import figures_table, table, warning
from tests.benchmarks.targets import Target, said, verdict

__all__ = ["SECTIONS", "conditions", "not_measured_since", "table_of_targets"]

NEVER = (
    "**Not measured since commit {commit}**: no GPU has been at hand. The programs have run on a CPU alone, as `make "
    "test` runs them; what they will find on a GPU is not known."
)
CHANGED = (
    "**Not measured since commit {commit}**, of which these figures are: the code behind the rows that say so has "
    "changed, and no GPU has been at hand."
)


def not_measured_since(part: Part | None, target: Target, now: Mapping[str, str]) -> str:
    """Return the commit that a row's figures are of, where the code behind them is another now; else nothing."""
    if part is None:
        return FIRST_SEEN
    parts = parts_of(limit.figure for limit in target.limits)
    return part.commit if any(part.behind.get(name) != now[name] for name in parts) else ""


def conditions(recorded: Recorded, now: Mapping[str, str]) -> str:
    """Return on which GPU, of which code and when it was measured."""
    part = recorded.parts.get("gpu")
    if part is None:
        return NEVER.format(commit=FIRST_SEEN)
    rows = {"commit": part.commit, "measured": part.date, "took": f"{part.seconds:.0f} s", **part.machine}
    is_changed = any(not_measured_since(part, target, now) for target in GPU_TARGETS)
    told = [CHANGED.format(commit=part.commit) if is_changed else "", warning(part), table(("", ""), [*rows.items()])]
    return "\n\n".join(filter(None, told))


def table_of_targets(recorded: Recorded, now: Mapping[str, str]) -> str:
    """Return the targets, one a row, beside what was seen first."""
    head = ("what", "target", f"at {FIRST_SEEN}, on an H200", "measured", "verdict")
    return table(head, [row(target, recorded, now) for target in GPU_TARGETS])


def row(target: Target, recorded: Recorded, now: Mapping[str, str]) -> tuple[str, ...]:
    part, figures = recorded.parts.get("gpu"), recorded.figures
    measured = [said(figures[limit.figure], limit.label) for limit in target.limits if limit.figure in figures]
    beside = [f"{label} {said(figures[name])}" for name, label in target.beside if name in figures]
    since = not_measured_since(part, target, now)
    told = [*([verdict(target, figures)] if part else []), *([f"not measured since commit {since}"] if since else [])]
    return target.what, target.target, target.reference, "; ".join([*measured, *beside]), "; ".join(told)


def everything(recorded: Recorded) -> str:
    """Return every figure."""
    part = recorded.parts.get("gpu")
    return figures_table(part) if part else "None yet."


SECTIONS: Mapping[str, Callable[[], str]] = {
    "gpu-conditions": lambda: conditions(Recorded.read(), behind()),
    "gpu-targets": lambda: table_of_targets(Recorded.read(), behind()),
    "gpu-everything": lambda: everything(Recorded.read()),
}
"""Name of a generated part → what writes it."""
