"""Work that a trial of Ray Tune hands to tasks and actors; in a real cluster it is in `tests/e2e/test_ray_tune.py`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import otel_ml
from otel_ml._internal.identity import trials
from otel_ml._internal.lifecycle.child_environment import JOINED_BY
from otel_ml.integrations import ray_trial
from otel_ml.testing import capture

OF_THE_RUN = (*JOINED_BY, "OTEL_ML_PARENT")


class Trainable:
    """What Ray Tune calls an actor that does trials, one after the other."""

    def __init__(self) -> None:
        self.trial_id, self.trial_name, self.config = "", "", {}
        self.cleaned_up: list[bool] = []
        self.fails = False

    def cleanup(self) -> None:
        self.cleaned_up.append(trials_run_goes_on())
        if self.fails:
            raise OSError("no space left on device")


def trials_run_goes_on() -> bool:
    return ray_trial.RUNTIME.is_active


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in OF_THE_RUN:
        monkeypatch.setenv(name, "")  # what joins, changes it, and it is put back at the end
        monkeypatch.delenv(name)
    monkeypatch.setattr(ray_trial, "_of_driver", {})  # of the test before
    yield
    trials.work_for_trial(is_so=False)


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> Trainable:
    """This process as Ray shows it, where it does trials."""
    actor = Trainable()
    tune, worker = ModuleType("ray.tune.trainable"), ModuleType("ray._private.worker")
    vars(tune).update(Trainable=Trainable)
    vars(worker).update(global_worker=SimpleNamespace(actors={"an-actor": actor}))
    for module in (tune, worker):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "ray.train._internal.session", raising=False)
    return actor


def recorded(events: list[Any]) -> list[Any]:
    return [event.body for event in events if event.kind == "ml.params"]


class TestRunOfTrial:
    def test_who_does_no_trial_hands_no_run_on(self) -> None:
        with capture():
            assert ray_trial.run_of_trial() == ""

    def test_an_actor_that_is_not_told_yet_which_trial_it_does_hands_no_run_on(self, actor: Trainable) -> None:
        with capture():
            assert ray_trial.run_of_trial() == ""

    def test_work_of_a_trial_joins_its_run_and_is_no_trial_itself(
        self, actor: Trainable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", "driver")
        ray_trial.join("")
        actor.trial_id = "t_1"

        with capture():
            of_trial = otel_ml.child_env()["OTEL_ML_EXPERIMENT_ID"]
            told = ray_trial.run_of_trial()
        of_driver, variables = json.loads(told)
        ray_trial.join(told)

        assert (of_driver, variables["OTEL_ML_EXPERIMENT_ID"]) == ("driver", of_trial)
        assert of_trial.endswith("-t_1")
        assert "OTEL_ML_PARENT" in variables
        assert set(variables) <= set(OF_THE_RUN)
        assert {name: os.environ.get(name) for name in OF_THE_RUN} == {name: variables.get(name) for name in OF_THE_RUN}
        assert trials.is_work_for_trial()
        assert trials.trial() == ""


class TestJoin:
    def told(self, **variables: str) -> str:
        return json.dumps(["driver", {"OTEL_ML_EXPERIMENT_ID": "search-t_1", **variables}])

    def test_a_process_that_is_used_again_without_a_trial_goes_back_to_the_drivers_run(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", "driver")
        monkeypatch.setenv("OTEL_ML_PARENT", "of-the-driver")
        ray_trial.join(self.told())
        joined = {name: os.environ.get(name) for name in ("OTEL_ML_EXPERIMENT_ID", "OTEL_ML_PARENT")}

        ray_trial.join("")

        assert joined == {"OTEL_ML_EXPERIMENT_ID": "search-t_1", "OTEL_ML_PARENT": None}
        assert (os.environ["OTEL_ML_EXPERIMENT_ID"], os.environ["OTEL_ML_PARENT"]) == ("driver", "of-the-driver")
        assert not trials.is_work_for_trial()

    def test_work_for_the_next_trial_joins_its_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", "driver")
        ray_trial.join(self.told())

        ray_trial.join(self.told(OTEL_ML_EXPERIMENT_ID="search-t_2", OTEL_ML_PARENT="two"))

        assert (os.environ["OTEL_ML_EXPERIMENT_ID"], os.environ["OTEL_ML_PARENT"]) == ("search-t_2", "two")
        assert trials.is_work_for_trial()

    def test_a_run_of_the_users_own_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", "own")

        ray_trial.join(self.told())

        assert os.environ["OTEL_ML_EXPERIMENT_ID"] == "own"
        assert not trials.is_work_for_trial()

    def test_who_never_worked_for_a_trial_keeps_what_the_program_has_set_meanwhile(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", "driver")
        ray_trial.join("")
        monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", "set-by-the-program")

        ray_trial.join("")

        assert os.environ["OTEL_ML_EXPERIMENT_ID"] == "set-by-the-program"


class TestFollow:
    def test_without_a_run_there_is_nothing_to_leave(self, actor: Trainable) -> None:
        actor.trial_id = "t_1"
        ray_trial.follow()

        assert not ray_trial.RUNTIME.is_active

    def test_the_run_of_the_trial_before_ends(self, actor: Trainable) -> None:
        actor.trial_id = "t_1"
        with capture():
            actor.trial_id = "t_2"
            ray_trial.follow()

            assert ray_trial.RUNTIME.current is None

    def test_what_is_new_in_the_trials_parameters_is_recorded(self, actor: Trainable) -> None:
        actor.trial_id, actor.config = "t_1", {"lr": 0.1}
        with capture() as captured:
            before = recorded(captured.events)
            ray_trial.follow()
            same = recorded(captured.events)
            actor.config = {"lr": 0.2}  # as PBT does
            ray_trial.follow()
            changed = recorded(captured.events)

            assert ray_trial.RUNTIME.is_active
        assert same == before
        assert changed == [*before, {"lr": 0.2}]


@pytest.mark.parametrize("fails", [False, True])
def test_the_run_of_a_trial_ends_when_it_has_cleaned_up(actor: Trainable, fails: bool) -> None:
    actor.trial_id, actor.fails = "t_1", fails
    with capture():
        ray_trial.end_after_cleanup()
        began = ray_trial.RUNTIME.is_active
        if fails:
            with pytest.raises(OSError, match="no space left"):
                actor.cleanup()
        else:
            actor.cleanup()

        assert (began, actor.cleaned_up, ray_trial.RUNTIME.is_active) == (True, [True], False)
