from __future__ import annotations

import json
import logging
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml.compat.itwinai import (
    ConsoleLogger,
    Logger,
    LoggersCollection,
    MLFlowLogger,
    Prov4MLLogger,
    TensorBoardLogger,
    WandBLogger,
)
from otel_ml.compat.itwinai.kinds import KINDS
from otel_ml.compat.itwinai.measure import Energy
from otel_ml.testing import Capture, Event, capture
from tests.waiting import eventually


def files_of(capture: Capture) -> dict[str, list[Event]]:
    """Return the name of each artifact and its files."""
    found: dict[str, list[Event]] = {}
    for event in capture.events:
        if event.kind == "ml.artifact":
            found.setdefault(str(event.name), []).append(event)
    return found


def shown(capture: Capture, kind: str) -> list[tuple[str | None, int | None]]:
    return [(event.name, event.step) for event in capture.events if event.kind == kind]


@pytest.mark.feature("I2", "yes", "all 18 kinds")
def test_there_are_the_18_kinds() -> None:
    assert len(KINDS) == 18


def test_values_without_a_step_are_a_row_each(otel_ml_capture: Capture) -> None:
    with WandBLogger(log_freq="batch").start_logging() as logger:
        for batch in range(3):
            logger.log(3.0 - batch, "loss", batch_idx=batch)
        logger.log(0.5, "accuracy")
        with otel_ml.step(7):
            logger.log(7.0, "inside")

    places = {(point.name, point.step): point.value for point in otel_ml_capture.points}
    assert places == {
        ("loss", 0): 3.0, ("loss", 1): 2.0, ("loss", 2): 1.0, ("accuracy", 2): 0.5, ("inside", 7): 7.0,
    }  # fmt: skip


def test_of_a_worker_s_values_of_a_name_at_one_step_the_last_counts(otel_ml_capture: Capture) -> None:
    with MLFlowLogger(log_on_workers=-1).start_logging(rank=1) as logger:
        for value in (1.0, 2.0):
            logger.log(value, "loss", step=3)
            logger.log(value, "tokens", step=3, reduce="sum")

    found = {point.name: (point.reduction, point.value) for point in otel_ml_capture.points}
    assert found == {"loss": ("last>mean,rank", 2.0), "tokens": ("sum", 3.0)}


@pytest.mark.feature("I12", "yes", "image, figure, text, dict, dataset, model and files")
def test_everything_that_is_shown_is_recorded_at_its_step(otel_ml_capture: Capture) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2])
    with MLFlowLogger().start_logging() as logger:
        logger.log(0.5, "loss", kind="metric", step=1)
        logger.log(figure, "curve", kind="figure", step=2)
        logger.log(np.zeros((4, 4, 3), np.uint8), "digit", kind="image", step=3)
        logger.log("hello", "note", kind="text", step=4)
        logger.log(0.1, "lr", kind="param")

    assert otel_ml_capture.values("loss") == [0.5]
    assert shown(otel_ml_capture, "ml.image") == [("curve", 2), ("digit", 3)]
    assert shown(otel_ml_capture, "ml.text") == [("note", 4)]
    assert [event.body for event in otel_ml_capture.events if event.kind == "ml.params"] == [{"lr": 0.1}]


def test_a_dictionary_is_a_file_of_the_form_its_name_says(otel_ml_capture: Capture) -> None:
    with MLFlowLogger().start_logging() as logger:
        logger.log({"a": [1, 2]}, "config.yaml", kind="dict")
        logger.log({"a": [1, 2]}, "config", kind="dict")

    files = files_of(otel_ml_capture)
    assert files["config.yaml"][0].body == b"a:\n- 1\n- 2\n"
    assert json.loads(files["config"][0].body) == {"a": [1, 2]}


def test_a_file_is_an_artifact_and_anything_else_is_pickled(otel_ml_capture: Capture, tmp_path: Path) -> None:
    """READING: `serialize` does not return the path it promises, so another item than a path reached MLflow as None."""
    report = tmp_path / "report.txt"
    report.write_text("fine")
    with MLFlowLogger().start_logging() as logger:
        logger.log(str(report), "report", kind="artifact", step=5)
        logger.log({1, 2}, "indices", kind="artifact")

    files = files_of(otel_ml_capture)
    assert (files["report"][0].body, files["report"][0].step) == (b"fine", 5)
    assert pickle.loads(files["indices"][0].body) == {1, 2}


def test_serialize_returns_the_path_of_what_it_wrote(tmp_path: Path) -> None:
    path = ConsoleLogger(savedir=tmp_path / "logs").serialize([1, 2], "deep/list.pkl")

    assert path == str(tmp_path / "logs" / "deep" / "list.pkl")
    assert pickle.loads(Path(path).read_bytes()) == [1, 2]


def test_a_folder_is_an_artifact_of_the_console_logger_from_the_first_one_on(
    otel_ml_capture: Capture, tmp_path: Path
) -> None:
    """READING: ConsoleLogger's directory artifact on first use takes max() of an empty list."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.txt").write_text("a")

    with ConsoleLogger().start_logging() as logger:
        logger.log(str(tmp_path / "results"), "results", kind="artifact")

    assert [event.body for event in files_of(otel_ml_capture)["results"]] == [b"a"]


def test_the_console_logger_shows_metrics_at_info(otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    with ConsoleLogger().start_logging() as logger:
        logger.log(0.5, "loss", step=0)

    assert "ConsoleLogger: loss = 0.5" in caplog.messages


def test_a_model_is_kept_each_time_it_is_logged_and_the_best_one_has_that_alias(otel_ml_capture: Capture) -> None:
    model = torch.nn.Linear(2, 1)
    with Prov4MLLogger().start_logging() as logger:
        logger.log(model, "net", kind="model", step=1)
        with torch.no_grad():
            model.weight.zero_()
        logger.log(model.state_dict(), "net", kind="best_model", step=2)

    first, best = files_of(otel_ml_capture)["net"]
    assert (first.step, first.attributes["ml.artifact.type"], list(first.attributes["ml.artifact.aliases"])) == (
        1, "model", ["latest"],
    )  # fmt: skip
    assert (best.step, list(best.attributes["ml.artifact.aliases"])) == (2, ["latest", "best"])
    assert first.body != best.body


def test_a_data_set_is_described(otel_ml_capture: Capture) -> None:
    dataset = torch.utils.data.TensorDataset(torch.zeros(6, 2))
    with MLFlowLogger().start_logging() as logger:
        logger.log(dataset, "train", kind="dataset")

    [file] = files_of(otel_ml_capture)["train"]
    assert json.loads(file.body) == {"class": "torch.utils.data.dataset.TensorDataset", "length": 6}


@pytest.mark.feature("I13", "yes", "gradients as histograms, at the first backward pass and every n-th")
def test_a_watched_model_records_its_gradients(otel_ml_capture: Capture) -> None:
    model = torch.nn.Linear(2, 1)
    with WandBLogger().start_logging() as logger:
        logger.log(model, "net", kind="watch", log_freq=2)
        for step in range(4):
            logger.log(0.0, "loss", step=step)
            model(torch.ones(3, 2)).sum().backward()
            model.zero_grad()

    assert sorted(shown(otel_ml_capture, "ml.histogram")) == [
        ("gradients/bias", 0), ("gradients/bias", 2), ("gradients/weight", 0), ("gradients/weight", 2),
    ]  # fmt: skip


def test_a_watched_model_records_nothing_into_the_run_after_it() -> None:
    model = torch.nn.Linear(2, 1)
    for watched in (True, False):
        with capture() as run, ConsoleLogger().start_logging() as logger:
            if watched:
                logger.log(model, "net", kind="watch", log_freq=1)
            logger.log(0.0, "loss", step=0)
            model(torch.ones(3, 2)).sum().backward()

    assert shown(run, "ml.histogram") == []


def test_counting_operations_leaves_each_module_in_its_mode(otel_ml_capture: Capture) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4)).train()
    model[1].eval()
    with ConsoleLogger().start_logging() as logger:
        logger.log((model, torch.ones(16, 8)), "flops", kind="flops_pb", step=0)

    assert [module.training for module in model] == [True, False]
    assert model.training


def test_inputs_that_are_a_pair_are_both_given_to_the_model(otel_ml_capture: Capture) -> None:
    batches = [((torch.ones(16, 8), torch.ones(16, 8)), torch.ones(16))]
    with ConsoleLogger().start_logging() as logger:
        logger.log((torch.nn.Bilinear(8, 8, 4), batches), "flops", kind="flops_pe", step=0)

    assert otel_ml_capture.values("flops") != []


@pytest.mark.feature("I14", "yes", "of a batch, and of an epoch")
def test_operations_of_a_batch_and_of_an_epoch_are_counted(otel_ml_capture: Capture) -> None:
    model = torch.nn.Linear(8, 4, bias=False).train()
    batches = [(torch.ones(16, 8), torch.ones(16)), (torch.ones(16, 8), torch.ones(16)), (torch.ones(2, 8), None)]
    with Prov4MLLogger().start_logging() as logger:
        logger.log((model, batches[0]), "flops", kind="flops_pb", step=0)
        logger.log((model, batches), "flops_epoch", kind="flops_pe", step=0)

    assert otel_ml_capture.values("flops") == [2.0 * 16 * 8 * 4]
    assert otel_ml_capture.values("flops_epoch") == [2.0 * (16 + 16 + 2) * 8 * 4]
    assert model.training


@pytest.mark.feature("I15", "better", "measured by counters, or the number you measured; in every backend")
def test_what_the_system_does_is_measured_and_what_was_measured_is_taken(otel_ml_capture: Capture) -> None:
    with MLFlowLogger().start_logging() as logger:
        logger.log(None, "system", kind="system", step=4)
        logger.log(2.5, "emissions", kind="carbon", step=4)
        logger.log(None, "elapsed", kind="execution_time", step=4)

    points = {point.name: point for point in otel_ml_capture.points if point.step == 4}
    assert points["system/memory_usage"].value > 0
    assert points["system/process_memory_bytes"].value > 1e6
    assert points["emissions"].value == 2.5
    assert points["elapsed"].value > 0


@pytest.mark.feature("I23", "yes", "whole seconds since the context was created, on an axis of their own")
def test_system_metrics_without_a_step_have_the_second_as_step(otel_ml_capture: Capture) -> None:
    with Prov4MLLogger().start_logging() as logger:
        logger.log(None, "system", kind="system")
        logger.log(0.3, "emissions", kind="carbon")

    assert otel_ml_capture.values("emissions", axis="seconds") == [0.3]
    [point] = [point for point in otel_ml_capture.points if point.name == "system/memory_usage"]
    assert point.axis == "seconds"
    assert point.step in range(60)


def test_energy_that_nothing_measures_is_absent_and_said(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_ml.compat.itwinai.measure._counters", list)  # this host may have some
    with Prov4MLLogger().start_logging() as logger:
        logger.log(None, "carbon", kind="carbon", step=0)

    assert otel_ml_capture.points == []
    assert any("nothing measures energy" in sentence for sentence in otel_ml_capture.notices)


def test_energy_is_the_difference_of_counters_also_where_one_begins_again() -> None:
    readings = {"package": iter([990.0, 15.0]), "gpu": iter([100.0, 250.0])}
    counters = [(lambda: next(readings["package"]), 1000.0), (lambda: next(readings["gpu"]), 0.0)]

    energy = Energy(counters)
    energy.stop()

    assert energy.joules() == 25.0 + 150.0


def test_energy_counts_each_time_that_a_counter_begins_again() -> None:
    used, seen = [990.0], [0.0]

    def read() -> float:
        seen[0] = used[0]
        return seen[0] % 1000.0

    energy = Energy([(read, 1000.0)], every=0.001)
    for joules in (1590.0, 2190.0, 2790.0, 3390.0):
        used[0] = joules
        eventually(lambda joules=joules: seen[0] == joules)

    assert energy.joules() == pytest.approx(3390.0 - 990.0)
    energy.stop()


def test_nothing_looks_at_the_counters_once_a_context_has_ended(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapping = (lambda: 1.0, 1000.0)
    monkeypatch.setattr("otel_ml.compat.itwinai.measure._counters", lambda: [wrapping])  # this host may have none

    before = set(threading.enumerate())

    def looks() -> bool:
        return any(one.name == "otel_ml_energy_counters" for one in {*threading.enumerate()} - before)

    with Prov4MLLogger().start_logging():
        assert looks()
    eventually(lambda: not looks())


@pytest.mark.parametrize(
    ("logger", "item", "kind"),
    [
        (WandBLogger, {"a": 1}, "dataset"),
        (WandBLogger, [1, 2], "artifact"),
        (ConsoleLogger, "text", "text"),
        (TensorBoardLogger, {"a": 1}, "dict"),
        (MLFlowLogger, {"a": 1}, "hologram"),
    ],
)
def test_what_a_logger_has_no_place_for_is_kept_as_an_artifact_and_said_once(
    logger: type[Logger], item: Any, kind: str, otel_ml_capture: Capture
) -> None:
    """READING: unsupported kinds are silently ignored."""
    with logger().start_logging() as made:
        made.log(item, "thing", kind=kind, step=1)
        made.log(item, "thing", kind=kind, step=2)

    kept = files_of(otel_ml_capture)["thing"]
    assert [file.step for file in kept] == [1, 2]
    [said] = [sentence for sentence in otel_ml_capture.notices if "kept as an artifact" in sentence]
    assert logger.__name__ in said
    assert repr(kind) in said
    assert "otel-ml explain itwinai-artifact" in said


def test_a_collection_keeps_only_what_none_of_its_loggers_has_a_place_for(otel_ml_capture: Capture) -> None:
    with LoggersCollection([WandBLogger(), MLFlowLogger()]).start_logging() as logger:
        logger.log({"rows": 3}, "data", kind="dataset")

    assert [file.attributes["ml.artifact.type"] for file in files_of(otel_ml_capture)["data"]] == ["dataset"]
    assert otel_ml_capture.notices == []


def test_what_cannot_be_recorded_is_said_and_does_not_stop_training(otel_ml_capture: Capture) -> None:
    with MLFlowLogger().start_logging() as logger:
        logger.log("high", "loss", kind="metric", step=0)
        logger.log("no/such/file.txt", "file", kind="artifact")
        logger.log(lambda: None, "function", kind="artifact")
        logger.log((torch.nn.Linear(2, 1), torch.ones(3, 5)), "flops", kind="flops_pb", step=0)
        logger.log(0.5, "loss", kind="metric", step=1)

    assert otel_ml_capture.values("loss") == [0.5]
    assert len(otel_ml_capture.notices) == 4


def test_the_step_that_is_given_is_the_step(otel_ml_capture: Capture) -> None:
    """READING: W&B drops the user's step."""
    with WandBLogger().start_logging() as logger:
        for step in (0, 10, 20):
            logger.log(step / 10, "loss", step=step)

    assert [point.step for point in otel_ml_capture.points] == [0, 10, 20]
