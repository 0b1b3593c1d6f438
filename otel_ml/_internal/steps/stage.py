"""Stages of a program: what is recorded while it evaluates stays apart from what is recorded while it trains."""

from __future__ import annotations

import re
from contextlib import suppress
from contextvars import Token

from otel_ml._internal.safe_repr import exact_text
from otel_ml._internal.series.definition import OWN_COUNTS, Definition, Series
from otel_ml._internal.series.pending import StepPartials
from otel_ml._internal.steps.axes import current_step, scope_steps
from otel_ml._internal.steps.axis import Step
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["Outside", "Stage", "forget_stages", "parts_of"]

_SAYS_ITS_STAGE = re.compile(
    r"(eval|evaluation|val|valid|validation|test|predict|prediction)([/_.\- ]|$)", re.IGNORECASE
)
"""Names of people who keep stages apart themselves."""


class Stage:
    """`with Stage("eval"):` what this context records in it without naming an axis or a prefix is `eval/<name>`.

    It is recorded at the step that is current, which stays as it is. Tasks started inside inherit it, plain threads do
    not, and the innermost stage counts.

    Attributes:
        name: before the names; None where nothing is recorded, as in a check that the program works at all.
        step: where what is recorded goes if no step is current.
    """

    __slots__ = ("_seen", "_steps", "_token", "name", "step")

    def __init__(self, name: str | None, step: int | None = None) -> None:
        self.name: str | None = None if name is None else exact_text(name)
        self.step: int | None = step
        self._seen: Step | None = None

    def __enter__(self) -> Stage:
        if self.step is not None and current_step().index is None:
            scope_steps().at(DEFAULT_AXIS, self.step)
        self._steps = scope_steps()
        self._token: Token[Stage | None] = self._steps.stage.set(self)
        self._steps.count_asking(1)
        return self

    def __exit__(self, *_: object) -> None:
        # Left in another context than entered: that one is gone.
        with suppress(ValueError):
            self._steps.stage.reset(self._token)
        self._steps.count_asking(-1)

    def seen(self, step: Step) -> Step:
        """Return `step` as it is seen from here: what is recorded in it is of the stage."""
        seen = self._seen
        # The same object as long as the step is the same: what is recorded at it is gathered on the object.
        if seen is None or seen.base is not step:
            seen = Step(step.axis, step.index, step.generation)
            seen.base, seen.stage, seen.ended = step, self, False
            self._seen = seen
        return seen

    def named(self, name: str) -> str:
        """Return a name as it is recorded here.

        Examples:
            >>> Stage("eval").named("reward"), Stage("eval").named("val/reward"), Stage("eval").named("train/reward")
            ('eval/reward', 'val/reward', 'eval/train/reward')
        """
        if not self.name or _SAYS_ITS_STAGE.match(name) or name.startswith(f"{self.name}/"):
            return name
        return f"{self.name}/{name}"


class Outside:
    """`with Outside():` in no stage: what a framework has reduced has the name that it gave."""

    __slots__ = ("_token", "_variable")

    def __enter__(self) -> None:
        self._variable = scope_steps().stage
        self._token: Token[Stage | None] = self._variable.set(None)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


_SERIES: dict[tuple[str, Series], Series] = {}
"""What a series is called in a stage."""


def parts_of(pending: StepPartials, stage: Stage) -> list[StepPartials]:
    """Return what was gathered in a stage as it travels: what gets another name there, and what keeps its own.

    Apart: both may hold the same name, and a series is in a ScopeMetrics once.
    """
    names = {series: _in_stage(series, stage) for series in (*pending.moments, *pending.order)}
    renamed = {series: other for series, other in names.items() if other is not series}
    kept = {series: series for series, other in names.items() if other is series}
    return [pending.part(chosen) for chosen in (renamed, kept) if chosen]


def _in_stage(series: Series, stage: Stage) -> Series:
    name = stage.named(series.definition.name)
    if series in OWN_COUNTS or name == series.definition.name:
        return series
    staged = _SERIES.get((name, series))
    if staged is None:
        known = series.definition
        definition = Definition(name, known.reduction, known.unit, known.description)
        staged = _SERIES[name, series] = Series(definition, series.attributes)
    # The records were folded under the series' own name: what was kept of them has to travel under this one, too.
    if series.weighted and not staged.weighted:
        staged.use_weights()
    staged.settle()
    return staged


def forget_stages() -> None:
    """Name series anew."""
    _SERIES.clear()
