"""ROLL's `create_tracker` and reductions in keys: what is recorded, under which name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml.compat.roll import create_tracker, reduce_metrics, reduce_metrics_list, strip_at_tag_in_log
from otel_ml.compat.roll.tracker import Tracker
from otel_ml.config import Config
from otel_ml.testing import Capture, Point, capture
from otel_ml.warn_once import forget_warnings


@pytest.fixture
def captured() -> Iterator[Capture]:
    forget_warnings()
    with capture() as run:
        yield run


@pytest.fixture
def tracker(captured: Capture) -> Tracker:
    return Tracker(prints=False)


def the_point(captured: Capture, name: str) -> Point:
    [point] = [point for point in captured.points if point.name == name]
    return point


@pytest.mark.feature("R3", "better", "reduced over all ranks by the service; `/max` counts too")
@pytest.mark.parametrize(
    ("key", "name", "reduction"),
    [
        ("actor/pg_loss@sum", "actor/pg_loss", "sum"),
        ("actor/ratio@max", "actor/ratio", "max"),
        ("actor/ratio_min", "actor/ratio_min", "min"),
        ("latency_p99", "latency_p99", "p99"),
        ("critic/score/max", "critic/score/max", "max"),
        ("advantages@std", "advantages", "std"),
        ("wait@p50", "wait", "p50"),
        ("actor/approxkl", "actor/approxkl", "mean"),
    ],
)
def test_a_key_names_its_reduction_and_the_published_name_has_none(
    captured: Capture, tracker: Tracker, key: str, name: str, reduction: str
) -> None:
    tracker.log({key: [1.0, 2.0, 4.0]}, step=3)

    point = the_point(captured, name)
    assert (point.step, point.reduction, point.count) == (3, reduction, 3)


def test_an_unknown_tag_is_said_and_does_not_stop_training(
    captured: Capture, tracker: Tracker, caplog: pytest.LogCaptureFixture
) -> None:
    for step in range(2):
        tracker.log({"loss@median": [1.0, 3.0]}, step=step)

    assert captured.values("loss") == [2.0, 2.0]
    assert caplog.text.count("'loss@median'") == 1


def test_a_number_that_is_a_deviation_already_stays_what_it_is(captured: Capture, tracker: Tracker) -> None:
    metrics = reduce_metrics({"advantages@std": [1.0, 3.0], "tokens@sum": [1.0, 2.0]})
    assert metrics == {"advantages@std": 1.0, "tokens@sum": 3.0}

    tracker.log(metrics, step=0)

    assert captured.values("advantages") == [1.0]
    assert the_point(captured, "advantages").reduction == "last>mean"


@pytest.mark.feature("R4", "better", "lists, arrays, tensors and numpy numbers are kept")
@pytest.mark.parametrize("value", [[1.0, 3.0], (1.0, 3.0), np.array([1.0, 3.0], np.float32), np.array([[1.0], [3.0]])])
def test_values_that_roll_drops_are_recorded(captured: Capture, tracker: Tracker, value: Any) -> None:
    tracker.log({"reward": value, "lr": np.float32(0.5), "nothing": [], "none_yet": np.zeros(0)}, step=0)

    assert captured.values("reward") == [2.0]
    assert captured.values("lr") == [0.5]
    assert {point.name for point in captured.points} == {"reward", "lr"}


def test_a_tensor_is_recorded(captured: Capture, tracker: Tracker) -> None:
    import torch

    tracker.log({"reward": torch.tensor([[1.0, 2.0], [3.0, 6.0]])}, step=0)

    assert captured.values("reward") == [3.0]


@pytest.mark.feature("R7", "yes", "texts and groups")
@pytest.mark.feature("R5", "yes", "names of roles, clusters and domains pass unchanged")
def test_texts_and_groups_keep_their_names(captured: Capture, tracker: Tracker) -> None:
    tracker.log({"note": "first try", "actor": {"lr": 1e-6, "clip": {"frac@max": [0.1, 0.3]}}}, step=1)

    assert [(event.name, event.step, event.body) for event in captured.events] == [("note", 1, "first try")]
    assert captured.values("actor/lr") == [1e-6]
    assert the_point(captured, "actor/clip/frac").reduction == "max"


class OnDevice:
    """As a device tensor: whoever asks for its value waits."""

    shape = ()

    def __float__(self) -> float:
        raise AssertionError


def test_what_cannot_be_recorded_does_not_stop_training(captured: Capture) -> None:
    tracker = Tracker(prints=True)

    tracker.log({"odd": [None, "x"], "none": None, "objects": np.array([None]), "loss": 1.0}, step=0)

    assert captured.values("loss") == [1.0]
    assert tracker.log_history == [{"step": 0, "metrics": {"loss": 1.0}}]


@pytest.mark.parametrize("values", [None, [("loss", 1.0)]])
def test_values_that_are_no_mapping_are_said_and_do_not_stop_training(
    captured: Capture, tracker: Tracker, values: Any
) -> None:
    tracker.log(values, step=3)
    tracker.log({"loss": 1.0}, step=3)

    assert "Tracker.log(values=" in " ".join(captured.notices)
    assert captured.values("loss") == [1.0]


def test_the_line_of_a_step_has_numbers_of_numpy_as_numbers(
    captured: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    Tracker(prints=True).log({"tokens": np.int64(5), "loss": np.float32(0.5), "note": "x"}, step=3)

    line = capsys.readouterr().out.removeprefix("metrics_tag: ")
    assert json.loads(line) == {"step": 3, "metrics": {"tokens": 5, "loss": 0.5, "note": "x"}}


def test_the_history_asks_no_device_for_a_value(captured: Capture, tracker: Tracker) -> None:
    tracker.log({"loss": OnDevice(), "losses": [OnDevice()], "lr": 0.5}, step=3)

    assert tracker.log_history == [{"step": 3, "metrics": {"lr": 0.5}}]


@pytest.mark.parametrize("key", ["loss", "loss@sum", "loss@max", "loss@std"])
@pytest.mark.parametrize("kind", [float, np.float32, np.array])
def test_of_a_number_that_is_logged_twice_at_a_step_the_last_counts(
    captured: Capture, tracker: Tracker, key: str, kind: Callable[[float], Any]
) -> None:
    for value in (3.0, 1.0):
        tracker.log({key: kind(value)}, step=1)

    point = the_point(captured, "loss")
    assert (point.step, point.value) == (1, 1.0)
    assert point.reduction.startswith("last>")


def test_of_lists_that_are_logged_twice_at_a_step_each_element_counts(captured: Capture, tracker: Tracker) -> None:
    for values in ([1.0, 2.0], [6.0]):
        tracker.log({"reward": values}, step=1)

    point = the_point(captured, "reward")
    assert (point.count, point.mean, point.reduction) == (3, 3.0, "mean")


def test_a_weight_counts_in_means_only(captured: Capture, tracker: Tracker) -> None:
    tracker.log({"loss": 2.0, "tokens@sum": 5.0}, step=0, weight=3)

    assert {point.name for point in captured.points} == {"loss", "tokens"}
    assert not captured.notices


def test_an_empty_name_is_a_tracker_that_records_nothing() -> None:
    tracker = create_tracker("", {"lr": 1})

    tracker.log({"loss": 1.0}, step=0)
    tracker.finish()

    assert tracker.log_history == []


def test_an_unknown_tracker_is_a_value_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'tensorbord'.*tensorboard, wandb"):
        create_tracker("tensorbord", {})


@pytest.mark.feature("R8", "better", "nested values and lists too")
@pytest.mark.feature("R1", "better", "several at once, separated by commas")
def test_parameters_are_recorded_and_what_has_no_meaning_is_said(
    captured: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = create_tracker("tensorboard, wandb", {"lr": 1e-6, "roles": ["actor"]}, api_key="secret", log_dir="/tmp/x")

    assert isinstance(tracker, Tracker)
    [params] = [event.body for event in captured.events if event.kind == "ml.params"]
    assert params == {"lr": 1e-6, "roles": ["actor"]}
    assert "api_key, log_dir have no meaning" in caplog.text
    assert "secret" not in caplog.text


def test_stdout_gets_one_line_of_json_a_step(captured: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    Tracker(prints=True).log({"loss@sum": [1.0, 2.0], "note": "x"}, step=4)

    tag, _, line = capsys.readouterr().out.partition(" ")
    assert tag == "metrics_tag:"
    assert json.loads(line) == {"step": 4, "metrics": {"loss": 3.0, "note": "x"}}


@pytest.mark.feature("R17", "better", "a continued run still has its history; a new one can be given it")
def test_a_history_can_be_recorded_again(captured: Capture, tracker: Tracker) -> None:
    for step in range(3):
        tracker.log({"loss": [float(step), step + 1.0], "score@std": [1.0, 3.0]}, step=step)
    checkpoint = json.loads(json.dumps(tracker.log_history))
    assert captured.values("loss") == [0.5, 1.5, 2.5]

    later = Tracker(prints=False)
    later.replay(checkpoint)

    assert later.log_history == checkpoint
    assert captured.values("loss") == [0.5, 1.5, 2.5]


def test_reduce_metrics_leaves_what_is_no_sequence_and_uses_the_given_function() -> None:
    metrics: dict[str, Any] = {"a": [1.0, 5.0, 3.0], "b_max": (1.0, 2.0), "c@p50": [1.0, 2.0, 9.0], "d": 4, "e": []}

    assert reduce_metrics(metrics, np.median) is metrics
    assert metrics == {"a": 3.0, "b_max": 2.0, "c@p50": 2.0, "d": 4, "e": []}


def test_workers_may_have_different_keys() -> None:
    merged = reduce_metrics_list([{"loss": [1.0, 2.0], "only@sum": [3.0]}, {"loss": 6.0}])

    assert merged == {"loss": 3.0, "only@sum": 3.0}


def test_a_tracker_of_ones_own_gets_keys_without_tags() -> None:
    class Mine:
        @strip_at_tag_in_log
        def log(self, values: dict[str, Any], step: int, **_: Any) -> dict[str, Any]:
            return values

    assert Mine().log({"loss@sum": 1, "group": {"x@max": 2}, "plain": 3}, step=0) == {
        "loss": 1,
        "group": {"x": 2},
        "plain": 3,
    }


@pytest.mark.feature("R22", "yes", "ids are from the system's randomness: a seed changes nothing")
def test_ids_do_not_follow_the_seed_of_training(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    ids = set()
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)
        with capture():
            ids.add(otel_ml.child_env()["OTEL_ML_EXPERIMENT_ID"])

    assert len(ids) == 2


@pytest.mark.parametrize("mode", [None, "remote"])
def test_a_run_is_not_sent_to_the_collector_of_rolls_own_traces(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str | None
) -> None:
    forget_warnings()
    monkeypatch.setenv("ROLL_OTEL_ENABLED", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("OTEL_ML_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("OTEL_ML_MODE", mode)

    tracker = Tracker(prints=False)
    is_remote = Config.from_env(os.environ).is_remote
    tracker.finish()

    assert is_remote is (mode == "remote")
    assert os.environ.get("OTEL_ML_MODE") == mode
    assert ("takes traces alone" in caplog.text) is (mode is None)
