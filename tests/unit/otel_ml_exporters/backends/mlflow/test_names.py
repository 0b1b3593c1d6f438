from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml_exporters.backends.mlflow import MlflowExporter
from otel_ml_exporters.backends.mlflow.names import Names, fitting
from otel_ml_exporters.errors import PermanentExportError
from otel_ml_exporters.mlflow_run_search import experiment_name
from otel_ml_exporters.records import Params, RunInfo, StepRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient

NAMES = st.text(min_size=1, max_size=300) | st.text(alphabet="a/.@:_ 2", min_size=1, max_size=12)


def rules() -> ModuleType:
    """Return MLflow's own of names; imported here, for each process that collects tests would import MLflow with it."""
    from mlflow.utils import validation

    return validation


def client_of(uri: str) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(uri)


@given(NAMES)
def test_every_name_becomes_one_that_mlflow_takes_and_stays_what_it_is_where_it_can(name: str) -> None:
    key = fitting(name)

    rules()._validate_metric_name(key)
    assert len(key) <= rules().MAX_ENTITY_KEY_LENGTH
    assert fitting(key) == key


@given(st.lists(NAMES, unique=True), st.booleans())
def test_different_names_have_different_keys_the_same_ones_after_a_restart(names: list[str], is_of_files: bool) -> None:
    before = Names({}, [], is_of_files=is_of_files)
    keys = [before.key(name) for name in names]
    after = Names(before.unwritten, [key for key, name in zip(keys, names, strict=True) if key == name])

    assert len(set(keys)) == len(names)
    assert [after.key(name) for name in names] == keys
    assert [after.name(key) for key in keys] == names
    assert all(len(tag) <= rules().MAX_TAG_VAL_LENGTH for tag in before.unwritten.values())


@given(st.lists(st.text(alphabet="ab/", min_size=1, max_size=8), unique=True))
@example(["b", "b/b", "b/b/a"])
def test_in_a_store_of_files_no_key_is_a_folder_of_another_one(names: list[str]) -> None:
    given_names = Names({}, [], is_of_files=True)
    keys = [given_names.key(name) for name in names]

    assert not any(other.startswith(f"{key}/") for key in keys for other in keys)


def test_two_long_names_of_experiments_that_begin_alike_stay_two() -> None:
    names = [f"{'model.layers.0.lr=0.001,' * 30}seed={seed}" for seed in range(2)]

    found = {experiment_name(name) for name in names}

    assert len(found) == 2
    assert {len(name) for name in found} == {rules().MAX_EXPERIMENT_NAME_LENGTH}


def opened(folder: Path, **about: str) -> tuple[MlflowExporter, RunInfo]:
    run = RunInfo(id="one", experiment=about.get("experiment", "exp"), name="one", dir=folder / "exp" / "one",
                  started_at=0.0)  # fmt: skip
    exporter = MlflowExporter(tracking_uri=about.get("uri"))
    exporter.start(run)
    return exporter, run


def row(seq: int, values: dict[str, float]) -> StepRecord:
    return StepRecord(seq, "trainer", "step", seq, 0, float(seq), values)


def test_names_that_mlflow_refuses_are_there_readably_with_what_they_were_and_said_once(
    tmp_path: Path, mlflow_database: Path
) -> None:
    uri = f"sqlite:///{copied(mlflow_database, tmp_path)}"
    name = "lr=0.1," * 100
    exporter, run = opened(tmp_path, uri=uri, experiment=name)
    cut = exporter.notice
    exporter.export([row(1, {"val/AR@100": 5.0, "loss%": 1.0, "损失": 2.0, "x" * 400: 3.0})])
    exporter.shutdown(5.0, None)

    client = client_of(uri)
    experiment = client.get_experiment_by_name(experiment_name(name))
    [found] = client.search_runs([experiment.experiment_id])
    assert found.data.metrics == {"val/AR_at_100": 5.0, "loss_percent": 1.0, "损失": 2.0, "x" * 250: 3.0}
    assert experiment.tags["otel_ml.experiment_name"] == name
    assert '"val/AR_at_100": "val/AR@100"' in found.data.tags["otel_ml.names.0"]
    assert "more than the 500 characters" in str(cut)
    assert "'val/AR@100' is 'val/AR_at_100'" in str(exporter.notice)
    assert run.experiment == name


def copied(database: Path, folder: Path) -> Path:
    target = folder / "store.db"
    target.write_bytes(database.read_bytes())
    return target


def test_a_store_of_files_takes_a_metric_and_others_below_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    exporter, _ = opened(tmp_path, uri=(tmp_path / "mlruns").as_uri())
    exporter.export([row(1, {"prep": 1.0, "prep/weights": 2.0, "a/b": 3.0, "a": 4.0})])
    exporter.shutdown(5.0, None)
    again, _ = opened(tmp_path, uri=(tmp_path / "mlruns").as_uri())
    again.export([row(2, {"prep/weights": 5.0})])

    client = client_of((tmp_path / "mlruns").as_uri())
    [found] = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert found.data.metrics == {"prep": 1.0, "prep.weights": 5.0, "a/b": 3.0, "a_2": 4.0}


def test_parameters_have_names_as_metrics_have_them_in_a_store_of_files_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    params = {"lr": 1, "lr/decay": 2, "学习率": 3, "dropout (%)": {"layer 1": 4}, "p" * 300: 5, "../up": 6}
    for seq in (1, 2):  # the second time after a restart
        exporter, _ = opened(tmp_path, uri=uri)
        exporter.export([Params(seq, float(seq), params)])
        exporter.shutdown(5.0, None)

    client = client_of(uri)
    [found] = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert found.data.params == {
        "lr": "1", "lr.decay": "2", "学习率": "3", "dropout percent.layer 1": "4", "p" * 250: "5", "up": "6",
    }  # fmt: skip
    assert json.loads(found.data.tags["otel_ml.param_names.0"])["dropout percent.layer 1"] == "dropout (%).layer 1"
    assert "otel_ml.param_conflicts" not in found.data.tags
    assert "'lr/decay' is 'lr.decay'" in str(exporter.notice)


@pytest.mark.parametrize("letter", ["😀", "𠀀", "损"])
def test_a_name_of_letters_that_json_escapes_is_the_same_metric_after_a_restart(
    tmp_path: Path, mlflow_database: Path, letter: str
) -> None:
    uri = f"sqlite:///{copied(mlflow_database, tmp_path)}"
    for seq in (1, 2):
        exporter, _ = opened(tmp_path, uri=uri)
        exporter.export([row(seq, {letter * 1000: float(seq)})])
        exporter.shutdown(5.0, None)

    client = client_of(uri)
    [found] = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert list(found.data.metrics.values()) == [2.0]
    assert list(json.loads(found.data.tags["otel_ml.names.0"]).values()) == [letter * 1000]


def test_a_parameter_whose_name_no_tag_can_hold_ends_no_run(tmp_path: Path, mlflow_database: Path) -> None:
    uri = f"sqlite:///{copied(mlflow_database, tmp_path)}"
    for seq in (1, 2):
        exporter, _ = opened(tmp_path, uri=uri)
        exporter.export([Params(seq, float(seq), {"p" * 9000: 1, "学习率?": 2})])
        exporter.shutdown(5.0, None)

    client = client_of(uri)
    [found] = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert found.data.params["p" * 250] == "1"
    assert found.data.params[fitting("学习率?")] == "2"


def test_of_a_row_that_the_store_refuses_the_refused_values_are_named(
    tmp_path: Path, mlflow_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{copied(mlflow_database, tmp_path)}"
    exporter, _ = opened(tmp_path, uri=uri)
    # A server of another version may have rules of its own.
    monkeypatch.setattr(rules(), "MAX_ENTITY_KEY_LENGTH", 20)
    values = {f"layer_{at}/grad": float(at) for at in range(40)} | {"a/name/of/more/than/twenty": 1.0}

    with pytest.raises(PermanentExportError) as caught:
        exporter.export([row(1, values)])
    taken = row(1, {name: value for name, value in values.items() if name not in caught.value.names})
    exporter.export([taken])

    assert caught.value.names == {"a/name/of/more/than/twenty"}
    client = client_of(uri)
    [found] = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert found.data.metrics == taken.values
