"""The sample whose tokens the inference engine and the training policy disagree on most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WorstSample", "token_error_figure", "worst_sample"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class WorstSample:
    """The generated tokens of one sample.

    Attributes:
        index: of the sample in the batch.
        error: mean over its unmasked tokens of exp(|difference of the log-probabilities|); 1 where they agree.
        positions: of the generated tokens (n,).
        generation: their log-probabilities in the inference engine (n,).
        training: the same, computed again by the training policy (n,).
        difference: |generation − training|, 0 where the token is masked (n,).
    """

    index: int
    error: float
    positions: Array
    generation: Array
    training: Array
    difference: Array


def worst_sample(data: Mapping[str, Any]) -> WorstSample | None:
    """Return the sample with the largest error, or None where no sample has an unmasked generated token.

    Args:
        data: `generation_logprobs`, `prev_logprobs`, `token_mask` (samples, tokens), `sample_mask`,
            `prompt_lengths`, `full_lengths` (samples,). Samples that are masked do not count.
    """
    # The first token has no prediction.
    generation, training, token_mask = (
        _array(data[name])[:, 1:] for name in ("generation_logprobs", "prev_logprobs", "token_mask")
    )
    mask = token_mask * _array(data["sample_mask"]).reshape(-1, 1)
    # A masked token's log-probability may be anything, also -inf: 0 · inf would be NaN, and win.
    difference = np.where(mask > 0, np.abs(generation - training), 0.0)
    # Less one, as the first column was cut off above.
    starts, ends = _array(data["prompt_lengths"]).ravel() - 1, _array(data["full_lengths"]).ravel() - 1
    tokens = mask.sum(axis=1)
    counts = (tokens > 0) & (starts < ends)
    if not counts.any():
        return None
    errors = np.full(len(mask), -np.inf)
    errors[counts] = (np.exp(difference) * mask).sum(axis=1)[counts] / tokens[counts]
    # A sample whose error is NaN is the worst of all: it is what one looks for.
    index = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
    shown = slice(max(0, int(starts[index])), int(ends[index]))
    return WorstSample(
        index=index,
        error=float(errors[index]),
        positions=np.arange(generation.shape[1])[shown],
        generation=generation[index, shown],
        training=training[index, shown],
        difference=difference[index, shown],
    )


def token_error_figure(data: Mapping[str, Any]) -> Figure | None:
    """Draw the worst sample: both log-probabilities and their difference by token, the two worst tokens marked."""
    from matplotlib.figure import Figure  # not pyplot: that keeps every figure, and asks for a window system

    sample = worst_sample(data)
    if sample is None:
        return None
    # Without nan_to_num() a NaN would be the largest wherever it is.
    absolute = int(np.argmax(np.nan_to_num(sample.difference)))
    with np.errstate(over="ignore", invalid="ignore"):
        relative_errors = np.where(sample.difference > 0, np.abs(1 - np.exp(sample.training - sample.generation)), 0.0)
    relative = int(np.argmax(np.nan_to_num(relative_errors)))
    figure = Figure(layout="tight")
    axes = figure.subplots()
    x = sample.positions
    axes.plot(x, sample.generation, label="logprob (inference engine)")
    axes.plot(x, sample.training, label="logprob (reference policy)")
    axes.plot(x, sample.difference, label=f"abs diff (token_mult_prob_error={sample.error:.2f})")
    for place, errors, style, label in (
        (absolute, sample.difference, "ro", "Max abs error"),
        (relative, relative_errors, "bs", "Max rel error (prob)"),
    ):
        axes.plot(x[place], sample.difference[place], style, label=f"{label}: {errors[place]:.4f}")
    axes.set(xlabel="Token Position (starting from prompt end)", ylabel="Log Probability/Difference")
    axes.legend()
    return figure


def _array(value: Any) -> Array:
    if hasattr(value, "detach"):
        value = value.detach().float().cpu()
    return np.asarray(value, np.float64)
