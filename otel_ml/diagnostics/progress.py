"""How far the job is: what it consumed, how much remains, how long an epoch takes, and loss over samples and tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import otel_ml
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.diagnostics.positive_number import is_above_zero
from otel_ml.exceptions import ConfigError
from otel_ml.never_raises import never_raises

__all__ = ["MEASURES", "Progress"]

_SAME = ("max",)  # every rank counts the same; of one that began later, the larger number is the job's

MEASURES = Measures(
    Measure("progress/samples", "{sample}", _SAME, "Samples consumed by the job since its first start.", "last"),
    Measure("progress/tokens", "{token}", _SAME, "Tokens consumed by the job since its first start.", "last"),
    Measure("progress/fraction", "1", ("min",), "Part of the job that is done.", "last"),
    Measure("progress/remaining_steps", "{step}", _SAME, "Steps still to do.", "last"),
    Measure("progress/remaining_samples", "{sample}", _SAME, "Samples still to consume.", "last"),
    Measure("progress/remaining_tokens", "{token}", _SAME, "Tokens still to consume.", "last"),
    Measure("time/remaining", "s", _SAME, "Estimated time to the end, at the pace of this start.", "last"),
    Measure("time/epoch", "s", _SAME, "Duration of an epoch on the slowest rank."),
)
"""What is recorded, by name."""


class Progress:
    """Counts what the whole job consumed, and knows what remains.

    Counts are those of the job, not of the rank, so that every rank has the same and their values meet on the axes
    `samples` and `tokens`.

    Args:
        steps: of the whole job, if known.
        samples: of the whole job, if known.
        tokens: of the whole job, if known.
        state: what `state()` returned before a restart.
        clock: seconds; for tests.

    Raises:
        ConfigError: a total is not above 0, or `state` is not one.

    Examples:
        ```python
        progress = Progress(steps=10_000, state=checkpoint.get("progress"))
        for batch in otel_ml.steps(loader):
            loss = train(batch)
            progress.step(samples=global_batch, tokens=global_batch * sequence)
            progress.log({"loss": loss})  # over steps, samples and tokens
        ```
    """

    def __init__(
        self,
        *,
        steps: int | None = None,
        samples: int | None = None,
        tokens: int | None = None,
        state: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        totals = {"steps": steps, "samples": samples, "tokens": tokens}
        problems = [
            f"Progress: {name}: expected a total above 0, got {total!r}. Leave it out if it is not known."
            for name, total in totals.items()
            if total is not None and not is_above_zero(total)
        ]
        known = dict.fromkeys(totals, 0) if state is None else dict(state) if isinstance(state, Mapping) else {}
        if set(known) != set(totals):
            problems.append(f"Progress: state: expected what state() returned, got {state!r:.80}.")
        if problems:
            raise ConfigError(*problems)
        self._known = [
            (name, f"progress/remaining_{name}", total) for name, total in totals.items() if total is not None
        ]
        self._done = known
        # What earlier starts have done is left out of this start's pace.
        self._at_start = dict(known)
        self._clock = clock
        self._began = clock()

    def state(self) -> Mapping[str, int]:
        """Return what a checkpoint keeps, and a restart passes as `state=`."""
        return dict(self._done)

    @never_raises
    def step(self, *, samples: int = 0, tokens: int = 0) -> None:
        """Count a step in which all ranks together consumed so many samples and tokens, and record what remains."""
        done = self._done
        done["steps"] += 1
        done["samples"] += samples
        done["tokens"] += tokens
        values: dict[str, float] = {}
        for name, metric in (("samples", "progress/samples"), ("tokens", "progress/tokens")):
            # What is never told stays absent: not every job counts tokens.
            if done[name]:
                values[metric] = done[name]
        for name, metric, total in self._known:
            # A job may do more than it had planned.
            values[metric] = max(total - done[name], 0)
        if self._known:
            self._add_time(values)
        MEASURES.record(values)

    def _add_time(self, values: dict[str, float]) -> None:
        """Add how far the job is, and what it still needs, by the first total that is known."""
        name, _, total = self._known[0]
        done_now = self._done[name] - self._at_start[name]
        values["progress/fraction"] = min(self._done[name] / total, 1.0)
        # By what this start has done: a restart on other machines has another pace.
        if done_now > 0:
            seconds_each = (self._clock() - self._began) / done_now
            values["time/remaining"] = max(total - self._done[name], 0) * seconds_each

    def log(self, values: Mapping[str, Any], **options: Any) -> None:
        """Record values as `otel_ml.log()` does, and over consumed samples and tokens on axes of those names.

        Args:
            values: name → value.
            **options: `reduce=`, `weight=`, `prefix=`, … of `otel_ml.log()`.
        """
        otel_ml.log(values, **options)
        for axis in ("samples", "tokens"):
            if self._done[axis]:
                otel_ml.log(values, **{**options, "step": self._done[axis], "axis": axis})

    @contextmanager
    def epoch(self, number: int) -> Iterator[None]:
        """Measure epoch `number`; `time/epoch` stands on the axis `epoch`, where it is 0 for the first."""
        began = self._clock()
        yield
        MEASURES["time/epoch"].record(self._clock() - began, step=number, axis="epoch")
