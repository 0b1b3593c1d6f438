"""A trial is a run: its id is part of the run's, whatever the job was given."""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace

import pytest

import otel_ml
from otel_ml._internal.identity.ranks import detect
from otel_ml._internal.identity.run_identity import identify
from otel_ml._internal.identity.trials import trial
from otel_ml.config import Config


class Sweep:
    """Hydra's word on the job of a sweep that runs, at its boundary."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mode, self.number = "MULTIRUN", 0
        module = types.ModuleType("hydra.core.hydra_config")
        vars(module).update(HydraConfig=SimpleNamespace(initialized=lambda: True, get=self.get))
        monkeypatch.setitem(sys.modules, "hydra.core.hydra_config", module)

    def get(self) -> SimpleNamespace:
        return SimpleNamespace(mode=SimpleNamespace(name=self.mode), job=SimpleNamespace(num=self.number))


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Sweep:
    return Sweep(monkeypatch)


def run_id(environ: dict[str, str], **arguments: str) -> str:
    return identify(Config.from_env(environ, **arguments), environ).run_id  # type: ignore[arg-type]


def tune_session(trial_id: str) -> types.ModuleType:
    module = types.ModuleType("ray.train._internal.session")
    vars(module).update(get_session=lambda: SimpleNamespace(trial_id=trial_id))
    return module


def test_there_is_no_trial_without_a_search() -> None:
    assert trial() == ""


def test_ray_tune_says_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.train._internal.session", tune_session("a1e44_00002"))

    assert trial() == "a1e44_00002"


def test_the_training_that_a_trial_begins_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class TuneReportCallback:
        pass

    run = SimpleNamespace(run_id="0c3ff355ffffffff", run_config=SimpleNamespace(callbacks=[TuneReportCallback()]))
    module = types.ModuleType("ray.train.v2._internal.execution.context")
    vars(module).update(_train_context=SimpleNamespace(train_run_context=run))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    assert trial() == "0c3ff355"
    run.run_config.callbacks = None
    assert trial() == ""


def test_what_cannot_be_asked_is_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.train._internal.session", types.ModuleType("ray.train._internal.session"))

    assert trial() == ""


def test_trials_that_were_given_one_id_are_a_run_each(sweep: Sweep) -> None:
    environ = {"OTEL_ML_EXPERIMENT_ID": "search"}

    first = run_id(environ)
    sweep.number = 1

    assert (first, run_id(environ)) == ("search-0", "search-1")


def test_an_id_that_the_program_says_itself_is_taken_as_it_is(sweep: Sweep) -> None:
    assert run_id({}, id="mine") == "mine"


def test_trials_of_one_launch_are_a_run_each(sweep: Sweep) -> None:
    environ = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}

    first = run_id(environ)
    sweep.number = 1

    assert (first, run_id(environ)) == ("slurm-77.0-0", "slurm-77.0-1")


def test_the_next_trial_in_a_process_is_the_next_run_though_nobody_ended_the_last(sweep: Sweep) -> None:
    first = otel_ml.init("search", exporters="jsonl")
    again = otel_ml.init("search", exporters="jsonl")
    sweep.number = 1
    second = otel_ml.init("search", exporters="jsonl")
    otel_ml.shutdown()

    assert first.id == again.id != second.id


def test_a_single_job_of_hydra_is_no_trial(sweep: Sweep) -> None:
    sweep.mode = "RUN"

    assert trial() == ""


def test_a_worker_of_ray_train_has_its_rank_also_where_no_backend_sets_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = SimpleNamespace(
        train_run_context=SimpleNamespace(run_id="0c3ff355", run_config=SimpleNamespace(callbacks=[])),
        get_world_rank=lambda: 1,
        get_world_size=lambda: 2,
        get_local_rank=lambda: 1,
    )
    context = SimpleNamespace(get_session_name=lambda: "session", get_job_id=lambda: "01")
    cluster = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", cluster)
    module = types.ModuleType("ray.train.v2._internal.execution.context")
    vars(module).update(_train_context=worker)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    places = [detect(environ) for environ in ({}, {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "2"})]

    assert [(place.rank, place.world_size, place.local_rank) for place in places] == [(1, 2, 1), (3, 4, 2)]
