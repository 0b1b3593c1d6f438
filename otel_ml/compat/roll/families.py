"""The families of RL metrics, from a batch: lengths, scores, advantages, and how samples of one prompt differ.

A batch has `batch`, a mapping of tensors or arrays of (samples, tokens) or (samples,), on the CPU, and `meta_info`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from otel_ml.compat.tracking.as_array import as_array

__all__ = ["group_metrics", "token_metrics", "validation_metrics", "value_metrics"]

Array = NDArray[Any]
Metrics = dict[str, float]

CORRECT, INCORRECT = 1, 0


def token_metrics(batch: Any, prefix: str) -> Metrics:
    """Return lengths of prompts, responses and both, and those of right and wrong responses."""
    data = batch.batch
    # ROLL's masks are over all tokens; the first is predicted by nobody.
    response = as_array(data["response_mask"])[:, 1:].astype(bool).sum(-1).astype(float)
    prompt = as_array(data["prompt_mask"]).astype(bool).sum(-1).astype(float)
    longest = as_array(data["responses"]).shape[-1]
    found = _extremes("prompt_length", prompt)
    found |= _extremes("response_length", response, diff=True)
    found |= _extremes("total_length", prompt + response, diff=True)
    # A response as long as the batch's responses can be was cut off; one that ended there by itself counts,
    # too.
    is_clipped = response == longest
    found["total_response_length/clip"] = float(is_clipped.sum())
    for name, mask in _outcomes(data):
        found[f"{name}_response_length/clip"] = float(is_clipped[mask].sum())
        # As in ROLL, lengths of right and wrong responses are those of responses that were not cut off.
        found |= _extremes(f"{name}_response_length", response[mask & ~is_clipped])
    return _prefixed(prefix, found)


def value_metrics(batch: Any, prefix: str) -> Metrics:
    """Return scores, rewards, advantages, returns, values, entropy and log-probabilities: those the batch has."""
    data = batch.batch
    scores = as_array(data["scores"])
    is_used = as_array(data["final_response_mask"] if "final_response_mask" in data else data["response_mask"]).astype(
        bool
    )
    rewards = as_array(data["token_level_rewards"])
    found = _extremes("score", scores)
    found["correct/mean"] = found["score_distribution/correct_samples_ratio"] = float((scores == CORRECT).mean())
    found["score_distribution/incorrect_samples_ratio"] = float((scores == INCORRECT).mean())
    # ROLL's constants: the scores that count as right and wrong, whatever there is in the batch.
    found["score_distribution/max_value"], found["score_distribution/min_value"] = CORRECT, INCORRECT
    found |= _extremes("rewards", rewards.sum(-1)) | _extremes("token_level_rewards_mean", rewards.mean(-1))
    for key in ("advantages", "raw_advantages"):
        if key in data:
            tokens = _aligned(as_array(data[key]), is_used)
            found |= _extremes(key, tokens[0][tokens[1]])
            for name, mask in _outcomes(data):
                chosen = tokens[0][tokens[1] & mask[:, None]]
                found |= _extremes(f"{name}_response/{key}", chosen)
                # ddof=1, as torch.std() has it in ROLL; of one value that is NaN.
                if chosen.size > 1:
                    found[f"{name}_response/{key}/std"] = float(chosen.std(ddof=1))
    for key in ("returns", "values"):
        if key in data:
            tokens = _aligned(as_array(data[key]), is_used)
            found |= _extremes(key, tokens[0][tokens[1]])
    for key in ("ref_log_probs", "old_log_probs"):
        if key in data:
            tokens = _aligned(as_array(data[key]), is_used)
            found |= _mean(key.removesuffix("s"), tokens[0][tokens[1]])
    entropy = (getattr(batch, "meta_info", None) or {}).get("agg_entropy")
    if entropy is not None:
        found["entropy/mean"] = float(entropy)
    return _prefixed(prefix, found)


def group_metrics(batch: Any, n_sample: int, prefix: str) -> Metrics:
    """Return how the `n_sample` samples of one prompt, which follow each other, differ; nothing for one sample."""
    if n_sample <= 1:
        return {}
    data = batch.batch
    scores = as_array(data["scores"]).reshape(-1, n_sample)
    mask = as_array(data["response_mask"])[:, 1:].astype(bool)
    lengths = mask.sum(-1).reshape(-1, n_sample).astype(float)
    found = _extremes("response_length_diff", np.ptp(lengths, axis=1))
    is_right, is_wrong = scores == CORRECT, scores == INCORRECT
    # Of each prompt, the share of its samples that are right.
    ratios = is_right.mean(1)
    found["correct_ratio/mean"] = float(ratios.mean())
    if len(ratios) > 1:
        found["correct_ratio/std"] = float(ratios.std(ddof=1))
    all_right, all_wrong = float(is_right.all(1).mean()), float(is_wrong.all(1).mean())
    found["all_correct_groups_ratio"], found["all_incorrect_groups_ratio"] = all_right, all_wrong
    # What is left has right and wrong samples, or scores that are neither 1 nor 0.
    found["mixed_groups_ratio"] = 1 - all_right - all_wrong
    if "advantages" in data:
        tokens, used = _aligned(as_array(data["advantages"]), mask)
        # where() and not a product: what is masked may be NaN. A sample without a token that is used counts as 0.
        totals = np.where(used, tokens, 0.0).sum(-1) / np.maximum(used.sum(-1), 1)
        of_sample = totals.reshape(-1, n_sample)
        found |= _extremes("advantage_diff", np.ptp(of_sample, axis=1))
        pairs = zip(of_sample, is_right, is_wrong, strict=True)
        # Of each prompt that has both right and wrong samples, the distance of their mean advantages.
        distances = np.array([a[r].mean() - a[w].mean() for a, r, w in pairs if r.any() and w.any()])
        found |= _mean("correct_vs_incorrect_advantage_diff", distances)
        if distances.size > 1:
            found["correct_vs_incorrect_advantage_diff/std"] = float(distances.std(ddof=1))
    return _prefixed(prefix, found)


def validation_metrics(scores: Any, tags: Any = None) -> Metrics:
    """Return mean, max and min of validation scores, of all and of each environment tag."""
    found_scores = as_array(scores)
    found = _extremes("score", found_scores)
    if tags is not None:
        names = np.asarray([str(tag) for tag in tags])
        for name in np.unique(names):
            found |= _extremes(f"{name}/score", found_scores[names == name])
    return _prefixed("val", found)


def _outcomes(data: Mapping[str, Any]) -> list[tuple[str, Array]]:
    scores = as_array(data["scores"])
    return [("right", scores == CORRECT), ("error", scores == INCORRECT)]


def _extremes(name: str, values: Array, *, diff: bool = False) -> Metrics:
    """Return mean, max and min; nothing for no values: absent is not 0."""
    if not values.size:
        return {}
    found = {f"{name}/mean": float(values.mean()), f"{name}/max": float(values.max())}
    found[f"{name}/min"] = float(values.min())
    return found | ({f"{name}/diff": float(np.ptp(values))} if diff else {})


def _mean(name: str, values: Array) -> Metrics:
    return {f"{name}/mean": float(values.mean())} if values.size else {}


def _aligned(tokens: Array, mask: Array) -> tuple[Array, Array]:
    """Return both with the same number of tokens: a mask over all of them begins one before the first prediction."""
    return tokens, mask[:, mask.shape[1] - tokens.shape[1] :] if mask.shape[1] > tokens.shape[1] else mask


def _prefixed(prefix: str, found: Metrics) -> Metrics:
    return {f"{prefix}/{name}" if prefix else name: value for name, value in found.items()}
