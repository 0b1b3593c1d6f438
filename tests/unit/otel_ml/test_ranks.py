from __future__ import annotations

import os
import sys
import types

import pytest

from otel_ml._internal.forks import launch_variables
from otel_ml._internal.identity.ranks import DETECTORS, JobPlace, detect
from otel_ml._internal.identity.run_identity import Parent, identify
from otel_ml._internal.lifecycle.run_requested import may_join_rank_zero
from otel_ml.config import Config
from tests.rank_variables import LAUNCHERS, NOT_IN_VARIABLES, told

TORCHRUN = {
    "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "2",
}  # fmt: skip
SRUN = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "8", "SLURM_NNODES": "2",
}  # fmt: skip


def test_a_process_of_no_launcher_is_rank_0_of_1() -> None:
    assert detect({}) == JobPlace()


def test_torchrun_says_rank_restarts_and_hosts() -> None:
    assert detect(TORCHRUN) == JobPlace(5, 8, 1, "torchrun", "", False, 2, 2, host=1, variable="TORCHELASTIC_RUN_ID")


def test_torchruns_own_job_id_is_used_unless_it_is_none() -> None:
    assert detect({**TORCHRUN, "TORCHELASTIC_RUN_ID": "rl-42"}).job == "rl-42"


def test_torchrun_inside_a_slurm_step_takes_the_jobs_identity_from_slurm() -> None:
    place = detect({**SRUN, **TORCHRUN})

    assert (place.launcher, place.rank, place.job, place.is_unique) == ("torchrun", 5, "slurm-77.0", True)


def test_srun_says_rank_and_job() -> None:
    assert detect(SRUN) == JobPlace(3, 8, 3, "slurm", "slurm-77.0", is_unique=True, hosts=2, variable="SLURM_PROCID")


def test_a_slurm_array_task_and_a_requeue_are_told_apart() -> None:
    place = detect({**SRUN, "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "4", "SLURM_RESTART_COUNT": "1"})

    assert (place.job, place.attempt) == ("slurm-70_4.0", 1)


def test_slurms_batch_script_itself_is_not_a_rank() -> None:
    assert detect({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "16"}) == JobPlace()


def test_open_mpi() -> None:
    environ = {
        "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "prterun-node7-123@1",
    }  # fmt: skip

    assert detect(environ) == JobPlace(
        2, 4, 0, "mpi", "prterun-node7-123-1", False, 2, host=1, variable="OMPI_COMM_WORLD_RANK"
    )


def test_flux() -> None:
    environ = {
        "FLUX_JOB_ID": "ƒ3ETxsR9H", "FLUX_JOB_ID_PATH": "/ƒabc/ƒ3ETxsR9H", "FLUX_JOB_SIZE": "8", "FLUX_JOB_NNODES": "2",
        "FLUX_TASK_RANK": "5", "FLUX_TASK_LOCAL_ID": "1", "PMI_RANK": "5", "PMI_SIZE": "8",
    }  # fmt: skip

    assert detect(environ) == JobPlace(
        rank=5, world_size=8, local_rank=1, launcher="flux", job="flux-abc-3ETxsR9H", is_unique=True, hosts=2, host=1,
        variable="FLUX_TASK_RANK",
    )  # fmt: skip
    assert detect({**environ, "FLUX_JOB_SIZE": "1", "FLUX_TASK_RANK": "0", "PMI_SIZE": ""}).is_alone


def test_pals_of_cray() -> None:
    environ = {
        "PALS_APID": "6b8f-11", "PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "4", "PMI_RANK": "5",
        "PMI_SIZE": "8",
    }  # fmt: skip

    assert detect(environ) == JobPlace(
        rank=5, world_size=8, local_rank=1, launcher="mpi", job="6b8f-11", hosts=2, host=1, variable="PALS_RANKID"
    )


def test_hydra_of_mpich_and_intel() -> None:
    assert detect({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}) == JobPlace(
        1, 4, 1, "mpi", variable="PMI_RANK"
    )


def test_torchs_plain_variables() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}

    assert detect(environ) == JobPlace(3, 4, 1, "environment", hosts=2, host=1, variable="RANK")


def test_a_script_that_lightning_starts_again_is_another_rank_not_a_child_of_the_first() -> None:
    environ = {"NODE_RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    parent = str(Parent("instance", os.getppid(), 0, "trainer"))

    place = detect(environ)
    identity = identify(Config.from_env({**environ, "OTEL_ML_PARENT": parent}), environ)

    assert (place.rank, place.world_size) == (1, 2)
    assert identity.parent is None


ONE_OF_SLURM = {**SRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_NAME": "bash"}
ONE_OF_OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "PMIX_NAMESPACE": "prterun-node7-123@1"}
ONE_OF_MPICH = {"PMI_RANK": "0", "PMI_SIZE": "1"}
BY_TORCH = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "4"}
BY_LIGHTNING = {"NODE_RANK": "0", "LOCAL_RANK": "3", "WORLD_SIZE": "4"}


@pytest.mark.parametrize("starter", [ONE_OF_SLURM, ONE_OF_OPEN_MPI, ONE_OF_MPICH], ids=["slurm", "open mpi", "mpich"])
@pytest.mark.parametrize("ranks", [BY_TORCH, BY_LIGHTNING], ids=["torch", "lightning"])
def test_ranks_that_the_one_process_of_a_step_starts_are_ranks(starter: dict[str, str], ranks: dict[str, str]) -> None:
    place = detect({**starter, **ranks})

    assert (place.rank, place.world_size, place.local_rank) == (3, 4, 3)


def test_a_step_of_several_tasks_says_the_ranks_whatever_a_script_has_exported() -> None:
    assert detect({**SRUN, "RANK": "0", "WORLD_SIZE": "16"}).launcher == "slurm"


def test_the_one_process_of_a_step_stays_that_where_its_world_is_one() -> None:
    assert detect({**ONE_OF_SLURM, "RANK": "0", "WORLD_SIZE": "1"}).launcher == "slurm"


@pytest.mark.parametrize("rank", ["", "x", "-1", "1.5"])
def test_variables_that_are_no_ranks_are_no_launcher(rank: str) -> None:
    assert detect({"RANK": rank, "WORLD_SIZE": "2"}) == JobPlace()


def test_every_launcher_that_is_recognized_by_variables_has_some_here() -> None:
    by_variables = {detector.__name__: detector for detector in DETECTORS if detector.__name__ not in NOT_IN_VARIABLES}

    assert by_variables.keys() == LAUNCHERS.keys()
    for name, detector in by_variables.items():
        assert detector(told(name, 1)) == detect(told(name, 1)) != JobPlace()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_of_the_ranks_of_every_launcher_all_but_the_first_may_join_it(launcher: str) -> None:
    places = [detect(told(launcher, rank)) for rank in (0, 1)]

    assert [(place.rank, place.world_size) for place in places] == [(0, 2), (1, 2)]
    assert [may_join_rank_zero(told(launcher, rank)) for rank in (0, 1)] == [False, True]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_without_the_variables_of_a_launch_nobody_is_in_one(launcher: str) -> None:
    environ = told(launcher, 1)
    of_launch = launch_variables(environ)

    assert of_launch != launch_variables(told(launcher, 0))
    assert detect({name: value for name, value in environ.items() if name not in of_launch}) == JobPlace()


class RayContext:
    """What `ray.get_runtime_context()` says, as far as it is asked."""

    gcs_address = "10.0.0.1:6379"

    def get_session_name(self) -> str:
        return "session_2026-01-01_00-00-00_000000_42"

    def get_job_id(self) -> str:
        return "01000000"


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Ray at its boundary, connected to a cluster: the package is not a dependency of the tests."""
    module = types.ModuleType("ray")
    vars(module).update(is_initialized=lambda: True, get_runtime_context=RayContext)
    monkeypatch.setitem(sys.modules, "ray", module)
    return module


def test_ray_says_the_job_to_its_driver_and_actors(ray: types.ModuleType) -> None:
    job = "session_2026-01-01_00-00-00_000000_42-01000000"

    assert detect({}) == JobPlace(launcher="ray", job=job, is_unique=True)


def test_ray_train_says_the_ranks(ray: types.ModuleType) -> None:
    place = detect({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"})

    assert (place.launcher, place.rank, place.world_size, place.local_rank) == ("ray", 3, 4, 1)


def test_an_older_ray_without_session_names_tells_clusters_apart_by_address(
    ray: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(RayContext, "get_session_name")

    assert detect({}).job == "10.0.0.1-6379-01000000"


def test_ray_that_is_imported_and_not_used_is_no_launcher(ray: types.ModuleType) -> None:
    vars(ray).update(is_initialized=lambda: False)

    assert detect({}) == JobPlace()


def test_torchrun_inside_a_ray_task_says_the_ranks(ray: types.ModuleType) -> None:
    assert detect(TORCHRUN).launcher == "torchrun"
