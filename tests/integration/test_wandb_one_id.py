"""Processes that name one W&B run by its id, without `mode="shared"`: one run, each of them a rank of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.jobs import Scalars, all_finished, environment, finished, processes, scalars_in, the_run_in, torchrun

pytestmark = pytest.mark.timeout(300)

PROCESSES, STEPS = 3, 4
MEAN = dict.fromkeys(range(STEPS), (1.0 + 10.0 + 100.0) / PROCESSES)

OF_ONE_PROCESS = f"""
import os
import sys
from pathlib import Path

from otel_ml.compat import wandb
from tests.waiting import eventually


def is_there(name):
    return eventually(Path(name).exists, timeout=60)


def work(number):
    run = wandb.init(project="pages", id=os.environ.get("GIVEN_ID"))
    Path(f"begun-{{number}}").touch()
    assert all(is_there(f"begun-{{other}}") for other in range({PROCESSES}))
    assert number == 0 or is_there(f"ended-{{number - 1}}")  # as a restart would be, but it has begun before
    for step in range({STEPS}):
        run.log({{"loss": 10.0**number, f"of/{{number}}": step}})
    run.finish()
    Path(f"ended-{{number}}").touch()
"""

BY_RANK = OF_ONE_PROCESS + '\nwork(int(os.environ["RANK"]))\n'
BY_ARGUMENT = OF_ONE_PROCESS + "\nwork(int(sys.argv[1]))\n"
BY_MULTIPROCESSING = f"""
import multiprocessing
{OF_ONE_PROCESS}

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=work, args=(number,)) for number in range({PROCESSES})]
    for process in started:
        process.start()
    for process in started:
        process.join()
    sys.exit(max(process.exitcode for process in started))
"""


def written(program: str, folder: Path) -> Path:
    path = folder / "train.py"
    path.write_text(program)
    return path


def recorded(cwd: Path) -> Scalars:
    shown = scalars_in("jsonl", the_run_in(cwd / "otel-ml-runs"))
    return {name: values for name, values in shown.items() if not name.startswith("otel_ml/")}


def check_that_all_count(shown: Scalars) -> None:
    assert shown["loss"] == pytest.approx(MEAN)
    for number in range(PROCESSES):
        assert shown[f"of/{number}"] == {step: float(step) for step in range(STEPS)}


@pytest.mark.parametrize("variable", ["GIVEN_ID", "WANDB_RUN_ID"])
def test_the_ranks_of_a_launcher_are_told_apart_by_its_variables(variable: str, tmp_path: Path) -> None:
    finished(
        torchrun(PROCESSES, written(BY_RANK, tmp_path)),
        environment(OTEL_ML_EXPORTERS="jsonl", **{variable: "of-all"}),
        tmp_path,
    )

    check_that_all_count(recorded(tmp_path))


def test_processes_of_no_launcher_are_told_apart_by_who_of_them_lives(tmp_path: Path) -> None:
    program = written(BY_ARGUMENT, tmp_path)
    variables = environment(OTEL_ML_EXPORTERS="jsonl", WANDB_RUN_ID="of-all")
    commands = [([sys.executable, program, number], variables) for number in range(PROCESSES)]

    with processes(commands, tmp_path) as started:
        all_finished(started)

    shown = recorded(tmp_path)
    check_that_all_count(shown)
    assert "otel_ml/steps_redone" not in scalars_in("jsonl", the_run_in(tmp_path / "otel-ml-runs"))


def test_processes_of_multiprocessing_are_told_apart_by_who_of_them_lives(tmp_path: Path) -> None:
    program = written(BY_MULTIPROCESSING, tmp_path)

    finished([sys.executable, program], environment(OTEL_ML_EXPORTERS="jsonl", WANDB_RUN_ID="of-all"), tmp_path)

    check_that_all_count(recorded(tmp_path))


def test_a_process_that_goes_on_in_a_run_after_one_that_has_ended_takes_its_place(tmp_path: Path) -> None:
    program = written(
        "import sys\n"
        "import otel_ml\n"
        "from otel_ml.compat import wandb\n"
        "run = wandb.init(project='pages', id='resumed', resume='allow')\n"
        "for step in range(3):\n"
        "    run.log({'loss': float(sys.argv[1])})\n"
        "run.log({'rank': otel_ml.init().rank})\n",
        tmp_path,
    )

    for number in (1, 2):
        finished([sys.executable, program, number], environment(OTEL_ML_EXPORTERS="jsonl"), tmp_path)

    shown = recorded(tmp_path)
    assert shown["loss"] == {0: 1.0, 1: 1.0, 2: 1.0, 4: 2.0, 5: 2.0, 6: 2.0}
    assert set(shown["rank"].values()) == {0.0}
