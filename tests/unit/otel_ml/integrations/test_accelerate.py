"""What Accelerate logs through `OtelMLTracker` is in the run: values, texts, tables and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

import otel_ml
from otel_ml.testing import Capture

if TYPE_CHECKING:
    from otel_ml.integrations.huggingface import OtelMLTracker


def test_what_accelerate_logs_without_a_step_is_a_row_each(otel_ml_capture: Capture) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(log_with=tracking(), cpu=True)
    accelerator.init_trackers("digits")

    for value in (3.0, 2.0, 1.0):
        accelerator.log({"loss": value})
        accelerator.log({"tokens": 5}, log_kwargs={"otel_ml": {"reduce": "sum"}})
    accelerator.log({"accuracy": 0.5, "phase": "over"})
    with otel_ml.step(7):
        accelerator.log({"inside": 7.0})

    places = {(point.name, point.step): point.value for point in otel_ml_capture.points}
    assert places == {
        **{("loss", step): 3.0 - step for step in range(3)},
        **{("tokens", step): 5.0 for step in range(3)},
        ("accuracy", 2): 0.5,
        ("inside", 7): 7.0,
    }
    assert [event.step for event in otel_ml_capture.events if event.kind == "ml.text"] == [2]


def test_values_in_a_dictionary_are_below_its_name_as_in_accelerates_tensorboard_tracker(
    otel_ml_capture: Capture,
) -> None:
    tracker = started()

    tracker.log({"loss": {"train": 0.5, "val": {"clean": 0.7, "note": "fine"}}}, step=1)
    tracker.log({"seen": {"train": 5}}, step=1, reduce="sum")

    values = {point.name: point.value for point in otel_ml_capture.points}
    assert values == {"loss/train": 0.5, "loss/val/clean": 0.7, "seen/train": 5.0}
    assert [event.name for event in otel_ml_capture.events if event.kind == "ml.text"] == ["loss/val/note"]
    assert not any("bad-value" in said for said in otel_ml_capture.notices)


def test_the_row_of_a_value_in_a_dictionary_is_that_of_its_whole_name(otel_ml_capture: Capture) -> None:
    tracker = started()

    tracker.log({"loss": {"train": 0.5}})
    tracker.log({"loss": {"val": 0.7}})
    tracker.log({"loss/train": 0.4})

    places = [(point.name, point.step, point.value) for point in otel_ml_capture.points]
    assert sorted(places) == [("loss/train", 0, 0.5), ("loss/train", 1, 0.4), ("loss/val", 0, 0.7)]


def test_a_second_tracker_of_the_run_goes_on_after_the_rows_of_the_first(otel_ml_capture: Capture) -> None:
    from accelerate import Accelerator

    for values in ((3.0, 2.0), (1.0,)):
        accelerator = Accelerator(log_with=tracking(), cpu=True)
        accelerator.init_trackers("digits")
        for value in values:
            accelerator.log({"loss": value})

    assert otel_ml_capture.values("loss") == [3.0, 2.0, 1.0]


def test_texts_are_kept_also_where_options_of_log_are_given(otel_ml_capture: Capture) -> None:
    tracker = started()

    tracker.log({"tokens": 5, "phase": "warm-up"}, step=2, reduce="sum")
    tracker.log({"seen": 8, "phase": "over"}, step=3, axis="epoch", prefix="train")

    texts = [
        (event.name, event.axis, event.step, event.body) for event in otel_ml_capture.events if event.kind == "ml.text"
    ]
    assert texts == [("phase", "step", 2, "warm-up"), ("train/phase", "epoch", 3, "over")]
    assert {point.name: point.value for point in otel_ml_capture.points} == {"tokens": 5.0, "train/seen": 8.0}
    assert not any("phase" in said for said in otel_ml_capture.notices)


def test_what_other_trackers_take_beside_a_table_is_taken(otel_ml_capture: Capture) -> None:
    started().log_table("rows", ["a"], [[1]], None, 3, report_name="evaluation")

    assert [(event.name, event.step) for event in otel_ml_capture.events if event.kind == "ml.table"] == [("rows", 3)]


def test_options_of_pictures_tables_and_figures_are_those_of_otel_ml_and_others_are_said(
    otel_ml_capture: Capture,
) -> None:
    import matplotlib.pyplot as plt

    tracker = started()
    tracker.log_images({"digit": np.eye(8)}, 3, caption="seven", axis="epoch", masks={"a": 1})
    tracker.log_table("rows", ["a"], [[1]], None, 3, axis="epoch", report_name="evaluation")
    tracker.log_figure(plt.figure(), "curves", step=3, axis="epoch", caption="curves", save_kwargs={"dpi": 50})

    shown = {event.name: event for event in otel_ml_capture.events if event.kind in {"ml.image", "ml.table"}}
    assert {(event.axis, event.step) for event in shown.values()} == {("epoch", 3)}
    assert [shown[name].attributes["ml.caption"] for name in ("digit", "curves")] == ["seven", "curves"]
    said = " ".join(otel_ml_capture.notices)
    assert all(name in said for name in ("no option masks", "no option report_name", "no option save_kwargs")), said


def test_without_columns_the_first_row_of_a_table_names_them(otel_ml_capture: Capture) -> None:
    tracker = started()
    tracker.log_table("rows", data=[["prompt", "score"], ["a", 0.5]])
    tracker.log_table("dictionaries", data=[{"prompt": "a"}])

    shown = {event.name: event.body for event in otel_ml_capture.events if event.kind == "ml.table"}
    assert shown["rows"] == {"columns": ["prompt", "score"], "rows": [["a", 0.5]]}
    assert shown["dictionaries"] == {"columns": ["prompt"], "rows": [["a"]]}


def test_one_picture_is_one_also_where_it_is_in_no_list(otel_ml_capture: Capture) -> None:
    digit = np.eye(8)

    batch = np.zeros((2, 8, 8, 3))
    started().log_images({"gray": digit, "color": torch.zeros(8, 8, 3), "several": batch, "list": [digit, digit]})

    shown = [event.name for event in otel_ml_capture.events if event.kind == "ml.image"]
    assert shown == ["gray", "color", "several/0", "several/1", "list/0", "list/1"]


def tracking() -> OtelMLTracker:
    """Return our tracker; imported here, for each process that collects tests would import Accelerate with it."""
    from otel_ml.integrations.huggingface import OtelMLTracker

    return OtelMLTracker("digits")


def started() -> OtelMLTracker:
    from accelerate import Accelerator

    tracker = tracking()
    Accelerator(log_with=tracker, cpu=True).init_trackers("digits")
    return tracker


def test_what_accelerate_logs_is_in_the_run(otel_ml_capture: Capture) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(log_with=tracking(), cpu=True)
    accelerator.init_trackers("digits", config={"lr": 0.1})

    for step in range(3):
        accelerator.log({"loss": 9.0}, step=step)
        accelerator.log({"loss": step / 2, "phase": "warm-up"}, step=step)
    accelerator.log({"tokens": 5}, step=2, log_kwargs={"otel_ml": {"reduce": "sum"}})
    tracker = accelerator.get_tracker("otel_ml")
    tracker.log_images({"digit": [torch.zeros(4, 4)]}, step=1)
    tracker.log_table("rows", ["a"], [[1]], step=1)
    assert isinstance(tracker.tracker, otel_ml.Run)
    shown = [(event.kind, event.name, event.step) for event in otel_ml_capture.events]
    reductions = {point.name: point.reduction for point in otel_ml_capture.points}
    values = otel_ml_capture.values("loss")
    accelerator.end_training()

    assert values == [0.0, 0.5, 1.0]
    assert reductions == {"loss": "last>mean", "tokens": "sum"}
    assert ("ml.image", "digit", 1) in shown
    assert ("ml.table", "rows", 1) in shown
    assert [item for item in shown if item[0] == "ml.text"] == [("ml.text", "phase", step) for step in range(3)]
    assert tracker.tracker is None
