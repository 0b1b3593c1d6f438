"""Validation loss and perplexity."""

from __future__ import annotations

import math
from collections.abc import Collection
from os import PathLike
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import exact_text
from otel_ml.diagnostics.measure import Measure
from otel_ml.exceptions import OtelMLError
from otel_ml.never_raises import never_raises

__all__ = ["perplexity_of", "record_validation", "record_validation_part"]

_LARGEST_EXPONENT = 20.0
"""Megatron's: a perplexity of 5e8 says that the model knows nothing, and so does any above."""


@never_raises
def record_validation(loss: Any, *, name: str = "loss", step: int | None = None) -> None:
    """Record a loss that is the whole job's, with its perplexity e^loss: `val/<name>` and `val/<name>_perplexity`.

    Args:
        loss: mean over all validation tokens of all ranks, in nats; a number or 0-d tensor.
        name: of the loss.
        step: the training step; by default the current one.
    """
    name = exact_text(name)
    Measure(f"val/{name}", "1", ("mean",), "Validation loss.").record(loss, step=step)
    perplexity = Measure(f"val/{name}_perplexity", "1", ("mean",), "e to the validation loss, at most e^20.")
    perplexity.record(_perplexity(loss), step=step)


@never_raises
def record_validation_part(loss: Any, *, weight: float, name: str = "loss", step: int | None = None) -> None:
    """Record this rank's part of a validation loss; parts of all ranks pool to `val/<name>`.

    Perplexity is not recorded: a mean of perplexities is larger than the perplexity of the mean. `perplexity_of()` has
    it, once the parts have pooled.

    Args:
        loss: mean over this rank's tokens.
        weight: how many tokens.
        name: of the loss.
        step: the training step; by default the current one.
    """
    Measure(f"val/{exact_text(name)}", "1", ("mean",), "Validation loss.").record(loss, weight=weight, step=step)


def perplexity_of(
    run: otel_ml.Run | str | PathLike[str], name: str = "loss", *, role: str | None = None
) -> tuple[list[int], list[float]]:
    """Return (steps, perplexities) of the pooled `val/<name>` of a run; empty where it has none.

    Args:
        run: as `otel_ml.read()` takes it.
        name: of the loss.
        role: whose loss; by default that of `trainer`, or of the only role that recorded it.

    Raises:
        OtelMLError: the run has no `metrics.jsonl`, or several other roles recorded the loss and `role` is not given.
    """
    found = otel_ml.read(run)
    steps, losses = found.get(_published(found, f"val/{exact_text(name)}", role), ([], []))
    return steps, [_perplexity(loss) for loss in losses]


def _published(found: Collection[str], loss: str, role: str | None) -> str:
    if role is not None and role != "trainer":
        return f"{role}/{loss}"
    # Other roles have their name in front: `evaluator/val/loss`.
    others = [name for name in found if name.endswith(f"/{loss}")]
    if role is not None or loss in found or not others:
        return loss
    if len(others) > 1:
        raise OtelMLError(f"There are {', '.join(others)}, of several roles. Pass role=.", slug="no-metrics")
    return others[0]


def _perplexity(loss: Any) -> Any:
    if hasattr(loss, "detach"):
        return loss.detach().float().clamp(max=_LARGEST_EXPONENT).exp()
    # min() of NaN and 20 depends on their order.
    return math.exp(min(float(loss), _LARGEST_EXPONENT)) if not math.isnan(loss) else math.nan
