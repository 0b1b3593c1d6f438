"""`wandb.plot`: the table that a chart is drawn from is kept; W&B's own pages draw it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any, ParamSpec

from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.original_names import not_here
from otel_ml.compat.wandb.errors import Error
from otel_ml.compat.wandb.table import Table

__all__ = [
    "CustomChart",
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


class CustomChart(Table):
    """A table, and how W&B draws it. Its form and title are not kept.

    Attributes:
        spec: `spec_name`, `fields` and `string_fields`, such as `title`, as they were given.
    """

    def __init__(self, table: Table, spec: SimpleNamespace) -> None:
        super().__init__(table.columns)
        self.data: list[list[Any]] = table.data
        self.spec = spec

    @property
    def table(self) -> Table:
        """What it is drawn from."""
        return self


P = ParamSpec("P")


def _said(chart: Callable[P, CustomChart]) -> Callable[P, CustomChart]:
    """Return a function that says what is wrong with its arguments, and returns a chart of nothing; W&B raises."""

    @wraps(chart)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> CustomChart:
        try:
            return chart(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 (training goes on, whatever it was given)
            not_kept(f"wandb.plot.{chart.__name__}()", f"{type(error).__name__}: {error}. The chart is empty.")
            return CustomChart(Table(), SimpleNamespace(spec_name="", fields={}, string_fields={}, split_table=False))

    return drawn


@_said
def plot_table(
    vega_spec_name: str, data_table: Table, fields: Any, string_fields: Any = None, split_table: bool = False
) -> CustomChart:
    """Return a chart whose form W&B has."""
    return _drawn(vega_spec_name, data_table, fields, string_fields, split_table)


def _drawn(vega_spec_name: str, data_table: Table, fields: Any, string_fields: Any, split_table: bool) -> CustomChart:
    if not isinstance(data_table, Table):
        raise Error(f"a chart is drawn from a wandb.Table, not from a {type(data_table).__name__}")
    spec = SimpleNamespace(
        spec_name=vega_spec_name, fields=fields, string_fields=string_fields or {}, split_table=split_table
    )
    return CustomChart(data_table, spec)


@_said
def line(table: Table, x: str, y: str, stroke: str | None = None, title: str = "", **options: Any) -> CustomChart:
    """Return a line."""
    fields = {"x": x, "y": y} | ({"stroke": stroke} if stroke else {})
    return _chart("line", table, fields, title, options)


@_said
def scatter(table: Table, x: str, y: str, title: str = "", **options: Any) -> CustomChart:
    """Return points."""
    return _chart("scatter", table, {"x": x, "y": y}, title, options)


@_said
def bar(table: Table, label: str, value: str, title: str = "", **options: Any) -> CustomChart:
    """Return bars."""
    return _chart("bar", table, {"label": label, "value": value}, title, options)


@_said
def histogram(table: Table, value: str, title: str = "", **options: Any) -> CustomChart:
    """Return a distribution."""
    return _chart("histogram", table, {"value": value}, title, options)


@_said
def line_series(
    xs: Sequence[Any],
    ys: Sequence[Sequence[Any]],
    keys: Sequence[str] | None = None,
    title: str = "",
    xname: str = "x",
    **options: Any,
) -> CustomChart:
    """Return the lines as rows (step, lineKey, lineVal)."""
    # Not by its truth, of which an array of names has none.
    names = list(keys) if keys is not None and len(keys) else [f"line_{number}" for number in range(len(ys))]
    # One list of x-values is that of every line.
    several = xs if len(xs) and _are_several(xs[0]) else [xs] * len(ys)
    if len(several) != len(ys) or len(names) != len(ys):
        wrong = f"ValueError: there are {len(ys)} y-series, {len(several)} x-series and {len(names)} keys"
        not_kept("wandb.plot.line_series()", f"{wrong}. Those that have all three are kept.")
    points = ((x, name, y) for name, line_x, line_y in zip(names, several, ys, strict=False)
              for x, y in zip(line_x, line_y, strict=False))  # fmt: skip
    fields = {"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"}
    return _chart("lineseries", Table(list(fields), points), fields, title, {"xname": xname, **options})


def _are_several(first: Any) -> bool:
    """Whether the first of x-values is a line of them."""
    dimensions = getattr(first, "ndim", None)
    return isinstance(first, (list, tuple, range)) if dimensions is None else dimensions > 0


@_said
def confusion_matrix(
    probs: Any = None,
    y_true: Any = None,
    preds: Any = None,
    class_names: Sequence[str] | None = None,
    title: str = "Confusion Matrix Curve",
    **options: Any,
) -> CustomChart:
    """Return the counts as rows (Actual, Predicted, nPredictions); without names, of the classes that there are."""
    import numpy as np

    if probs is not None and preds is not None:
        raise ValueError("expected probs or preds, not both")
    actual, predicted = np.asarray(y_true), np.asarray(preds if probs is None else np.asarray(probs).argmax(axis=1))
    if not actual.ndim or not predicted.ndim:
        raise TypeError("expected y_true, and preds or probs, one for each sample")
    if len(actual) != len(predicted):
        raise ValueError(f"there are {len(predicted)} predictions, and {len(actual)} true classes")
    names = [] if class_names is None else list(class_names)
    if names and max((len(np.unique(classes)) for classes in (actual, predicted)), default=0) > len(names):
        raise ValueError(f"there are more classes than the {len(names)} names")
    # With names a class is the place of its name, as a number of any type: True is 1, and 1.0 too. Counting at these
    # numbers themselves, numpy would take -1 for the last class, and a truth value for a choice of rows.
    known = list(range(len(names))) if names else np.unique(np.concatenate([actual, predicted])).tolist()
    places = {one: place for place, one in enumerate(known)}
    names = names or [f"Class_{number + 1}" for number in range(len(known))]
    counts = np.zeros((len(names), len(names)), int)
    np.add.at(counts, ([places[a] for a in actual.tolist()], [places[p] for p in predicted.tolist()]), 1)
    rows = [[names[a], names[p], int(counts[a, p])] for a in range(len(names)) for p in range(len(names))]
    fields = {name: name for name in ("Actual", "Predicted", "nPredictions")}
    return _chart("confusion_matrix", Table(list(fields), rows), fields, title, options)


@_said
def pr_curve(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    interp_size: int = 21,
    title: str = "Precision-Recall Curve",
    **options: Any,
) -> CustomChart:
    """Return the curves as rows (class, precision, recall): the best precision from each recall on."""
    import numpy as np

    recalls = np.linspace(0, 1, interp_size)[::-1]
    rows = []
    for name, is_class, scores in _classes(y_true, y_probas, labels, classes_to_plot):
        right, wrong, found = _counted(is_class, scores)
        # At each place the largest precision from there on: W&B makes scikit-learn's curve monotonic, too.
        precision = np.maximum.accumulate(np.append(1.0, right / (right + wrong))[::-1])[::-1]
        # A threshold above all scores takes nothing: recall 0, and precision 1 by definition.
        recall = np.append(0.0, right / max(found, 1))
        # The first threshold that finds so much; the last one where rounding leaves none.
        places = np.searchsorted(recall, recalls).clip(max=len(recall) - 1)
        rows += [[name, round(float(precision[at]), 3), round(float(r), 3)]
                 for at, r in zip(places, recalls, strict=True)]  # fmt: skip
    fields = {"x": "recall", "y": "precision", "class": "class"}
    return _chart("area-under-curve", Table(["class", "precision", "recall"], rows), fields, title, options)


@_said
def roc_curve(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Sequence[str] | None = None,
    classes_to_plot: Sequence[Any] | None = None,
    title: str = "ROC Curve",
    **options: Any,
) -> CustomChart:
    """Return the curves as rows (class, fpr, tpr), from no prediction taken to all."""
    rows: list[list[Any]] = []
    for name, is_class, scores in _classes(y_true, y_probas, labels, classes_to_plot):
        right, wrong, found = _counted(is_class, scores)
        # 1 where all samples are of the class: the rate of wrong ones is 0 of nothing then, and stays 0.
        others = max(len(scores) - found, 1)
        points = [(0.0, 0.0), *zip(wrong / others, right / max(found, 1), strict=True)]
        rows += [[name, round(float(fpr), 3), round(float(tpr), 3)] for fpr, tpr in points]
    fields = {"x": "fpr", "y": "tpr", "class": "class"}
    return _chart("area-under-curve", Table(["class", "fpr", "tpr"], rows), fields, title, options)


def _chart(
    form: str, table: Table, fields: Mapping[str, Any], title: str | None, options: Mapping[str, Any]
) -> CustomChart:
    split = bool(options.get("split_table"))
    texts = {key: value for key, value in options.items() if key != "split_table"}
    return _drawn(f"wandb/{form}/v0", table, dict(fields), {"title": title, **texts}, split)


def _classes(
    y_true: Any, y_probas: Any, labels: Sequence[str] | None, chosen: Sequence[Any] | None
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (name, which samples are of it, their scores) of each class."""
    import numpy as np

    if y_true is None or y_probas is None:
        raise TypeError("expected y_true, and y_probas with a column for each class")
    truth, scores = np.asarray(y_true), np.asarray(y_probas, float)
    if len(truth) != len(scores):
        raise ValueError(f"there are {len(scores)} predictions, and {len(truth)} true classes")
    for column, known in enumerate(np.unique(truth).tolist()):
        if chosen is None or known in chosen:
            # `labels` are those of classes that are numbers; a class that is a text is its own.
            name = labels[known] if labels is not None and isinstance(known, int) else known
            yield name, truth == known, scores[:, column]


def _counted(is_class: Any, scores: Any) -> tuple[Any, Any, int]:
    """Return how many are taken rightly and wrongly at each score as the threshold, and how many there are to find."""
    import numpy as np

    # From the highest score on, so that the first n are what a threshold takes.
    order = np.argsort(-scores, kind="stable")
    # Samples of one score are taken together: only the last one of each score is a threshold.
    last = np.flatnonzero(np.append(np.diff(scores[order]), 1))
    right = np.cumsum(is_class[order])[last]
    return right, last + 1 - right, int(is_class.sum())


NOT_HERE: Mapping[str, str] = dict.fromkeys(
    ("Visualize", "visualize"), "Charts are kept as the tables they are drawn from: log the table."
)
"""Names of W&B's module that are not here, and what is used instead."""


def __getattr__(name: str) -> Any:
    """Say what is used instead of a name of W&B's module that is not here."""
    raise not_here(__name__, name, NOT_HERE)
