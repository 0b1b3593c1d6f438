"""Precision and recall at thresholds, as TensorBoard computes them."""

from __future__ import annotations

from typing import Any

__all__ = ["precision_and_recall"]

_NOTHING = 1e-7
"""What a ratio of nothing is divided by, as in TensorBoard."""


def precision_and_recall(
    labels: Any, predictions: Any, num_thresholds: int, weights: Any
) -> tuple[list[Any], list[Any]]:
    """Return both at each threshold from 0 to 1; of tensors on a device it waits for the values.

    As there, a label may be a share, such as 0.9 of a smoothed one, and a prediction that is outside of 0 to 1 does not
    count.

    Raises:
        TypeError: labels or predictions are missing.
    """
    import numpy as np

    from otel_ml.compat.tracking.as_array import as_array

    if labels is None or predictions is None:
        raise TypeError("labels and predictions are arrays")
    truth, scores = as_array(labels).astype(float).ravel(), as_array(predictions).astype(float).ravel()
    weight = np.ones(len(scores)) if weights is None else as_array(weights).astype(float).ravel()
    places = np.floor(scores * (num_thresholds - 1))
    # np.histogram() leaves out what is outside of its range, with which TensorBoard counts.
    is_inside = (places >= 0) & (places < num_thresholds)
    positive = truth * weight
    to_find = max(positive[is_inside].sum(), _NOTHING)
    precision, recall = [], []
    for number in range(num_thresholds):
        taken = is_inside & (places >= number)
        right = positive[taken].sum()
        precision.append(right / max(weight[taken].sum(), _NOTHING))
        recall.append(right / to_find)
    return precision, recall
