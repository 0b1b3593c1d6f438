"""A job reaches step 212, dies, and goes on at step 200: one run, in every backend (docs/protocol.md §5.7)."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

import otel_ml
from tests.contract.test_tensorboard_app import App
from tests.e2e.jobs import (
    BACKENDS,
    all_finished,
    answer_of,
    environment,
    finished,
    processes,
    reach,
    rows_in,
    the_run_in,
    torchrun,
    until,
)
from tests.e2e.life import loss_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

REACHED, AGAIN, LAST = 212, 200, 230
LIVES = f"0-{REACHED},{AGAIN}-{LAST}"


def counted(folder: Path) -> None:
    """Start the job with `torchrun`, which starts it again when a rank fails, and counts."""
    command = torchrun(2, "--max-restarts", 1, "-m", "tests.e2e.life", folder, LIVES)
    finished(command, environment(OTEL_ML_EXPORTERS=",".join(BACKENDS), FAIL=0), folder)


def by_id(folder: Path) -> None:
    """Kill every rank and start the job again with the same id, as a cluster does after preemption: nobody counts."""
    with processes(ranks(folder, LIVES, life=0, world=2), folder):
        until(lambda: closed(folder, REACHED - 1))
    with processes(ranks(folder, LIVES, life=1, world=2), folder) as started:
        all_finished(started)


def ranks(folder: Path, lives: str, *, life: int, world: int, **more: object) -> list[Any]:
    command = [sys.executable, "-m", "tests.e2e.life", folder, lives]
    shared = {"OTEL_ML_EXPERIMENT_ID": folder.name, "OTEL_ML_EXPORTERS": ",".join(BACKENDS), **more}
    return [
        (command, environment(LIFE=life, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, **shared))
        for rank in range(world)
    ]


@pytest.fixture(scope="module", params=[counted, by_id])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param.__name__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_ML_DIR", str(folder / "otel-ml-runs"))
        patch.setenv("WANDB_MODE", "offline")
        request.param(folder)
    return the_run_in(folder / "otel-ml-runs")


WANTED = {step: loss_of(step, life=int(step >= AGAIN)) for step in range(LAST + 1)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_shows_the_values_of_the_newest_attempt(job: Path, backend: str) -> None:
    answer = answer_of(backend, job)

    points = [(step, float(value)) for name, _, step, value, *_ in answer["scalars"] if name == "loss"]
    assert dict(points) == WANTED
    assert {float(value) for name, _, _, value, *_ in answer["scalars"] if name == "tokens"} == {2.0}
    # Its first life ends the run, the second one opens it again: otel_ml's own windows of 10 s may hold both.
    assert [name for name, *_ in answer.get("amendments", ()) if not name.startswith("otel_ml/")] == []


def test_tensorboard_shows_a_curve_without_the_steps_that_were_done_again(job: Path) -> None:
    app = App(job / "tensorboard")
    try:
        until(lambda: steps_in(app)[-1:] == [LAST])
        shown = [(step, float(str(value))) for step, value in app.scalars(".", "loss")]
    finally:
        app.close()

    assert shown == list(WANTED.items())


def steps_in(app: App) -> list[int]:
    """Return the steps that TensorBoard shows by now: it knows no series of a run that it lists and has not read."""
    try:
        return [step for step, _ in app.scalars(".", "loss")]
    except HTTPError:
        return []


@pytest.mark.parametrize("backend", ["jsonl", "wandb"])
def test_rows_say_which_attempt_they_are_of(job: Path, backend: str) -> None:
    rows = [(attempt, step) for name, _, step, _, attempt in answer_of(backend, job)["scalars"] if name == "loss"]

    assert rows == sorted(rows)
    assert {attempt for attempt, _ in rows} == {0, 1}
    assert [step for attempt, step in rows if attempt == 1] == list(range(AGAIN, LAST + 1))
    assert [step for attempt, step in rows if attempt == 0][: REACHED - 1] == list(range(REACHED - 1))


def test_mlflow_keeps_both_values_and_the_newer_one_is_the_later(job: Path) -> None:
    points = [(step, value) for name, _, step, value, *_ in answer_of("mlflow", job)["scalars"] if name == "loss"]

    assert [value for step, value in points if step == AGAIN + 5] == [loss_of(AGAIN + 5, life) for life in (0, 1)]


def test_steps_done_twice_are_counted(job: Path) -> None:
    rows = [(attempt, step) for name, _, step, _, attempt in answer_of("jsonl", job)["scalars"] if name == "loss"]
    redone = {step for attempt, step in rows if attempt == 0 and step >= AGAIN}

    assert len(redone) >= REACHED - AGAIN
    assert otel_ml.read(job)["otel_ml/steps_redone"][1][-1] == len(redone)


# --- who else may live or die ---------------------------------------------------------------------------------------


def rows_of(folder: Path) -> list[Mapping[str, Any]]:
    paths = list((folder / "otel-ml-runs").glob("*/*/metrics.jsonl"))
    return [row for path in paths for row in rows_in(path)]


def closed(folder: Path, step: int) -> bool:
    """Return whether the run shows a step: its service runs, and has learned who belongs to the job."""
    return any(row.get("step") == step for row in rows_of(folder))


def tokens_of(folder: Path) -> dict[int, float]:
    """Return step → tokens as the run shows them at last, once everything is written."""
    return dict(zip(*otel_ml.read(the_run_in(folder / "otel-ml-runs"))["tokens"], strict=True))


def attempts_in(folder: Path) -> set[int]:
    return {row["attempt"] for row in rows_of(folder) if "attempt" in row}


@pytest.mark.feature("F9", "better", "who takes part is learned, nobody registers")
def test_the_world_may_shrink_and_grow_between_attempts(tmp_path: Path) -> None:
    lives = "0-60,50-120,110-150"
    for life, world in enumerate((3, 2)):
        with processes(ranks(tmp_path, lives, life=life, world=world, OTEL_ML_EXPORTERS="jsonl"), tmp_path):
            until(lambda life=life, world=world: len(list(tmp_path.glob(f"{life}-*"))) == world)
            until(lambda life=life: closed(tmp_path, (59, 119)[life]))
    with processes(ranks(tmp_path, lives, life=2, world=4, OTEL_ML_EXPORTERS="jsonl"), tmp_path) as started:
        all_finished(started)

    wanted = {step: 3.0 if step < 50 else 2.0 if step < 110 else 4.0 for step in range(151)}
    assert tokens_of(tmp_path) == wanted
    assert attempts_in(tmp_path) == {0, 1, 2}


@pytest.mark.feature("F18", "better", "it is named, and waited for once")
def test_a_rank_that_dies_for_good_is_named_and_the_others_go_on_without_it(tmp_path: Path) -> None:
    variables = {"OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_ALLOWED_LATENESS": 2000}
    with processes(ranks(tmp_path, "0-2500", life=0, world=3, **variables), tmp_path) as (first, second, third):
        until(lambda: closed(tmp_path, 50))
        third.kill()
        said = all_finished([first, second])[0]

    assert "waits no longer for rank 2" in said
    tokens = tokens_of(tmp_path)
    assert sorted(tokens) == list(range(2501))
    assert set(tokens.values()) == {3.0, 2.0}
    assert [tokens[step] for step in sorted(tokens)] == sorted(tokens.values(), reverse=True)
    assert attempts_in(tmp_path) == {0}


def test_a_rank_that_falls_silent_is_named_while_its_step_is_open(tmp_path: Path) -> None:
    variables = {"OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_ALLOWED_LATENESS": 2000}
    with processes(ranks(tmp_path, "0-1500", life=0, world=2, **variables), tmp_path) as (first, second):
        until(lambda: closed(tmp_path, 50))
        second.send_signal(signal.SIGSTOP)
        lines = iter(first.stderr.readline, "") if first.stderr else iter(())
        said = next(line for line in lines if "for rank 1" in line)
        second.send_signal(signal.SIGCONT)
        assert "of role 'trainer' (attempt 0)" in said
        all_finished([first, second])

    assert tokens_of(tmp_path) == dict.fromkeys(range(1501), 2.0)


def test_a_rank_started_again_alone_joins_the_attempt_of_those_that_live(tmp_path: Path) -> None:
    lives = "0-90,80-800"
    alone = ranks(tmp_path, lives, life=1, world=2, OTEL_ML_EXPORTERS="jsonl", MEET=1)
    with ExitStack() as stack:
        lives_on = ranks(tmp_path, "0-800,0-0", life=0, world=2, OTEL_ML_EXPORTERS="jsonl")[0]
        dies = ranks(tmp_path, lives, life=0, world=2, OTEL_ML_EXPORTERS="jsonl")[1]
        first, second = stack.enter_context(processes([lives_on, dies], tmp_path))
        until(lambda: closed(tmp_path, 85))
        second.kill()
        second.communicate()
        [again] = stack.enter_context(processes([alone[1]], tmp_path))
        all_finished([again])
        (tmp_path / "end").touch()  # the first one lives until then, however late the other one comes
        all_finished([first])

    assert tokens_of(tmp_path) == dict.fromkeys(range(801), 2.0)
    assert attempts_in(tmp_path) == {0}


def lives_of(folder: Path, lives: str, *, life: int, counts: bool) -> list[Any]:
    """Return the commands of a job of two ranks, with a launcher that counts its lives or one that does not."""
    commands = ranks(folder, lives, life=life, world=2, OTEL_ML_EXPORTERS="jsonl")
    if not counts:
        return commands
    for _, env in commands:
        del env["OTEL_ML_EXPERIMENT_ID"]  # of a run that is continued by its id, the launcher does not know all lives
        env |= {"TORCHELASTIC_RUN_ID": folder.name, "TORCHELASTIC_RESTART_COUNT": str(life)}
    return commands


@pytest.mark.parametrize("counts", [True, False])
def test_a_rank_of_the_old_attempt_that_was_stopped_and_wakes_up_changes_nothing(tmp_path: Path, counts: bool) -> None:
    """A machine that hung, and is back when the job has long gone on without it."""
    old = [lives_of(tmp_path, lives, life=0, counts=counts)[rank] for rank, lives in enumerate(("0-60,0-0", "0-3000"))]
    with processes(old, tmp_path) as (first, zombie):
        until(lambda: closed(tmp_path, 58))
        zombie.send_signal(signal.SIGSTOP)
        until(lambda: (tmp_path / "0-0").exists())
        first.kill()
        first.communicate()
        with processes(lives_of(tmp_path, "0-0,50-1200", life=1, counts=counts), tmp_path) as started:
            reach(started[0], 400)
            zombie.send_signal(signal.SIGCONT)
            reach(zombie, 300)
            all_finished(started)

    tokens = tokens_of(tmp_path)
    assert {step: tokens[step] for step in range(1201)} == dict.fromkeys(range(1201), 2.0)
    assert attempts_in(tmp_path) == {0, 1}


def test_a_rank_that_hangs_while_nobody_counts_and_the_job_is_started_again_changes_nothing(tmp_path: Path) -> None:
    """It waits in a collective for the rank that died; its heartbeat goes on."""
    old = lives_of(tmp_path, "0-60,50-1000", life=0, counts=False)
    with processes(old, tmp_path) as (first, _):
        until(lambda: len(list(tmp_path.glob("0-*"))) == 2)
        until(lambda: closed(tmp_path, 59))
        first.kill()
        first.communicate()
        with processes(lives_of(tmp_path, "0-60,50-1000", life=1, counts=False), tmp_path) as started:
            said = "".join(all_finished(started))

    assert tokens_of(tmp_path) == dict.fromkeys(range(1001), 2.0)
    assert attempts_in(tmp_path) == {0, 1}
    assert "Rank 1 of role 'trainer' still runs in attempt 0" in said
