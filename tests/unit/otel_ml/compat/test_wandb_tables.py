"""Tables and charts that a script logs through W&B's interface: rows and columns, and what W&B refuses of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import events


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


@pytest.mark.feature("F15", "yes", "tables of samples, also grown row by row, in every backend that has tables")
def test_tables_are_kept_with_the_pictures_in_their_cells(captured: Capture) -> None:
    wandb.init()
    table = wandb.Table(columns=["id", "picture"])
    table.add_data(1, wandb.Image(np.zeros((2, 3), np.uint8)))
    table.add_data(2, None)
    wandb.log({"samples": table, "frame": wandb.Table(data=[["a", "b", "c"]])}, step=4)
    table.add_data(3, None)

    kept = events(captured, "table")
    assert kept["samples"].body == {"columns": ["id", "picture"], "rows": [[1, "samples/picture/0"], [2, None]]}
    assert kept["frame"].body == {"columns": ["Input", "Output", "Expected"], "rows": [["a", "b", "c"]]}
    assert kept["samples"].step == 4
    assert "samples/picture/0" in events(captured, "image")


def test_a_table_has_columns_rows_and_data_frames() -> None:
    table = wandb.Table(columns=["x"], data=[[1], [2]])
    table.add_column("y", [3, 4])

    assert (table.get_column("y"), len(table), list(table.iterrows())) == ([3, 4], 2, [(0, [1, 3]), (1, [2, 4])])
    again = wandb.Table(dataframe=table.get_dataframe())
    assert (again.columns, again.data) == (["x", "y"], [[1, 3], [2, 4]])


def test_charts_are_kept_as_the_tables_they_are_drawn_from(captured: Capture) -> None:
    wandb.init()
    wandb.log(
        {
            "lines": wandb.plot.line_series([0, 1], [[5, 6], [7, 8]], keys=["a", "b"]),
            "confusion": wandb.plot.confusion_matrix(y_true=[0, 1, 1], preds=[0, 1, 0], class_names=["cat", "dog"]),
            "line": wandb.plot.line(wandb.Table(["x", "y"], [[1, 2]]), "x", "y", title="t"),
        }
    )

    kept = events(captured, "table")
    assert kept["lines"].body["rows"] == [[0, "a", 5], [1, "a", 6], [0, "b", 7], [1, "b", 8]]
    assert ["dog", "cat", 1] in kept["confusion"].body["rows"]
    assert kept["line"].body["rows"] == [[1, 2]]


def test_a_row_of_another_length_is_said_where_it_is_added_and_left_out(captured: Capture) -> None:
    table = wandb.Table(columns=["a", "b"])
    table.add_data(1)
    table.add_data(1, 2)
    wandb.log({"t": table})

    assert events(captured, "table")["t"].body["rows"] == [[1, 2]]
    assert any("add_data() at test_wandb_tables.py" in notice and "ValueError" in notice for notice in captured.notices)


def test_a_table_gets_columns_that_are_computed_and_no_column_of_another_length(captured: Capture) -> None:
    table = wandb.Table(columns=["x", "y"], data=[[3, 1], [4, 6]])
    table.add_computed_columns(lambda number, row: {"difference": row["x"] - row["y"], "number": number})
    table.add_column("short", [1])
    table.set_pk("x")

    assert (table.columns, table.data) == (["x", "y", "difference", "number"], [[3, 1, 2, 0], [4, 6, -2, 1]])
    assert (table.get_index(), table == wandb.Table(["x"], [[3]])) == ([0, 1], False)
    for said in ("AssertionError: Expected length 2, found 1", "wandb.Table.set_pk('x') at test_wandb_tables.py"):
        assert any(said in notice for notice in captured.notices), (said, captured.notices)


def test_rows_that_are_given_as_columns_are_said_and_taken_as_rows(captured: Capture) -> None:
    table = wandb.Table([["a", 1, True], ["b", 2, False]])

    assert table.data == [["a", 1, True], ["b", 2, False]]
    assert any("AssertionError: columns are names" in notice for notice in captured.notices)


def test_a_chart_says_how_it_was_to_be_drawn(captured: Capture) -> None:
    chart = wandb.plot.line(wandb.Table(["x", "y"], [[1, 2]]), "x", "y", title="t")
    uneven = wandb.plot.line_series([[0], [1]], [[5]], keys=["a"])

    assert (chart.table.data, chart.spec.fields, chart.spec.string_fields["title"]) == (
        [[1, 2]], {"x": "x", "y": "y"}, "t",
    )  # fmt: skip
    assert uneven.data == [[0, "a", 5]]
    assert any("ValueError: there are 1 y-series, 2 x-series" in notice for notice in captured.notices)


@pytest.mark.parametrize("kind", ["bar", "histogram", "scatter"])
def test_a_chart_of_a_table_has_the_originals_fields(kind: str) -> None:
    import wandb as original

    columns = ["a"] if kind == "histogram" else ["a", "b"]
    rows = [[1] * len(columns)]
    ours = getattr(wandb.plot, kind)(wandb.Table(columns, rows), *columns, title="t")
    theirs = getattr(original.plot, kind)(original.Table(columns, rows), *columns, title="t")

    assert (ours.table.columns, ours.table.data) == (theirs.table.columns, theirs.table.data)
    assert ours.spec.fields == theirs.spec.fields
    assert ours.spec.string_fields["title"] == theirs.spec.string_fields["title"] == "t"


def test_curves_are_those_of_scikit_learns_definition() -> None:
    truth, scores = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    probabilities = [[1 - score, score] for score in scores]
    roc = wandb.plot.roc_curve(truth, probabilities, labels=["no", "yes"], classes_to_plot=[1])
    precision = wandb.plot.pr_curve(truth, probabilities, classes_to_plot=[1], interp_size=3)

    assert roc.columns == ["class", "fpr", "tpr"]
    assert roc.data == [["yes", *p] for p in [(0, 0), (0, 0.5), (0.5, 0.5), (0.5, 1), (1, 1)]]
    assert precision.data == [[1, 0.667, 1.0], [1, 1.0, 0.5], [1, 1.0, 0.0]]


def test_several_lines_with_their_own_x_are_given_as_an_array_too() -> None:
    ys = np.array([[1.0, 2.0], [3.0, 4.0]])
    rows = [[0.0, "line_0", 1.0], [5.0, "line_0", 2.0], [0.0, "line_1", 3.0], [7.0, "line_1", 4.0]]

    assert wandb.plot.line_series(np.array([[0.0, 5.0], [0.0, 7.0]]), ys).data == rows
    assert [row[0] for row in wandb.plot.line_series(np.array([0.0, 5.0]), ys).data] == [0.0, 5.0] * 2


def test_a_column_whose_name_is_a_number_is_found_by_it() -> None:
    table = wandb.Table([0, "x"], [[3, 4]])  # type: ignore[list-item]

    assert table.get_column(0) == [3]  # type: ignore[arg-type]


def test_a_column_that_is_not_there_has_no_values_which_is_said(captured: Capture) -> None:
    table = wandb.Table(["x"], [[3]])

    assert (table.get_column("y"), table.get_column("y", convert_to="numpy").tolist()) == ([], [])
    assert any("get_column('y')" in notice and "AssertionError" in notice for notice in captured.notices)


def test_tables_that_are_joined_are_kept_as_one_with_the_rows_that_only_one_has(captured: Capture) -> None:
    run = wandb.init()
    truth = wandb.Table(["id", "label"], [[1, "cat"], [2, "dog"], [[3], "bird"]])
    guesses = wandb.Table(["label", "image"], [["cow", 2], ["cat", 1], ["hen", 2], ["ant", 4]])
    artifact = wandb.Artifact("evaluation", "dataset")
    artifact.add(wandb.JoinedTable(truth, guesses, ["id", "image"]), "joined")
    run.log_artifact(artifact)
    run.log({"same": wandb.JoinedTable(truth, truth, "id")})

    rows = [[1, "cat", "cat"], [2, "dog", "cow"], [2, "dog", "hen"], [[3], "bird", None], [4, None, "ant"]]
    kept = events(captured, "table")
    assert kept["evaluation/joined"].body == {"columns": ["id", "label", "label.2"], "rows": rows}
    assert kept["same"].body["rows"] == [[1, "cat", "cat"], [2, "dog", "dog"], [[3], "bird", "bird"]]
    assert captured.notices == []


@pytest.mark.parametrize(("other", "key"), [("data.table.json", "id"), (wandb.Table(["x"], []), "id"), (None, ["id"])])
def test_what_cannot_be_joined_is_said_where_it_is_logged(captured: Capture, other: object, key: object) -> None:
    run = wandb.init()
    run.log({"joined": wandb.JoinedTable(wandb.Table(["id"], [[1]]), other, key), "loss": 1.0})  # type: ignore[arg-type]

    assert "joined" not in events(captured, "table")
    assert any("wandb.JoinedTable" in notice and "ValueError" in notice for notice in captured.notices)


def test_names_of_classes_and_of_lines_are_arrays_too_as_in_wandb() -> None:
    import wandb as original

    names = np.array(["cat", "dog"])
    shown = []
    # Two modules, of two types.
    modules: list[Any] = [wandb, original]
    for of in modules:
        confusion = of.plot.confusion_matrix(y_true=[0, 1, 1], preds=[1, 1, 0], class_names=names)
        lines = of.plot.line_series(xs=[0, 1], ys=[[1, 2], [3, 4]], keys=names)
        shown.append((confusion.table.data, lines.table.data))

    ours, theirs = shown
    assert ours == theirs


@pytest.mark.parametrize("columns", [pd.DataFrame({"a": [1], "b": [2]}).columns, np.array(["a", "b"]), ("a", "b")])
def test_columns_may_be_those_of_a_data_frame(columns: Any) -> None:
    table = wandb.Table(columns=columns, data=[[1, 2]])

    assert (table.columns, table.data) == (["a", "b"], [[1, 2]])


def test_a_table_may_begin_without_a_column_as_in_wandb() -> None:
    table = wandb.Table(columns=[])
    assert table.columns == []

    table.add_column("a", [1, 2])
    assert (table.columns, table.data) == (["a"], [[1], [2]])
