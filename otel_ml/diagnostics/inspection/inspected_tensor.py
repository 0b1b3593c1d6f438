"""One tensor of one layer, and what was seen of it in this step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from otel_ml.diagnostics.inspection.blocks import BlockRange
from otel_ml.diagnostics.inspection.config import Rule
from otel_ml.diagnostics.inspection.fp8 import (
    RECIPES,
    DelayedScales,
    Fp8State,
    format_for,
    fp8_job_for,
    fp8_state_of,
)
from otel_ml.diagnostics.inspection.host_copy import copied
from otel_ml.diagnostics.inspection.nvfp4 import NVFP4, NVFP4_JOB, nvfp4_state_of
from otel_ml.diagnostics.inspection.statistics import STATISTICS, TensorState, Value, empty_values, state_of
from otel_ml.diagnostics.tensor_statistics.kernel_jobs import SUMMARY, Job
from otel_ml.never_raises import never_raises

__all__ = ["InspectedTensor", "Own"]

Own = Mapping[str, tuple[Callable[[Any], Any], str]]
"""A user's statistics: name → (function of a tensor, reduction)."""


class InspectedTensor:
    """Sums what micro-batches show of one tensor, and gives its statistics once a step.

    Attributes:
        layer: its name.
        module: it.
        rule: what is shown, and when.
        jobs: what kernels find, where there are any.
        jobs_by_prefix: those of statistics whose names begin so.
        is_plain: whether a summary is shown.
        has_rest: whether more is shown than kernels find.
        is_sighted: whether kernels have looked at a tensor since the last time.
        is_lost: whether one of those was changed before they did.
        may_wait: whether it was never changed while it waited for kernels.
    """

    def __init__(self, layer: str, module: Any, rule: Rule, own: Own) -> None:
        self.layer = layer
        self.module = module
        self.rule = rule
        self._own = {name: own[name] for name in rule.stats if name in own}
        self._blocks = {stat: found for stat in rule.stats if (found := BlockRange.named(stat)) and stat not in own}
        others = (stat for stat in rule.stats if stat not in STATISTICS and stat not in own)
        # An empty prefix stands for FP8 without a recipe, `mse`, which is current scaling.
        self._prefixes = {_prefix(stat) for stat in others if stat not in self._blocks}
        kind = format_for(rule.format, rule.tensor)
        self.jobs_by_prefix: dict[str, Job] = {
            prefix: job for prefix in self._prefixes if (job := _job_for(prefix, kind)) is not None
        }
        self.is_plain: bool = any(stat in STATISTICS for stat in rule.stats)
        self.jobs: tuple[Job, ...] = self._jobs()
        self.has_rest: bool = not rule.stats or bool(
            self._blocks or self._own or self._prefixes - self.jobs_by_prefix.keys()
        )
        self.is_sighted: bool = False
        self.is_lost: bool = False
        self.may_wait = True
        self._delayed = DelayedScales()
        self._plain: TensorState | None = None
        self._ranges: dict[str, Any] = {}
        self._fp8: dict[str, Fp8State] = {}
        self._users: list[tuple[str, Value]] = []
        self._amax: Any = None
        self._is_empty = False
        self._whole: list[tuple[Any, Any]] = []

    @never_raises
    def add(self, tensor: Any) -> None:
        """See a tensor: that of one micro-batch."""
        import torch

        if not tensor.numel():
            self._is_empty = True
            return
        with torch.no_grad():
            if self.is_plain:
                seen = state_of(tensor)
                if seen is not None:
                    self._plain = seen if self._plain is None else self._plain.merged(seen)
            for prefix in self.jobs_by_prefix:
                self._add_fp8(prefix, tensor)
        self.add_rest(tensor)

    @never_raises
    def add_rest(self, tensor: Any) -> None:
        """See of a tensor what kernels do not find: those of `jobs` have looked at it."""
        import torch

        with torch.no_grad():
            if not self.rule.stats:
                self._whole.append(copied(tensor))
            for name, blocks in self._blocks.items():
                self._add_range(name, blocks.of(tensor, self.rule.tensor))
            for prefix in self._prefixes - self.jobs_by_prefix.keys():
                self._add_fp8(prefix, tensor)
            for name, (function, reduce) in self._own.items():
                found = function(tensor.detach())
                self._users.append((name, Value(found, found, None, (reduce,))))

    @property
    def is_looked_at_by_operations(self) -> bool:
        """Whether kernels are too late in this step: what they find does not merge with what others have found."""
        return self._plain is not None or any(prefix in self._fp8 for prefix in self.jobs_by_prefix)

    def take(self, *, copies: int, parts: int) -> Iterator[tuple[str, Value]]:
        """Yield (name, statistic) of what was seen since the last time; nothing where nothing was.

        Args:
            copies: ranks that hold the same tensor.
            parts: different tensors that all ranks together hold.
        """
        if self._plain is not None:
            yield from self._plain.values(self.rule.stats, copies=copies, parts=parts)
        elif self._is_empty and not self.is_sighted:
            yield from empty_values(self.rule.stats)
        for name, found in self._ranges.items():
            yield name, Value(found, found, None, ("max",))
        for prefix, state in self._fp8.items():
            yield from state.values(prefix, self.rule.stats)
        yield from self._users
        # Behind the values: this step's maximum is for the scales of later ones.
        if self._amax is not None:
            self._delayed.add(self._amax)
        self._forget_values()

    @property
    def is_whole(self) -> bool:
        """Whether kernels have looked at all that they were to look at since the last time."""
        return self.is_sighted and not self.is_lost

    @property
    def first(self) -> tuple[str, tuple[str, ...]]:
        """The name of a statistic that kernels find, and how ranks reduce it."""
        import torch

        # Numbers that stand for any: only names and reductions are taken from what is made of them.
        zero = torch.zeros((), device="cpu")
        plain = TensorState(1, *(zero,) * 7).values(self.rule.stats, copies=1, parts=1)
        rounded = (Fp8State(1, *(zero,) * 5).values(prefix, self.rule.stats) for prefix in self.jobs_by_prefix)
        name, value = next(chain(plain, *rounded))
        return name, value.reduce

    @property
    def is_of_kernels(self) -> bool:
        """Whether kernels find all that is shown of what was seen since the last time."""
        return self.is_sighted and not self.has_rest

    @property
    def is_seen(self) -> bool:
        """Whether anything was seen since the last time."""
        found = (self._plain, self._ranges, self._fp8, self._users, self._whole)
        return self._is_empty or self.is_sighted or any(found)

    def forget(self) -> None:
        """Forget what was seen since the last time."""
        self._forget_values()
        self._whole = []

    def _forget_values(self) -> None:
        self._plain, self._fp8, self._users, self._amax = None, {}, [], None
        self._is_empty, self._ranges = False, {}
        self.is_sighted = self.is_lost = False

    def take_whole(self) -> list[tuple[Any, Any]]:
        """Return the copies of whole tensors since the last time, one a micro-batch."""
        taken, self._whole = self._whole, []
        return taken

    def _jobs(self) -> tuple[Job, ...]:
        rounding = tuple(self.jobs_by_prefix.values())
        # Some kernels round by a scale that they take from the extremes which the summary finds.
        has_summary = self.is_plain or any(job.needs_extremes for job in rounding)
        return (SUMMARY, *dict.fromkeys(rounding)) if has_summary else tuple(dict.fromkeys(rounding))

    def _add_range(self, name: str, found: Any) -> None:
        before = self._ranges.get(name)
        self._ranges[name] = found if before is None else before.maximum(found)

    def _add_fp8(self, prefix: str, tensor: Any) -> None:
        recipe = prefix.removesuffix("_") or "fp8_current_scaling"
        kind = format_for(self.rule.format, self.rule.tensor)
        if recipe == NVFP4:
            seen = nvfp4_state_of(tensor)
        else:
            seen = fp8_state_of(tensor, format=kind, recipe=recipe, delayed=self._delayed)
        if seen is None:
            return
        before = self._fp8.get(prefix)
        self._fp8[prefix] = seen if before is None else before.merged(seen)
        # Kept beside, as the history has one maximum a step, of all its micro-batches.
        if recipe == "fp8_delayed_scaling":
            amax = tensor.detach().float().abs().max()
            self._amax = amax if self._amax is None else self._amax.maximum(amax)


def _job_for(prefix: str, kind: str) -> Job | None:
    recipe = prefix.removesuffix("_") or "fp8_current_scaling"
    return NVFP4_JOB if recipe == NVFP4 else fp8_job_for(recipe, kind)


def _prefix(stat: str) -> str:
    return next((f"{recipe}_" for recipe in (*RECIPES, NVFP4) if stat.startswith(f"{recipe}_")), "")
