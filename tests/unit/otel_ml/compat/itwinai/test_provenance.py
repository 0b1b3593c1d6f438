from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from otel_ml.compat.itwinai import LoggersCollection, MLFlowLogger, Prov4MLLogger
from otel_ml.testing import Capture
from tests.waiting import eventually


def documents(capture: Capture) -> dict[str, bytes]:
    events = [event for event in capture.events if event.kind == "ml.artifact"]
    return {str(event.name): event.body for event in events if event.attributes["ml.artifact.type"] == "provenance"}


@pytest.mark.feature("I16", "yes", "PROV-JSON, the graph as dot, and as svg where Graphviz is")
def test_the_document_holds_what_the_run_used_and_what_each_context_generated(otel_ml_capture: Capture) -> None:
    from prov.model import ProvDocument

    logger = Prov4MLLogger(prov_user_namespace="example.com/me")
    with logger.start_logging(rank=0):
        logger.save_hyperparameters({"lr": 0.1})
        for step in range(3):
            logger.log(step / 2, "loss", step=step)
            logger.log(step / 4, "loss", step=step, context="validation")
        logger.log(0.9, "accuracy", kind="param")
    run = logger.run_id

    found = documents(otel_ml_capture)
    assert {"provenance/provenance.json", "provenance/provenance.dot"} <= set(found)
    content = json.loads(found["provenance/provenance.json"])
    assert content["prefix"] == {"ex": "http://example.com/me/"}
    assert content["activity"]["ex:run"]["ex:run_id"] == run
    assert {"ex:run", "ex:training", "ex:validation"} == set(content["activity"])
    entities = [(entity["prov:label"], entity["ex:kind"]) for entity in content["entity"].values()]
    assert sorted(entities) == [("accuracy", "param"), ("loss", "metric"), ("loss", "metric"), ("lr", "param")]
    losses = [entity for entity in content["entity"].values() if entity["prov:label"] == "loss"]
    assert sorted(float(entity["ex:last"]["$"]) for entity in losses) == [0.5, 1.0]
    assert len(content["wasGeneratedBy"]) == 2
    assert len(content["used"]) == 2
    ProvDocument.deserialize(content=found["provenance/provenance.json"].decode())  # another program reads it
    assert found["provenance/provenance.dot"].startswith(b"digraph")


def test_what_a_kind_measures_is_in_the_document_as_it_was_measured(otel_ml_capture: Capture, tmp_path: Path) -> None:
    """`yprov4ml` has each as a metric of the document, too."""
    layer = torch.nn.Linear(4, 3)
    logger = Prov4MLLogger(provenance_save_dir=tmp_path, create_graph=False)
    with logger.start_logging(rank=0):
        for step in range(2):
            logger.log((layer, torch.ones(2, 4)), "flops", kind="flops_pb", step=step)
            logger.log(None, "host", kind="system", step=step)
            logger.log(None, "seconds", kind="execution_time", step=step)
            logger.log({"emissions_kg": 0.5}, "co2", kind="carbon", step=step)
        logger.log((layer, "no batch"), "broken", kind="flops_pb", step=0)

    content = json.loads(documents(otel_ml_capture)["provenance/provenance.json"])
    found = {entity["prov:label"]: entity for entity in content["entity"].values()}
    assert {"flops", "host/cpu_usage", "host/memory_usage", "seconds", "co2/emissions_kg"} <= set(found)
    assert "broken" not in found
    assert {int(found[name]["ex:count"]["$"]) for name in ("flops", "host/cpu_usage", "seconds")} == {2}
    assert float(found["flops"]["ex:last"]["$"]) == otel_ml_capture.values("flops")[-1] > 0
    with (tmp_path / str(logger.run_id) / "metrics" / "training" / "flops.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["0", "1"]


@pytest.mark.feature("I22", "yes", "save_after_n_logs; a thread of its own writes them")
def test_records_are_kept_in_memory_until_there_are_so_many(otel_ml_capture: Capture, tmp_path: Path) -> None:
    logger = Prov4MLLogger(provenance_save_dir=tmp_path / "prov", save_after_n_logs=4, create_graph=False)
    logger.create_logger_context()
    path = tmp_path / "prov" / str(logger.run_id) / "metrics" / "training" / "loss.csv"
    for step in range(3):
        logger.log(float(step), "loss", step=step)
    assert not path.exists()

    logger.log(3.0, "loss", step=3)
    eventually(lambda: path.exists() and len(path.read_text().splitlines()) == 5)
    logger.log(4.0, "loss", step=4)
    logger.destroy_logger_context()

    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["step"], float(row["value"])) for row in rows] == [(str(step), float(step)) for step in range(5)]
    assert documents(otel_ml_capture)["provenance/metrics/training/loss.csv"] == path.read_bytes()


def test_what_is_no_number_costs_no_other_metric_its_values(otel_ml_capture: Capture, tmp_path: Path) -> None:
    import torch

    logger = Prov4MLLogger(provenance_save_dir=tmp_path, create_graph=False, create_svg=False)
    with logger.start_logging():
        logger.log(0.5, "loss", step=0)
        logger.log(torch.tensor([1.0, 2.0]), "per_class", step=0)
        logger.log(10**400, "huge", step=0)
        logger.log(0.25, "loss", step=1)

    file = tmp_path / str(logger.run_id) / "metrics" / "training" / "loss.csv"
    assert [float(row["value"]) for row in csv.DictReader(file.read_text().splitlines())] == [0.5, 0.25]


def test_a_tensor_that_is_changed_after_it_was_logged_keeps_its_value(otel_ml_capture: Capture, tmp_path: Path) -> None:
    import torch

    logger = Prov4MLLogger(provenance_save_dir=tmp_path, create_graph=False, create_svg=False)
    with logger.start_logging():
        loss = torch.tensor(2.0)
        logger.log(loss, "loss", step=0)
        loss += 5

    file = tmp_path / str(logger.run_id) / "metrics" / "training" / "loss.csv"
    [row] = csv.DictReader(file.read_text().splitlines())
    assert float(row["value"]) == 2.0


def test_in_a_collection_the_document_holds_what_the_others_log_too(otel_ml_capture: Capture) -> None:
    with LoggersCollection([MLFlowLogger(), Prov4MLLogger(create_graph=False)]).start_logging() as logger:
        logger.log("hello", "note", kind="text", step=0)
        logger.save_hyperparameters({"lr": 0.1, "api_key": "secret"})

    content = json.loads(documents(otel_ml_capture)["provenance/provenance.json"])
    noted = {entity["prov:label"]: (entity["ex:kind"], entity["ex:value"]) for entity in content["entity"].values()}
    assert noted == {"note": ("text", "hello"), "lr": ("param", "0.1"), "api_key": ("param", '"***"')}


def test_documents_that_are_given_are_kept(otel_ml_capture: Capture, tmp_path: Path) -> None:
    """READING: `prov_documents` is handled but not listed."""
    file = tmp_path / "prov.json"
    file.write_text("{}")

    with MLFlowLogger().start_logging() as logger:
        logger.log([str(file)], "mine", kind="prov_documents")

    assert documents(otel_ml_capture) == {"mine": b"{}"}


def test_a_folder_that_cannot_be_written_is_said_and_training_goes_on(otel_ml_capture: Capture, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    logger = Prov4MLLogger(provenance_save_dir=tmp_path / "file")

    with logger.start_logging():
        logger.log(0.5, "loss", step=0)

    assert otel_ml_capture.values("loss") == [0.5]
    assert any("cannot be written" in sentence for sentence in otel_ml_capture.notices)
