"""Of samples that carry a task and a policy version, `why` and the page tell the reward of each."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import fmean

import pytest

from otel_ml_service.report.contents import read_contents
from otel_ml_service.report.page import page
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.integration.worker_process import environment, run
from tests.unit.otel_ml_service.report.test_page import Reader

STEPS, FELL, A_VERSION = 120, 80, 20


def reward(task: str, step: int, sample: int) -> float:
    """Return what the program below gives a sample: math is worse from step 80 on, which is version 4, code is not."""
    usual = {"math": 0.2 if step >= FELL else 0.9, "code": 0.5}[task]
    return usual + 0.01 * ((7 * step + 3 * sample) % 5)


PROGRAM = f"""
    import otel_ml
    from otel_ml.diagnostics import rl
    from tests.integration.test_reward_by_task import reward

    with otel_ml.init("tasks", id="tasks", exporters="jsonl"):
        for step in range({STEPS}):
            otel_ml.set_step(step)
            context = otel_ml.context(version=step // {A_VERSION})
            of_task = {{task: [reward(task, step, sample) for sample in range(4)] for task in ("math", "code")}}
            for task, rewards in of_task.items():
                rl.batch_reward(rewards, environment=task)
            rl.batch_reward([one for rewards in of_task.values() for one in rewards], contexts=[context] * 8)
            otel_ml.consumed([context] * 8, version=step // {A_VERSION})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    base = tmp_path_factory.mktemp("tasks")
    run(PROGRAM, environment(base), base)
    return RunFolder(next((base / "runs").glob("tasks/tasks")))


def mean_of(tasks: tuple[str, ...], steps: range) -> float:
    return fmean(reward(task, step, sample) for task in tasks for step in steps for sample in range(4))


def of_version(version: int, steps: range = range(STEPS)) -> float:
    return mean_of(("math", "code"), range(max(A_VERSION * version, steps.start), A_VERSION * (version + 1)))


def why(folder: RunFolder, *options: str) -> str:
    asked = ["why", "tasks", "--metric", "rl/sample/reward", *options]
    command = [sys.executable, "-m", "otel_ml_service", *asked]
    env = environment(folder.path.parents[2])
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_why_tells_the_reward_of_each_task_and_version_before_and_after_it_fell(folder: RunFolder) -> None:
    answer = json.loads(why(folder, "--json"))

    assert answer["first"] == FELL
    tasks = {one["name"]: one for one in answer["levels"] if one["by"] == "task"}
    versions = {one["name"]: one for one in answer["levels"] if one["by"] == "version"}
    assert tasks.keys() == {"math", "code"}
    for task, one in tasks.items():
        assert one["before"] == pytest.approx(mean_of((task,), range(FELL - 16, FELL)))
        assert one["after"] == pytest.approx(mean_of((task,), range(FELL, FELL + 16)), abs=0.02)
    assert versions["3"]["before"] == pytest.approx(of_version(3, range(FELL - 16, FELL)))
    assert versions["3"]["after"] is None, "its samples are all from before"
    assert versions["4"]["before"] is None
    assert versions["4"]["after"] == pytest.approx(of_version(4), abs=0.02)


def test_a_person_reads_it_as_two_tables(folder: RunFolder) -> None:
    _, _, said = why(folder).partition("By task\n")
    tasks, _, versions = said.partition("By policy version\n")

    rows = {cells[0]: cells[1:] for cells in map(str.split, tasks.splitlines()) if cells}
    assert rows["task"] == ["before", "after", "change"]
    assert float(rows["math"][2]) == pytest.approx(-0.7, abs=0.02)
    assert float(rows["code"][2]) == pytest.approx(0.0, abs=0.02)
    assert [line.split()[0] for line in versions.splitlines()[1:3]] == ["3", "4"]


def test_the_page_draws_it_by_version_and_by_task(folder: RunFolder) -> None:
    read = Reader(page([read_contents(folder)]))

    charts = [json.loads(value) for _, has in read.elements if (value := has.get("data-curves")) is not None]
    [by_version] = [one for one in charts if one["axis"] == "policy_version"]
    [by_task] = [one for one in charts if {line["name"] for line in one["lines"]} == {"code", "math"}]
    assert dict(map(tuple, by_version["lines"][0]["points"])) == pytest.approx(
        {version: of_version(version) for version in range(STEPS // A_VERSION)}, rel=1e-5
    )
    for line in by_task["lines"]:
        wanted = {step: mean_of((line["name"],), range(step, step + 1)) for step in range(STEPS)}
        assert dict(map(tuple, line["points"])) == pytest.approx(wanted, rel=1e-5)
    assert "rl/sample/reward by version" in read.text
    assert "rl/sample/reward by task" in read.text
