"""What Slurm, torchrun, MPI and submitit say of a launch: one start is one run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_ml._internal.identity.ranks import detect
from otel_ml._internal.identity.run_identity import Identity, Parent, identify
from otel_ml._internal.lifecycle.child_environment import own_environ
from otel_ml.config import Config
from tests.unit.otel_ml.launches.program import CONTAINER, SPAWNED, STEP, TORCHRUN, ids


def test_every_program_of_an_interactive_slurm_shell_is_a_run() -> None:
    first, second = ids('$P "$PROGRAM"; $P "$PROGRAM"', **STEP, SLURM_TASK_PID="1")

    assert first != second
    assert {first.rpartition("-")[0], second.rpartition("-")[0]} == {"slurm-77.0"}


def test_the_one_task_that_slurm_starts_itself_keeps_its_run_when_it_is_requeued() -> None:
    start = 'SLURM_TASK_PID=$BASHPID exec $P "$PROGRAM"'

    assert ids(f"({start}); ({start})", **STEP) == ["slurm-77.0", "slurm-77.0"]


def test_tasks_that_slurm_starts_in_shells_of_their_own_are_one_run() -> None:
    found = ids(
        'for r in 0 1; do SLURM_PROCID=$r SLURM_TASK_PID=$r bash -c "$P \\"\\$PROGRAM\\"; true"; done',
        **{**STEP, "SLURM_STEP_NUM_TASKS": "2"},
    )

    assert found == ["slurm-77.0", "slurm-77.0"]


def test_two_torchruns_of_one_slurm_shell_are_two_runs() -> None:
    agents = 'for i in 1 2; do bash -c "TORCHELASTIC_RUN_ID=none $P \\"\\$PROGRAM\\"; true"; done'

    assert len(set(ids(agents, **STEP, SLURM_TASK_PID="1", RANK="0", WORLD_SIZE="2"))) == 2


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD", "PMI"])
def test_ranks_of_mpi_in_shells_of_their_own_are_one_run(variable: str) -> None:
    found = ids(
        f'for r in 0 1; do {variable}_RANK=$r {variable}_SIZE=2 bash -c "$P \\"\\$PROGRAM\\"; true"; done',
    )

    assert len(found) == 2
    assert len(set(found)) == 1


def test_ranks_in_shells_of_their_own_whose_launcher_is_process_1_of_a_container_are_one_run() -> None:
    found = ids(
        'for r in 0 1; do PMI_RANK=$r PMI_SIZE=2 bash -c "$P \\"\\$PROGRAM\\"; true"; done',
        within=CONTAINER,
    )

    assert len(found) == 2
    assert len(set(found)) == 1


@pytest.mark.parametrize(("name", "begins"), [("none", ""), ("rl", "rl-")])
def test_the_same_torchrun_command_twice_is_two_runs(name: str, begins: str) -> None:
    ranks = f'for r in 0 1; do TORCHELASTIC_RUN_ID={name} RANK=$r $P \\"\\$PROGRAM\\"; done; true'

    found = ids(f'for i in 1 2; do bash -c "{ranks.replace("$r", chr(92) + "$r")}"; done', WORLD_SIZE="2")

    assert found[0] == found[1] != found[2] == found[3]
    assert all(run_id.startswith(begins) for run_id in found)


def test_two_slurm_jobs_with_one_rendezvous_id_are_two_runs() -> None:
    named = {**STEP, **TORCHRUN, "TORCHELASTIC_RUN_ID": "100", "GROUP_WORLD_SIZE": "2"}

    jobs = [ids('$P "$PROGRAM"', **{**named, "SLURM_JOB_ID": job}) for job in ("77", "78")]

    assert jobs == [["slurm-77-100"], ["slurm-78-100"]]


AGENT = 'bash -c "TORCHELASTIC_RUN_ID=$NAME $P \\"\\$PROGRAM\\"; true" agent $ASKED'


STEP_OF_AGENT = f"SLURM_TASK_PID=$BASHPID; export SLURM_TASK_PID; exec {AGENT}"


@pytest.mark.parametrize("hosts", ["1", "2"])
def test_two_torchruns_of_one_name_in_two_steps_of_a_slurm_job_are_two_runs(hosts: str) -> None:
    steps = f"for s in 0 1 0; do (export SLURM_STEP_ID=$s; {STEP_OF_AGENT}); done"
    variables = {**STEP, "SLURM_STEP_NUM_TASKS": hosts, "SLURM_STEP_NUM_NODES": hosts, "GROUP_WORLD_SIZE": hosts}

    first, second, requeued = ids(steps, NAME="77", RANK="0", WORLD_SIZE="2", **variables)

    assert (first, second, requeued) == ("slurm-77.0-77", "slurm-77.1-77", "slurm-77.0-77")


@pytest.mark.parametrize(("name", "run_id"), [("77", "slurm-77-77"), ("none", "slurm-77")])
def test_agents_of_one_launch_in_steps_of_their_own_are_one_run(name: str, run_id: str) -> None:
    steps = f"for s in 0 1; do (export SLURM_STEP_ID=$s GROUP_WORLD_SIZE=$((s + 1)); {STEP_OF_AGENT}); done"

    found = ids(steps, NAME=name, ASKED="--nnodes 1:2", RANK="0", WORLD_SIZE="2", **STEP)

    assert found == [run_id, run_id]


def test_an_elastic_job_has_one_id_however_many_agents_have_come() -> None:
    elastic = 'bash -c "TORCHELASTIC_RUN_ID=job77 $P \\"\\$PROGRAM\\"; true" agent'
    variables = {"RANK": "0", "WORLD_SIZE": "2"}

    one = ids(f"{elastic} --nnodes 1:2", **variables, GROUP_WORLD_SIZE="1")
    two = ids(f"{elastic} --nnodes=1:2", **variables, GROUP_WORLD_SIZE="2")
    by_variable = ids(elastic, **variables, PET_NNODES="1:2")

    assert one == two == by_variable == ["job77"]
    assert ids(f"{elastic} --nnodes 1:1", **variables) != ["job77"]


def test_mpirun_within_a_slurm_step_says_the_ranks() -> None:
    place = detect({**STEP, "PMI_RANK": "1", "PMI_SIZE": "4"})

    assert (place.launcher, place.rank, place.world_size) == ("mpi", 1, 4)


def test_srun_that_speaks_mpis_protocol_is_slurm() -> None:
    assert detect({**STEP, "SLURM_STEP_NUM_TASKS": "4", "PMI_RANK": "0", "PMI_SIZE": "4"}).launcher == "slurm"


def test_the_shell_of_salloc_is_one_process_whatever_the_job_has() -> None:
    assert detect({**STEP, "SLURM_NTASKS": "16"}).world_size == 1


def test_submitits_local_executor_says_the_ranks() -> None:
    place = detect(
        {
            "SUBMITIT_EXECUTOR": "local",
            "SUBMITIT_LOCAL_JOB_ID": "4711",
            "SUBMITIT_LOCAL_NTASKS": "4",
            "SUBMITIT_LOCAL_GLOBALID": "3",
            "SUBMITIT_LOCAL_LOCALID": "3",
        }
    )

    assert (place.launcher, place.rank, place.world_size, place.local_rank, place.job) == (
        "submitit",
        3,
        4,
        3,
        "submitit-4711",
    )


MPI_ON_TWO_HOSTS = {"SLURM_JOB_ID": "77", "PMI_RANK": "{rank}", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1"}


def test_two_mpiruns_on_several_hosts_of_one_slurm_job_are_two_runs(tmp_path: Path) -> None:
    found = []
    for start in ("1", "2"):
        (tmp_path / start).mkdir()
        (tmp_path / "spawned.py").write_text(SPAWNED)
        command = [sys.executable, tmp_path / "spawned.py", tmp_path / start, json.dumps(MPI_ON_TWO_HOSTS)]
        subprocess.run(command, check=True, timeout=110, cwd=tmp_path)
        found.append({json.loads((tmp_path / start / f"{rank}.json").read_text())[0][0] for rank in (0, 1)})

    assert len(found[0]) == len(found[1]) == 1
    assert found[0] != found[1]


def test_mpiruns_whose_proxies_slurm_starts_have_the_step_of_them_for_their_name() -> None:
    steps = [{**STEP, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": step} for step in ("3", "4")]
    hosts = {"PMI_RANK": "0", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}

    assert [ids('$P "$PROGRAM"', **step, **hosts) for step in steps] == [["slurm-77.3"], ["slurm-77.4"]]


def test_mpiruns_on_several_hosts_that_nothing_tells_apart_are_the_run_of_their_slurm_job() -> None:
    ranks = 'for r in 0 1; do PMI_RANK=$r PMI_SIZE=2 MPI_LOCALNRANKS=1 bash -c "$P \\"\\$PROGRAM\\"; true"; done'

    assert ids(ranks, SLURM_JOB_ID="77") == ["slurm-77", "slurm-77"]


def _seen(rank: str, **launch: str) -> Identity:
    """Return who a rank of a step is that got the environment of rank 0 of step 77.0, which has a run."""
    written = {
        "OTEL_ML_EXPERIMENT_ID": "slurm-77.0",
        "OTEL_ML_EXPERIMENT_NAME": "exp",
        "OTEL_ML_PARENT": str(Parent("0" * 32, 1, 0, "trainer", "slurm")),
    }
    told = {**STEP, "SLURM_STEP_NUM_TASKS": "2", **written, **launch, "SLURM_PROCID": rank}
    seen = own_environ({"experiment": "exp"}, told)
    return identify(Config.from_env(seen, experiment="exp"), seen)


@pytest.mark.parametrize("launch", [{"SLURM_JOB_ID": "78"}, {"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "7"}], ids=str)
def test_a_step_that_a_rank_of_another_one_has_started_or_submitted_is_a_run_of_its_own(launch: dict[str, str]) -> None:
    job = {**STEP, **launch}

    ranks = [_seen(rank, **launch) for rank in ("0", "1")]

    assert [one.run_id for one in ranks] == [f"slurm-{job['SLURM_JOB_ID']}.{job['SLURM_STEP_ID']}"] * 2
    assert [(one.place.rank, one.place.world_size) for one in ranks] == [(0, 2), (1, 2)]


def test_a_rank_that_gets_the_environment_of_rank_0_of_its_own_step_is_in_its_run() -> None:
    assert _seen("1").run_id == "slurm-77.0"
    assert _seen("1", OTEL_ML_EXPERIMENT_ID="slurm-77.0-2").run_id == "slurm-77.0-2"
    assert _seen("1", OTEL_ML_EXPERIMENT_ID="slurm-77").run_id == "slurm-77"


def test_a_program_that_rank_0_of_a_step_starts_is_no_rank_of_it() -> None:
    program = _seen("0")

    assert program.run_id != "slurm-77.0"
    assert program.place.world_size == 1
