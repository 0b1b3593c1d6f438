"""`wandb.plot`: the table that a chart is drawn from is kept; W&B's own pages draw it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_ml.compat.wandb.table import Table

__all__ = ["bar", "confusion_matrix", "histogram", "line", "line_series", "pr_curve", "roc_curve", "scatter"]


def line(table: Table, x: str, y: str, stroke: str | None = None, title: str = "", **options: Any) -> Table:
    """Return the table of a line."""
    del x, y, stroke, title, options
    return table


def scatter(table: Table, x: str, y: str, title: str = "", **options: Any) -> Table:
    """Return the table of points."""
    del x, y, title, options
    return table


def bar(table: Table, label: str, value: str, title: str = "", **options: Any) -> Table:
    """Return the table of bars."""
    del label, value, title, options
    return table


def histogram(table: Table, value: str, title: str = "", **options: Any) -> Table:
    """Return the table of a distribution."""
    del value, title, options
    return table


def line_series(
    xs: Sequence[Any], ys: Sequence[Sequence[Any]], keys: Sequence[str] | None = None, title: str = "", **options: Any
) -> Table:
    """Return the lines as rows (step, lineKey, lineVal)."""
    del title, options
    names = list(keys) if keys else [f"key_{number}" for number in range(len(ys))]
    several = xs if len(xs) and isinstance(xs[0], (list, tuple)) else [xs] * len(ys)
    points = ((x, name, y) for name, line_x, line_y in zip(names, several, ys, strict=False)
              for x, y in zip(line_x, line_y, strict=False))  # fmt: skip
    return Table(["step", "lineKey", "lineVal"], points)


def confusion_matrix(
    probs: Any = None, y_true: Any = None, preds: Any = None, class_names: Sequence[str] | None = None, **options: Any
) -> Table:
    """Return the counts as rows (Actual, Predicted, nPredictions)."""
    import numpy as np

    del options
    actual = np.asarray(y_true, int)
    predicted = np.asarray(preds, int) if preds is not None else np.asarray(probs).argmax(axis=1)
    classes = max(int(actual.max(initial=-1)), int(predicted.max(initial=-1))) + 1
    names = list(class_names) if class_names else [f"Class_{number + 1}" for number in range(classes)]
    counts = np.zeros((len(names), len(names)), int)
    np.add.at(counts, (actual, predicted), 1)
    rows = [[names[a], names[p], int(counts[a, p])] for a in range(len(names)) for p in range(len(names))]
    return Table(["Actual", "Predicted", "nPredictions"], rows)


def pr_curve(y_true: Any = None, y_probas: Any = None, labels: Any = None, **options: Any) -> Table:
    """Return what the curve is computed from: each label with its probabilities."""
    del options
    return _scored(y_true, y_probas, labels)


def roc_curve(y_true: Any = None, y_probas: Any = None, labels: Any = None, **options: Any) -> Table:
    """Return what the curve is computed from: each label with its probabilities."""
    del options
    return _scored(y_true, y_probas, labels)


def _scored(y_true: Any, y_probas: Any, labels: Any) -> Table:
    rows = [[label, *(scores if hasattr(scores, "__len__") else [scores])]
            for label, scores in zip(y_true, y_probas, strict=False)]  # fmt: skip
    width = len(rows[0]) - 1 if rows else 0
    names = list(labels) if labels is not None else [f"class_{number}" for number in range(width)]
    return Table(["label", *names[:width]], rows)
