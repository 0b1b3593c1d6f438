"""What W&B refuses of tables and charts is said with its error, and ends nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: wandb.plot.line_series([[1], [2]], [3]), "ValueError"),  # type: ignore[list-item]
        (lambda: wandb.plot.line_series(1, [[3]]), "TypeError"),  # type: ignore[arg-type]
        (lambda: wandb.plot.line_series([1], 3), "TypeError"),  # type: ignore[arg-type]
        (lambda: wandb.plot.line(None, "x", "y"), "Error"),  # type: ignore[arg-type]
        (lambda: wandb.plot.scatter([[1, 2]], "x", "y"), "Error"),  # type: ignore[arg-type]
        (lambda: wandb.plot_table("form", 5, {}), "Error"),  # type: ignore[arg-type]
        (lambda: wandb.plot.roc_curve(), "TypeError"),
        (lambda: wandb.plot.pr_curve([0, 1], None), "TypeError"),
        (lambda: wandb.plot.roc_curve([0, 1], [(0.4, 0.6)]), "ValueError"),
        (lambda: wandb.plot.confusion_matrix(), "TypeError"),
        (lambda: wandb.plot.confusion_matrix(preds=[1, 0], y_true=[1]), "ValueError"),
        (lambda: wandb.plot.confusion_matrix(preds=[1, 0], y_true=[1, 0], class_names=["a"]), "ValueError"),
        (lambda: wandb.plot.confusion_matrix(preds=[1], probs=[[0.1, 0.9]], y_true=[1]), "ValueError"),
        (lambda: wandb.plot.confusion_matrix(preds=[1, -1], y_true=[1, 0], class_names=["a", "b"]), "KeyError"),
        (lambda: wandb.plot.confusion_matrix(preds=[1, 2], y_true=[1, 1], class_names=["a", "b"]), "KeyError"),
    ],
)
def test_a_chart_that_wandb_refuses_is_said_with_its_error_and_is_a_chart(
    captured_wandb: Capture, make: Callable[[], Any], error: str
) -> None:
    chart = make()
    wandb.log({"chart": chart})

    assert isinstance(chart, wandb.plot.CustomChart)
    assert f" at test_wandb_refused.py:{make.__code__.co_firstlineno} is accepted" in captured_wandb.notices[0]
    assert f": {error}: " in captured_wandb.notices[0]


def test_a_table_is_made_of_the_rows_that_fit_its_columns_and_the_others_are_said(captured_wandb: Capture) -> None:
    table = wandb.Table(columns=["a"], data=[[1], [1, 2], [], [3]])

    assert table.data == [[1], [3]]
    assert [
        said for said in captured_wandb.notices if "ValueError: this table expects 1 columns: ['a'], found 2" in said
    ]


@pytest.mark.parametrize("data", [5, {"a": [1]}, [1, 2]])
def test_data_that_are_no_rows_are_said_and_the_table_is_empty(captured_wandb: Capture, data: Any) -> None:
    assert wandb.Table(columns=["a"], data=data).data == []
    [said] = captured_wandb.notices
    assert "Error: " in said


@pytest.mark.parametrize(
    ("name", "values"),
    [("a", [3, 4]), ("b", "xy"), ("b", iter([3, 4])), ("b", None), ("b", np.float64(3.0)), ("b", np.array(3.0))],
    ids=["there", "text", "iterator", "none", "number", "array without dimensions"],
)
def test_a_column_that_is_there_or_whose_values_are_no_list_is_said_and_left_out(
    captured_wandb: Capture, name: str, values: Any
) -> None:
    table = wandb.Table(columns=["a"], data=[[1], [2]])
    table.add_column(name, values)

    assert (table.columns, table.data) == (["a"], [[1], [2]])
    [said] = captured_wandb.notices
    assert "AssertionError: " in said


@pytest.mark.parametrize("kind", [float, bool, np.float32, np.int8])
def test_classes_with_names_are_numbers_of_any_type_as_in_wandb(kind: type) -> None:
    import wandb as original

    actual, predicted = [kind(0), kind(1), kind(1)], [kind(1), kind(1), kind(0)]
    ours = wandb.plot.confusion_matrix(y_true=actual, preds=predicted, class_names=["cat", "dog"])
    theirs = original.plot.confusion_matrix(y_true=actual, preds=predicted, class_names=["cat", "dog"])

    assert ours.data == [[*names, int(count)] for *names, count in theirs.table.data]


def test_classes_are_texts_as_well_as_numbers() -> None:
    chart = wandb.plot.confusion_matrix(preds=["cat", "cat", "dog"], y_true=["cat", "dog", "dog"])

    assert chart.table.data == [
        ["Class_1", "Class_1", 1],
        ["Class_1", "Class_2", 0],
        ["Class_2", "Class_1", 1],
        ["Class_2", "Class_2", 1],
    ]


def test_the_rows_that_a_table_may_have_can_be_asked_for_and_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (wandb.Table.MAX_ROWS, wandb.Table.MAX_ARTIFACT_ROWS) == (10_000, 200_000)
    monkeypatch.setattr(wandb.Table, "MAX_ROWS", 1_000_000)


def test_a_key_that_is_not_a_text_is_said_with_wandbs_error_and_the_others_are_recorded(
    captured_wandb: Capture,
) -> None:
    wandb.log({1: 1000, "loss": 0.5})  # type: ignore[dict-item]
    wandb.log({("a", "b"): 1, "loss": 0.25})  # type: ignore[dict-item]

    assert {key for key in wandb.summary if not key.startswith("_")} == {"loss"}
    assert captured_wandb.values("loss") == [0.5, 0.25]
    assert ["TypeError: " in said for said in captured_wandb.notices] == [True, True]
    assert "log() with the key 1 at" in captured_wandb.notices[0]


def test_a_mode_of_a_table_that_there_is_not_is_said_with_wandbs_error(captured_wandb: Capture) -> None:
    wandb.Table(log_mode="ALWAYS")

    [said] = captured_wandb.notices
    assert "AssertionError: " in said
    assert "INCREMENTAL" in said


@pytest.mark.parametrize(
    "make",
    [
        wandb.Image,
        wandb.Audio,
        lambda name: wandb.Video(f"{name}.mp4"),
        lambda name: wandb.Object3D(f"{name}.obj"),
        lambda name: wandb.Molecule(f"{name}.pdb"),
    ],
)
def test_a_file_that_is_not_there_is_said_where_it_is_named_and_ends_nothing(
    captured_wandb: Capture, make: Any
) -> None:
    wandb.log({"shown": make("missing"), "loss": 0.5})

    assert captured_wandb.values("loss") == [0.5]
    assert [event.kind for event in captured_wandb.events if event.name == "shown"] == []
    [said] = captured_wandb.notices
    assert "FileNotFoundError: " in said
    assert "at test_wandb_refused.py" in said


def test_a_picture_that_cannot_be_read_is_said_and_the_rest_of_its_row_is_recorded(
    captured_wandb: Capture, tmp_path: Path
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    wandb.log({"broken": wandb.Image(tmp_path / "broken.jpg"), "note": "kept", "loss": 0.5})

    assert captured_wandb.values("loss") == [0.5]
    assert [event.name for event in captured_wandb.events if event.kind == "ml.text"] == ["note"]
    [said] = captured_wandb.notices
    assert "Image in 'broken'" in said
    assert "UnidentifiedImageError: " in said


def test_an_argument_of_init_that_wandb_does_not_know_is_said_also_where_a_run_is_active(
    captured_wandb: Capture,
) -> None:
    wandb.init(projct="digits", confg=np.array([1, 2]))

    assert [said.partition(")")[0] for said in captured_wandb.notices] == ["wandb.init(projct=…", "wandb.init(confg=…"]


def test_a_mode_that_there_is_not_is_said_and_sends_nothing() -> None:
    with capture() as captured_wandb:
        run = wandb.init(mode="offlin")
        wandb.finish()

    [notice] = captured_wandb.notices
    assert "mode='offlin'" in notice
    assert "offline" in notice
    assert run.offline


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda run: wandb.Artifact("a/b", "dataset"), "ValueError"),
        (lambda run: wandb.Artifact("a", "job"), "ValueError"),
        (lambda run: wandb.Artifact("a", "dataset").add(3, "three"), "TypeError"),
        (lambda run: run.alert("low", "accuracy", level="LOUD"), "ValueError"),
        (lambda run: run.save(__file__, policy="never"), "ValueError"),
        (lambda run: wandb.init(id="a/b"), "UsageError"),
    ],
)
def test_names_types_and_options_that_wandb_refuses_are_said_with_its_error(
    captured_wandb: Capture, call: Callable[[Any], Any], error: str
) -> None:
    run = wandb.init()

    call(run)

    [said] = [
        said for said in captured_wandb.notices if f" at test_wandb_refused.py:{call.__code__.co_firstlineno}" in said
    ]
    assert f": {error}: " in said


def test_names_and_types_that_wandb_takes_are_not_said(captured_wandb: Capture) -> None:
    run = wandb.init(id="of-1.a_b")
    for name, kind in (("weights-1.0_b", "model"), ("source-code", "code"), ("table", "run_table")):
        wandb.Artifact(name, kind)
    for level in (None, "", "WARN", wandb.AlertLevel.ERROR):
        run.alert("low", level=level)

    assert captured_wandb.notices == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: wandb.Table(columns=5, data=[[1]]),  # type: ignore[arg-type]
        lambda: wandb.Table(columns="ab", data=[[1]]),
        lambda: wandb.summary.update(5),
        lambda: wandb.log({"joined": wandb.JoinedTable(wandb.Table(), wandb.Table(), 5)}),  # type: ignore[arg-type]
        lambda: wandb.Table(columns=["a"], data=[[1]]).add_computed_columns(lambda *_: None),  # type: ignore[arg-type, return-value]
    ],
    ids=["columns", "a text of columns", "summary", "join key", "computed columns"],
)
def test_an_argument_of_another_type_is_said_and_ends_nothing(
    captured_wandb: Capture, call: Callable[[], object]
) -> None:
    call()

    [said] = captured_wandb.notices
    assert "Error: " in said
