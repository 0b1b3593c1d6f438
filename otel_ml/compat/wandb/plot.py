"""`wandb.plot`: the table that a chart is drawn from is kept; W&B's own pages draw it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from otel_ml.compat.tracking.unsupported_names import not_here
from otel_ml.compat.wandb.table import Table

__all__ = [
    "bar",
    "confusion_matrix",
    "histogram",
    "line",
    "line_series",
    "plot_table",
    "pr_curve",
    "roc_curve",
    "scatter",
]


def plot_table(
    vega_spec_name: str, data_table: Table, fields: Any, string_fields: Any = None, split_table: bool = False
) -> Table:
    """Return the table of a chart whose form W&B has."""
    del vega_spec_name, fields, string_fields, split_table
    return data_table


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


def pr_curve(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    interp_size: int = 21,
    **options: Any,
) -> Table:
    """Return the curves as rows (class, precision, recall): the best precision from each recall on."""
    import numpy as np

    del options
    recalls = np.linspace(0, 1, interp_size)[::-1]
    rows = []
    for name, is_class, scores in _classes(y_true, y_probas, labels, classes_to_plot):
        right, wrong, found = _counted(is_class, scores)
        precision = np.maximum.accumulate(np.append(1.0, right / (right + wrong))[::-1])[::-1]
        recall = np.append(0.0, right / max(found, 1))
        places = np.searchsorted(recall, recalls).clip(max=len(recall) - 1)
        rows += [[name, round(float(precision[at]), 3), round(float(r), 3)]
                 for at, r in zip(places, recalls, strict=True)]  # fmt: skip
    return Table(["class", "precision", "recall"], rows)


def roc_curve(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    **options: Any,
) -> Table:
    """Return the curves as rows (class, fpr, tpr), from no prediction taken to all."""
    del options
    rows: list[list[Any]] = []
    for name, is_class, scores in _classes(y_true, y_probas, labels, classes_to_plot):
        right, wrong, found = _counted(is_class, scores)
        others = max(len(scores) - found, 1)
        points = [(0.0, 0.0), *zip(wrong / others, right / max(found, 1), strict=True)]
        rows += [[name, round(float(fpr), 3), round(float(tpr), 3)] for fpr, tpr in points]
    return Table(["class", "fpr", "tpr"], rows)


def _classes(
    y_true: Any, y_probas: Any, labels: Sequence[str] | None, chosen: Sequence[Any] | None
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (name, which samples are of it, their scores) of each class."""
    import numpy as np

    truth, scores = np.asarray(y_true), np.asarray(y_probas, float)
    for column, known in enumerate(np.unique(truth).tolist()):
        if chosen is None or known in chosen:
            name = labels[known] if labels is not None and isinstance(known, int) else known
            yield name, truth == known, scores[:, column]


def _counted(is_class: Any, scores: Any) -> tuple[Any, Any, int]:
    """Return how many are taken rightly and wrongly at each score as the threshold, and how many there are to find."""
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]), 1))
    right = np.cumsum(is_class[order])[last]
    return right, last + 1 - right, int(is_class.sum())


NOT_HERE: Mapping[str, str] = dict.fromkeys(
    ("CustomChart", "Visualize", "visualize"), "Charts are kept as the tables they are drawn from: log the table."
)
"""Names of W&B's module that are not here, and what is used instead."""


def __getattr__(name: str) -> Any:
    """Say what is used instead of a name of W&B's module that is not here."""
    raise not_here(__name__, name, NOT_HERE)
