from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from otel_ml._internal.identity.resource import resource_attributes
from otel_ml._internal.identity.run_identity import Parent, identify, new_id
from otel_ml.config import Config

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that are functions write down their start where nobody else does."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def run_id(environ: dict[str, str], *, ppid: int | None = None, **arguments: str) -> str:
    return identify(Config.from_env(environ, **arguments), environ, ppid=ppid).run_id  # type: ignore[arg-type]


def test_ids_sort_by_time() -> None:
    assert new_id(1_000_000_000_000_000_000) < new_id(1_000_000_002_000_000_000)
    assert len(new_id()) == 26


def test_the_argument_wins_over_the_environment_and_both_over_the_launcher() -> None:
    environ = {**TORCHRUN, "OTEL_ML_EXPERIMENT_ID": "from-environment"}

    assert run_id(environ, id="from-argument") == "from-argument"
    assert run_id(environ) == "from-environment"


def test_all_ranks_of_a_torchrun_agree() -> None:
    assert run_id({**TORCHRUN, "RANK": "0"}) == run_id({**TORCHRUN, "RANK": "1"})


def test_a_restart_by_torchrun_is_the_same_run_and_another_attempt() -> None:
    restarted = {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}

    before = identify(Config.from_env(TORCHRUN), TORCHRUN)
    after = identify(Config.from_env(restarted), restarted)

    assert before.run_id == after.run_id
    assert (before.place.attempt, after.place.attempt) == (0, 1)
    assert before.instance != after.instance


def test_a_run_continued_by_id_leaves_attempts_to_the_service() -> None:
    assert identify(Config.from_env(TORCHRUN, id="old"), TORCHRUN).place.attempt is None


def test_a_process_on_its_own_gets_a_new_run_each_time() -> None:
    assert run_id({}) != run_id({})


def test_slurms_step_is_the_run() -> None:
    environ = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}

    assert run_id(environ) == "slurm-77.2"


def test_ranks_started_by_hand_from_one_parent_agree() -> None:
    environ = {"OTEL_ML_RANK": "0", "OTEL_ML_WORLD_SIZE": "2"}

    assert run_id(environ) == run_id({**environ, "OTEL_ML_RANK": "1"})


def test_a_process_with_the_rank_and_role_of_its_parent_is_its_child() -> None:
    parent = Parent("instance", os.getppid(), 1, "trainer")
    environ = {"OTEL_ML_PARENT": str(parent), "OTEL_ML_RANK": "1"}

    assert identify(Config.from_env(environ), environ).parent == "instance"


def test_what_a_rank_starts_in_another_role_has_no_world_of_that_size() -> None:
    ranks = {"RANK": "0", "WORLD_SIZE": "2", "OTEL_ML_PARENT": str(Parent("instance", os.getppid(), 0, "trainer"))}

    def world(environ: dict[str, str], **told: Any) -> object:
        config = Config.from_env(environ, **told)
        return resource_attributes(config, identify(config, environ)).get("ml.world_size")

    assert world(ranks, role="evaluator") is None
    assert world({**ranks, "OTEL_ML_WORLD_SIZE": "2"}, role="evaluator") is None
    assert world(ranks, role="evaluator", world_size=1) == 1, "said"
    assert world({**ranks, "RANK": "1"}, role="evaluator") == 2, "a launcher told it another rank"
    assert world(ranks) == 2, "a child"
    assert world({"RANK": "0", "WORLD_SIZE": "2"}, role="evaluator") == 2, "nobody started it"


def test_a_process_with_a_place_of_its_own_is_nobodys_child() -> None:
    environ = {"OTEL_ML_PARENT": str(Parent("instance", os.getppid(), 0, "trainer"))}

    assert identify(Config.from_env(environ, rank=1), environ).parent is None
    assert identify(Config.from_env(environ, role="generator"), environ).parent is None
    launched = environ | {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2"}
    assert identify(Config.from_env(launched), launched, ppid=1).parent is None
    told = environ | {"OTEL_ML_RANK": "0"}
    assert identify(Config.from_env(told), told, ppid=1).parent is None
