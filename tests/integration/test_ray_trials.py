"""Trials of Ray Tune in the processes of `instrument_ray()`: each is a run, in whichever process it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

pytestmark = pytest.mark.timeout(180)

OF_THE_DRIVER = {
    "OTEL_ML_EXPERIMENT_ID": "job",
    "OTEL_ML_EXPERIMENT_NAME": "search",
    "OTEL_ML_RUN_NAME": "the-drivers",
    "OTEL_ML_CAPTURE": "off",
}


def do(server: OtlpServer, tmp_path: Path, program: str) -> str:
    """Run a program as a worker of a driver's job; return what it prints."""
    head = "from tests.integration.ray_trials import *\n    actor = Actor()\n"
    output, errors = run(f"    {head}{program}", environment(tmp_path, variables(server, **OF_THE_DRIVER)), tmp_path)
    assert "Traceback" not in errors, errors
    return output


def steps_of(server: OtlpServer, name: str) -> dict[str, list[tuple[int | None, float]]]:
    """Return what was recorded, in its order: run → step and value."""
    found: dict[str, list[tuple[int | None, float]]] = {}
    for point in server.points(name):
        found.setdefault(point.resource["ml.experiment.id"], []).append((point.step, point.value))
    return found


def params_of(server: OtlpServer) -> list[tuple[str, Any]]:
    return [(event.resource["ml.experiment.id"], event.body) for event in server.events("ml.params")]


def test_a_trial_is_a_run_that_is_called_as_the_trial_with_its_configuration(
    server: OtlpServer, tmp_path: Path
) -> None:
    do(server, tmp_path, """
    actor.train("__init__", 0, rate=0.5, layers={"n": 2})
    actor.call("stop")
    """)  # fmt: skip

    assert steps_of(server, "loss") == {"job-t_0": [(0, 5.0), (1, 6.0)]}
    assert params_of(server) == [("job-t_0", {"rate": 0.5, "layers": {"n": 2}})]
    told = server.points("loss")[0].resource
    assert (told["ml.experiment.name"], told["ml.run.name"]) == ("search", "Trial_0")
    assert (told["service.name"], told["ml.prefix"], told["ml.rank"]) == ("trial", "", 0)


def test_what_a_trial_says_itself_comes_first(server: OtlpServer, tmp_path: Path) -> None:
    do(server, tmp_path, """
    class Own(Trial):
        def setup(self, config):
            super().setup(config)
            otel_ml.init("search", name="mine", params={"rate": 7, "more": 1})
    actor.trainable.__class__ = Own
    actor.train("__init__", 0, rate=0.5)
    actor.call("stop")
    """)  # fmt: skip

    assert {point.resource["ml.run.name"] for point in server.points("loss")} == {"mine"}
    assert [body for _, body in params_of(server)] == [{"rate": 0.5}, {"rate": 7, "more": 1}]


def test_trials_that_take_turns_in_a_process_are_a_run_each_that_goes_on(server: OtlpServer, tmp_path: Path) -> None:
    do(server, tmp_path, """
    actor.train("__init__", 0, rate=0.1)
    actor.train("reset", 1, rate=0.2)
    actor.train("reset", 0, rate=0.3, at=2)
    actor.call("stop")
    """)  # fmt: skip

    assert steps_of(server, "loss") == {
        "job-t_0": [(0, 1.0), (1, 2.0), (2, 5.0), (3, 6.0)],
        "job-t_1": [(0, 2.0), (1, 3.0)],
    }
    assert params_of(server) == [
        ("job-t_0", {"rate": 0.1}), ("job-t_1", {"rate": 0.2}), ("job-t_0", {"rate": 0.3, "at": 2})
    ]  # fmt: skip
    ends = [(end.resource["ml.experiment.id"], end.attributes["ml.status"]) for end in server.events("ml.writer.end")]
    assert ends == [("job-t_0", "finished"), ("job-t_1", "finished"), ("job-t_0", "finished")]


def test_the_configuration_that_a_scheduler_changes_is_recorded_in_the_run_that_goes_on(
    server: OtlpServer, tmp_path: Path
) -> None:
    do(server, tmp_path, """
    actor.train("__init__", 0, rate=0.1)
    actor.train("reset", 0, rate=0.3, at=2)
    actor.call("stop")
    """)  # fmt: skip

    assert steps_of(server, "loss") == {"job-t_0": [(0, 1.0), (1, 2.0), (2, 5.0), (3, 6.0)]}
    assert params_of(server) == [("job-t_0", {"rate": 0.1}), ("job-t_0", {"rate": 0.3, "at": 2})]
    assert len(server.events("ml.writer.end")) == 1


def test_a_trial_that_is_stopped_has_what_it_recorded_when_it_cleaned_up(server: OtlpServer, tmp_path: Path) -> None:
    do(server, tmp_path, """
    import os
    actor.train("__init__", 0, rate=0.1)
    actor.call("stop")
    os._exit(0)  # as Ray kills it, with the trial's resources
    """)  # fmt: skip

    assert steps_of(server, "cleaned") == {"job-t_0": [(2, 1.0)]}
    assert [end.attributes["ml.status"] for end in server.events("ml.writer.end")] == ["finished"]


def test_who_works_for_a_trial_is_in_its_run(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    actor.train("__init__", 0, rate=0.1)
    print(carried()["otel-ml-run"])
    """
    told = do(server, tmp_path, program).strip()
    do(server, tmp_path, f"""
    global_worker.actors.clear()
    actor.function = "train.Helper.__init__"
    propagate.extract({{"otel-ml-run": {told!r}}})
    otel_ml.log({{"helped": 1.0}}, step=0)
    assert carried()["otel-ml-run"] == {told!r}
    """)  # fmt: skip

    [point] = server.points("helped")
    assert (point.resource["ml.experiment.id"], point.resource["ml.run.name"]) == ("job-t_0", "Trial_0")
    assert point.resource["service.name"] == "helper"
