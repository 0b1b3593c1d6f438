"""What each launcher that speaks in variables tells a rank of two on one host."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LAUNCHERS", "NOT_IN_VARIABLES", "told"]

LAUNCHERS: Mapping[str, Mapping[str, str]] = {
    "torchrun": {
        "TORCHELASTIC_RUN_ID": "none", "RANK": "{rank}", "LOCAL_RANK": "{rank}", "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
    },
    "flux": {
        "FLUX_JOB_ID": "f3ETxsR9H", "FLUX_JOB_SIZE": "2", "FLUX_JOB_NNODES": "1", "FLUX_TASK_RANK": "{rank}",
        "FLUX_TASK_LOCAL_ID": "{rank}",
    },
    "open_mpi": {
        "OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "{rank}",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "prterun-node7-123@1",
    },
    "pals": {
        "PALS_APID": "6b8f-11", "PALS_RANKID": "{rank}", "PALS_LOCAL_RANKID": "{rank}", "PALS_LOCAL_SIZE": "2",
        "PMI_SIZE": "2",
    },
    "hydra": {"PMI_RANK": "{rank}", "PMI_SIZE": "2", "MPI_LOCALRANKID": "{rank}", "MPI_LOCALNRANKS": "2"},
    "submitit": {
        "SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_JOB_ID": "4711", "SUBMITIT_LOCAL_GLOBALID": "{rank}",
        "SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_LOCALID": "{rank}",
    },
    "slurm": {
        "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "{rank}", "SLURM_LOCALID": "{rank}",
        "SLURM_STEP_NUM_TASKS": "2", "SLURM_NNODES": "1",
    },
    "torch_env": {"RANK": "{rank}", "WORLD_SIZE": "2"},
    "lightning": {"NODE_RANK": "0", "LOCAL_RANK": "{rank}", "WORLD_SIZE": "2"},
}  # fmt: skip
"""By the name of the detector that recognizes them."""

NOT_IN_VARIABLES = frozenset({"ray", "dask", "torch_group"})
"""Detectors that ask a package that was imported."""


def told(launcher: str, rank: int) -> dict[str, str]:
    """Return the variables of a rank."""
    return {name: value.format(rank=rank) for name, value in LAUNCHERS[launcher].items()}
