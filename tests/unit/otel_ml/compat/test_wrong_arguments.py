"""What a call of another interface cannot record is reported as what it was given, and not as a failure of otel_ml."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml._internal.error_reporting import reporter
from otel_ml.compat import mlflow
from otel_ml.compat.roll import MetricsManager, create_tracker, reduce_metrics, reduce_metrics_list
from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.compat.verl import RLInsightLogger, Tracking, ValidationGenerationsLogger
from otel_ml.compat.verl import reduce_metrics as reduce_metrics_of_verl
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import written


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


CALLS: dict[str, Callable[[], Any]] = {
    "add_scalars(None)": written(lambda w: w.add_scalars("m", None, 0)),
    "add_audio(None)": written(lambda w: w.add_audio("a", None, 0)),
    "add_image(None)": written(lambda w: w.add_image("i", None, 0)),
    "add_images(None)": written(lambda w: w.add_images("i", None, 0)),
    "add_video(None)": written(lambda w: w.add_video("v", None, 0)),
    "add_image(tensor of 5)": written(lambda w: w.add_image("i", torch.zeros(2, 3, 4, 5, 6), 0)),
    "add_images(tensor of 1)": written(lambda w: w.add_images("i", torch.zeros(2), 0)),
    "add_video(tensor of 6)": written(lambda w: w.add_video("v", torch.zeros(1, 1, 2, 3, 4, 5), 0)),
    "add_image(tensor without data)": written(lambda w: w.add_image("i", torch.zeros(3, 4, 5, device="meta"), 0)),
    "add_audio(tensor without data)": written(lambda w: w.add_audio("a", torch.zeros(5, device="meta"), 0)),
    "add_histogram(empty)": written(lambda w: w.add_histogram("h", np.zeros(0), 0)),
    "add_histogram_raw(None)": written(lambda w: w.add_histogram_raw("r", 0, 1, 1, 1, 1, None, None)),
    "add_pr_curve(None)": written(lambda w: w.add_pr_curve("p", None, None)),
    "add_pr_curve_raw(lengths)": written(lambda w: w.add_pr_curve_raw("r", 1, 2, 3, 4, [0.1], [0.2, 0.3])),
    "add_text(None)": written(lambda w: w.add_text("t", None)),
    "add_hparams(None)": written(lambda w: w.add_hparams(None, None)),
    "add_scalar(several)": written(lambda w: w.add_scalar("s", np.arange(3.0))),
    "log_stream(None)": lambda: mlflow.log_stream(None, "a.bin"),
    "log_metrics(None)": lambda: mlflow.log_metrics(None),  # type: ignore[arg-type]
    "log_params(list)": lambda: mlflow.log_params([1]),  # type: ignore[arg-type]
    "set_tags(number)": lambda: mlflow.set_tags(3),  # type: ignore[arg-type]
    "log_artifact(None)": lambda: mlflow.log_artifact(None),
    "log_dict(itself)": lambda: mlflow.log_dict(itself(), "a.json"),
    "Tracking.log(None)": lambda: Tracking("p", "r").log(None, 1),  # type: ignore[arg-type]
    "generations(None)": lambda: ValidationGenerationsLogger().log(["wandb"], None, 1),  # type: ignore[arg-type]
    "tracker.log(None)": lambda: create_tracker("stdout", {}).log(None, 1),  # type: ignore[arg-type]
    "verl's reduce_metrics(texts)": lambda: reduce_metrics_of_verl({"score/max": ["a", "b"]}),
    "verl's reduce_metrics(shapes)": lambda: reduce_metrics_of_verl({"score": [{"a": 1}, [1.0]]}),
    "ROLL's reduce_metrics(texts)": lambda: reduce_metrics({"score/max": ["a", "b"]}),
    "ROLL's reduce_metrics(huge)": lambda: reduce_metrics({"score@sum": [10**400, 1]}),
    "ROLL's reduce_metrics_list(texts)": lambda: reduce_metrics_list([{"note": "a"}, {"note": "b"}]),
    "add_token_metrics(None)": lambda: MetricsManager().add_token_metrics(None),
    "add_values_metrics(empty)": lambda: MetricsManager().add_values_metrics({}),
    "add_validation_metrics(texts)": lambda: MetricsManager().add_validation_metrics(["a"]),
}


def itself() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["again"] = found
    return found


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_cannot_be_recorded_is_said_and_counted_as_that(captured: Capture, call: Callable[[], Any]) -> None:
    call()

    assert not [notice for notice in captured.notices if "internal-error" in notice]
    assert [notice for notice in captured.notices if re.search("explain bad-(event|value)", notice)]
    assert not [notice for notice in captured.notices if re.search(r"\b_\w+\(", notice)]  # what no program calls
    assert not captured.points
    assert not [event for event in captured.events if event.kind in {"ml.text", "ml.table", "ml.histogram"}]


def test_the_message_has_what_was_given_and_where(captured: Capture) -> None:
    with SummaryWriter("runs/digits") as writer:
        for step in range(3):
            writer.add_scalars("losses", None, step)  # type: ignore[arg-type]
        writer.add_scalar("loss", 1.0, 0)

    [said] = captured.notices
    assert "add_scalars(main_tag='losses', tag_scalar_dict=None, global_step=0)" in said
    assert "test_wrong_arguments.py:" in said
    assert reporter.dropped["bad_event"] == 3
    assert captured.values("loss") == [1.0]


def test_the_message_has_no_argument_that_no_program_gives(captured: Capture) -> None:
    with mlflow.start_run():
        mlflow.log_metrics(5, step=3)  # type: ignore[arg-type]

    [said] = captured.notices
    assert "log_metrics(metrics=5, step=3) at test_wrong_arguments.py:" in said


def test_what_cannot_be_reduced_is_named_with_its_values_and_is_not_counted_as_lost(captured: Capture) -> None:
    assert reduce_metrics_of_verl({"score/max": ["a", "b"]}) == {"score/max": ["a", "b"]}

    [said] = captured.notices
    assert "reduce_metrics('score/max': ['a', 'b'])" in said
    assert "test_wrong_arguments.py:" in said
    assert "stays as it is" in said
    assert not reporter.dropped


def test_an_object_that_fails_by_itself_is_not_taken_for_an_argument(captured: Capture) -> None:
    class Odd:
        def items(self) -> Any:
            raise RuntimeError("odd")

    with SummaryWriter("runs/digits") as writer:
        writer.add_scalars("losses", Odd(), 0)  # type: ignore[arg-type]

    [said] = captured.notices
    assert "RuntimeError: odd" in said
    assert "internal-error" in said


def test_what_is_called_at_a_class_is_said_under_its_name(captured: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")
    RLInsightLogger.log([1], 2)  # type: ignore[arg-type]

    [said] = captured.notices
    assert said.startswith("RLInsightLogger.log(data=[1], step=2) at test_wrong_arguments.py:")
