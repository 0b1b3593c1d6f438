"""What `Logger.log_metrics()` records: names, values, steps and axes."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml.compat.nemo_rl import Logger, LoggerInterface
from otel_ml.testing import Capture


@pytest.fixture
def logger(otel_ml_capture: Capture, tmp_path: Path) -> Logger:
    return Logger({"log_dir": str(tmp_path)})


def recorded(captured: Capture) -> dict[tuple[str | None, int | None, str], float]:
    return {(point.axis, point.step, point.name): point.value for point in captured.points}


def said(captured: Capture, *words: str) -> list[str]:
    return [notice for notice in captured.notices if all(word in notice for word in words)]


@pytest.mark.feature("N3", "yes", "the prefix stands before every name")
def test_names_get_the_prefix(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.log_metrics({"loss": 0.5, "moe/load": 2}, 3, prefix="train")
    logger.log_metrics({"loss": 0.25}, 3)
    logger.log_metrics({"accuracy": 1.0}, 3, None)

    assert recorded(otel_ml_capture) == {
        ("step", 3, "train/loss"): 0.5,
        ("step", 3, "train/moe/load"): 2.0,
        ("step", 3, "loss"): 0.25,
        ("step", 3, "accuracy"): 1.0,
    }


def test_of_a_name_that_is_logged_twice_at_a_step_the_last_value_counts(
    logger: Logger, otel_ml_capture: Capture
) -> None:
    for stalled_s in (60.0, 120.0, 180.0):
        logger.log_metrics({"step_stall_s": stalled_s, "steps": [stalled_s, 0.0]}, 7, prefix="watchdog")
        logger.log_metrics({"epoch": 1, "seen": torch.tensor(stalled_s)}, 7, prefix="val", step_metric="epoch")

    points = {(point.axis, point.name): point for point in otel_ml_capture.points}
    assert points["step", "watchdog/step_stall_s"].value == 180.0
    assert points["step", "watchdog/steps/max"].value == 180.0
    assert points["val", "val/seen"].value == 180.0
    assert {point.reduction for point in points.values()} == {"last>mean"}


@pytest.mark.feature("N4", "better", "an axis of its own in every backend, not in W&B alone")
def test_a_step_metric_is_an_axis_of_its_own_and_keeps_its_name(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.log_metrics({"ray/ray_step": 70, "node.0.gpu.1.util": 0.9}, 70, prefix="ray", step_metric="ray/ray_step")
    logger.log_metrics({"loss": 0.5}, 2, prefix="train", step_metric="not/in/these")
    logger.log_metrics({"ray/ray_step": 80}, 80, prefix="ray", step_metric="ray/ray_step", step_finished=True)
    otel_ml.log({"inside": 1.0})

    assert recorded(otel_ml_capture) == {
        ("ray", 80, "ray/ray_step"): 80.0,
        ("step", 2, "inside"): 1.0,
        ("ray", 70, "ray/ray_step"): 70.0,
        ("ray", 70, "ray/node.0.gpu.1.util"): 0.9,
        ("step", 2, "train/loss"): 0.5,
    }


@pytest.mark.feature("N4", "better", "globs of `define_metric` hold for every backend")
def test_metrics_that_match_a_glob_are_drawn_over_its_step_metric(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.define_metric("eval/*", step_metric="eval/round")
    logger.define_metric("train/*")

    logger.log_metrics({"round": 4, "accuracy": 0.5}, 100, prefix="eval")
    logger.log_metrics({"eval/tokens": 9, "train/loss": 1.0}, 101)

    assert recorded(otel_ml_capture) == {
        ("eval", 4, "eval/round"): 4.0,
        ("eval", 4, "eval/accuracy"): 0.5,
        ("eval", 4, "eval/tokens"): 9.0,
        ("step", 101, "train/loss"): 1.0,
    }


def test_a_glob_with_brackets_means_these_brackets(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.define_metric("eval[1]/*", step_metric="eval[1]/round")

    logger.log_metrics({"eval[1]/round": 4, "eval[1]/accuracy": 0.5, "eval1/accuracy": 0.25}, 100)

    assert recorded(otel_ml_capture) == {
        ("eval[1]", 4, "eval[1]/round"): 4.0,
        ("eval[1]", 4, "eval[1]/accuracy"): 0.5,
        ("step", 100, "eval1/accuracy"): 0.25,
    }


def test_a_step_metric_that_is_no_whole_number_is_said_and_its_metrics_are_kept(
    logger: Logger, otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    for epoch in (0.5, 0.75):
        logger.log_metrics({"epoch": epoch, "loss": 1.0}, 8, step_metric="epoch")

    assert {place[:2] for place in recorded(otel_ml_capture)} == {("step", 8)}
    [message] = [record.getMessage() for record in caplog.records]
    assert "step_metric='epoch'" in message
    assert "got a float that is none" in message
    assert "(otel-ml explain bad-step)" in message


@pytest.mark.feature("N5", "better", "a finished step is left; what comes for it later is recorded all the same")
def test_after_a_finished_step_what_has_no_step_belongs_to_the_next(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.log_metrics({"loss": 1.0}, 1, prefix="train")
    otel_ml.log({"inside": 1.0})
    logger.log_metrics({"total": 3.0}, 1, prefix="timing/train", step_finished=True)
    otel_ml.log({"after": 1.0})
    logger.log_metrics({"reward": 0.5}, 1, prefix="validation")

    assert {name: step for _, step, name in recorded(otel_ml_capture)} == {
        "train/loss": 1,
        "inside": 1,
        "timing/train/total": 1,
        "after": 2,
        "validation/reward": 1,
    }


def test_what_follows_the_setup_at_step_0_belongs_to_the_first_step(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.log_metrics({"total": 1.0}, 0, prefix="timing/setup")
    for step in (1, 2):
        otel_ml.log({"inside": 1.0})
        logger.log_metrics({"loss": 1.0}, step, prefix="train", step_finished=True)

    steps = [(name, step) for _, step, name in recorded(otel_ml_capture)]
    assert sorted(steps) == [
        ("inside", 1), ("inside", 2), ("timing/setup/total", 0), ("train/loss", 1), ("train/loss", 2)
    ]  # fmt: skip


def test_its_loggers_are_one_that_writes_to_all_backends(logger: Logger, otel_ml_capture: Capture) -> None:
    for one in logger.loggers:
        one.log_metrics({"loss": 1.0}, 1)

    assert recorded(otel_ml_capture) == {("step", 1, "loss"): 1.0}


@pytest.mark.feature("N9", "better", "device tensors are not waited for")
@pytest.mark.parametrize(
    "value",
    [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), np.array([2.0]), np.array([[2]]), torch.tensor(2),
     torch.tensor([2.0]), torch.tensor([[2.0]], dtype=torch.bfloat16), torch.tensor(2.0, requires_grad=True)],
    ids=repr,
)  # fmt: skip
def test_whatever_holds_one_number_is_that_number(logger: Logger, otel_ml_capture: Capture, value: Any) -> None:
    logger.log_metrics({"x": value, "flag": np.bool_(True)}, 1)

    assert recorded(otel_ml_capture) == {("step", 1, "x"): 2.0, ("step", 1, "flag"): 1.0}


@pytest.mark.feature("N10", "better", "in every backend, and for arrays and tensors too")
@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3, 4],
        (1.0, 2.0, 3.0, 4.0),
        np.array([[1, 2], [3, 4]]),
        torch.tensor([1.0, 2, 3, 4]),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.bfloat16),
        [1, None, True, "x", np.float32(2), torch.tensor(3), 4],
    ],
    ids=repr,
)
def test_lists_are_summarised(logger: Logger, otel_ml_capture: Capture, values: Any) -> None:
    logger.log_metrics({"lengths": values, "none": []}, 1, prefix="train")

    assert {name: value for (_, _, name), value in recorded(otel_ml_capture).items()} == pytest.approx(
        {
            "train/lengths/mean": 2.5,
            "train/lengths/p50": 2.5,
            "train/lengths/p90": 3.7,
            "train/lengths/max": 4.0,
        }
    )


def test_a_list_of_flags_says_how_many_are_true_and_not_what_its_last_is(
    logger: Logger, otel_ml_capture: Capture
) -> None:
    logger.log_metrics({"truncated": [True, True, True, False]}, 1)

    found = {name: value for (_, _, name), value in recorded(otel_ml_capture).items()}
    assert found["truncated/mean"] == 0.75
    assert "truncated" not in found


def test_the_samples_of_all_generation_workers_are_one_list(logger: Logger, otel_ml_capture: Capture) -> None:
    workers = {"kv_cache": {0: [0.25, 0.75], 1: [0.5], 2: 0.5}, "replicas": 3}

    logger.log_metrics({"generation_logger_metrics": workers, "advantages": {"mean": 1.0}}, 1, prefix="train")

    found = {name: value for (_, _, name), value in recorded(otel_ml_capture).items()}
    assert found["train/generation_logger_metrics/kv_cache/mean"] == 0.5
    assert found["train/generation_logger_metrics/kv_cache/max"] == 0.75
    assert found["train/generation_logger_metrics/replicas"] == 3.0
    assert found["train/advantages/mean"] == 1.0
    assert workers == {"kv_cache": {0: [0.25, 0.75], 1: [0.5], 2: 0.5}, "replicas": 3}


def test_texts_are_kept_and_what_is_no_value_is_said_by_name(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.log_metrics({"template": "chatml", "when": date(2026, 1, 1), "gone": None, "names": ["a"]}, 4, "train")
    logger.log_metrics(["loss"], 4)  # type: ignore[arg-type]

    [text] = [event for event in otel_ml_capture.events if event.kind == "ml.text"]
    assert (text.name, text.step, text.body) == ("train/template", 4, "chatml")
    assert said(otel_ml_capture, "'train/when'", "a date")
    assert said(otel_ml_capture, "'train/gone'", "None")
    assert said(otel_ml_capture, "'train/names'")
    assert said(otel_ml_capture, "['loss']")


@pytest.mark.feature("N9", "better", "tables among the metrics are tables in every backend")
def test_tables_among_the_metrics_are_tables(logger: Logger, otel_ml_capture: Capture) -> None:
    import pandas as pd

    conversations = SimpleNamespace(columns=["prompt", "reward"], data=[["2+2?", 1.0]])  # as W&B's Table is
    frame = pd.DataFrame({"task": ["math"], "solved": [3]})

    logger.log_metrics({"conversations": conversations, "tasks": frame, "loss": 1.0}, 7, prefix="validation")

    tables = {event.name: (event.step, event.body) for event in otel_ml_capture.events if event.kind == "ml.table"}
    assert tables == {
        "validation/conversations": (7, {"columns": ["prompt", "reward"], "rows": [["2+2?", 1.0]]}),
        "validation/tasks": (7, {"columns": ["task", "solved"], "rows": [["math", 3]]}),
    }
    assert said(otel_ml_capture, "validation/") == []


def test_an_object_that_breaks_when_looked_at_does_not_stop_training_or_the_others(
    logger: Logger, otel_ml_capture: Capture
) -> None:
    class Broken:
        ndim = 2

        @property
        def size(self) -> int:
            raise RuntimeError("gone")

    class Worse:
        @property
        def columns(self) -> list[str]:
            raise RuntimeError("gone")

    logger.log_metrics({"bad": Broken(), "worse": Worse(), "loss": 1.0}, 1)

    assert recorded(otel_ml_capture) == {("step", 1, "loss"): 1.0}
    assert said(otel_ml_capture, "'bad'")
    assert said(otel_ml_capture, "'worse'")


def test_a_bad_step_is_said_and_nothing_raises(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.define_metric("eval/*", step_metric="eval/round")
    for step in (-1, 1.5, "x", True, [1], torch.tensor([1, 2])):
        logger.log_metrics({"loss": 1.0}, step, step_finished=True)  # type: ignore[arg-type]
    logger.log_metrics({"loss": 1.0}, np.int64(2), step_finished=True)  # type: ignore[arg-type]

    assert said(otel_ml_capture, "log()", "got 1.5")
    assert recorded(otel_ml_capture) == {("step", 2, "loss"): 1.0}


def test_a_name_that_is_no_text_is_written_as_one(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.log_metrics({0: {"solved": 1.0}, ("a", 1): 2.0}, 1)  # type: ignore[dict-item]

    assert {name for _, _, name in recorded(otel_ml_capture)} == {"0/solved", "('a', 1)"}


@pytest.mark.feature("N6", "better", "secrets are hidden; nested in W&B, flattened where a backend needs it")
def test_hyperparameters_may_be_nested(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.log_hyperparams({"policy": {"lr": 1e-6, "betas": [0.9, 0.95]}, "api_key": "abc"})

    [params] = [event.body for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert params == {"policy": {"lr": 1e-6, "betas": [0.9, 0.95]}, "api_key": "***"}


@pytest.mark.feature("N7", "better", "a histogram in every backend, also of equal values")
@pytest.mark.parametrize("values", [[1.0, 2.0, 2.0], [3.0, 3.0], torch.tensor([1.0, 2.0]), []], ids=repr)
def test_a_histogram_is_one_whatever_its_values(logger: Logger, otel_ml_capture: Capture, values: Any) -> None:
    logger.log_histogram(values, 5, "rewards")

    [event] = [event for event in otel_ml_capture.events if event.kind == "ml.histogram"]
    assert (event.name, event.step) == ("rewards", 5)
    assert sum(event.body["counts"]) == len(values)
    assert event.body["edges"] == sorted(event.body["edges"])


def test_a_logger_is_what_nemo_rl_calls_one(logger: Logger) -> None:
    assert isinstance(logger, LoggerInterface)
    assert (logger.wandb_logger, logger.swanlab_logger, logger.gpu_monitor) == (None, None, None)


def test_a_step_metric_that_no_float_can_hold_is_said_and_training_goes_on(
    logger: Logger, otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    logger.log_metrics({"ray/step": 10**400, "ray/util": 0.5}, 3, step_metric="ray/step")

    assert [(point.name, point.step) for point in otel_ml_capture.points] == [("ray/util", 3)]
    assert "log_metrics(step_metric='ray/step')" in caplog.text
