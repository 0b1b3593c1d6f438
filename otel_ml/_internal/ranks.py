"""Who this process is in its job: ordered detectors of launchers, each reading what the launcher documents."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DETECTORS", "Place", "detect"]

Environ = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """A process' place in its job.

    Attributes:
        launcher: who said so; empty for a process on its own.
        job: the launcher's id of the job, or empty.
        is_unique: whether `job` differs between two runs of the same command.
        hosts: how many hosts the job spans.
        host: which of them this is; global rank 0 is on 0.
        attempt: how many restarts came before, where the launcher counts them.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    launcher: str = ""
    job: str = ""
    is_unique: bool = False
    hosts: int = 1
    attempt: int | None = None
    host: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether no other process is known to be in its job."""
        return not self.launcher and self.world_size == 1


_MOST_DIGITS = 10
"""Longer numbers are no ranks, and no whole numbers of OTLP."""


def _number(environ: Environ, *names: str) -> int | None:
    for name in names:
        raw = environ.get(name, "").strip()
        if raw.isdecimal() and len(raw) < _MOST_DIGITS:
            return int(raw)
    return None


def _size(environ: Environ, *names: str) -> int | None:
    """Return how many there are, where that is said and is not nonsense."""
    return _number(environ, *names) or None


def torchrun(environ: Environ) -> Place | None:
    """`torchrun`, and everything built on torchelastic (accelerate, NeMo-Run)."""
    run_id = environ.get("TORCHELASTIC_RUN_ID", "").strip()
    rank, world_size = _number(environ, "RANK"), _size(environ, "WORLD_SIZE")
    if not run_id or rank is None or world_size is None:
        return None
    slurm_job = slurm(environ)
    named = "" if run_id == "none" else run_id
    return Place(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "LOCAL_RANK") or 0,
        launcher="torchrun",
        job=named or (slurm_job.job if slurm_job else ""),
        is_unique=not named and slurm_job is not None,
        hosts=_number(environ, "GROUP_WORLD_SIZE") or 1,
        attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT"),
        host=_number(environ, "GROUP_RANK") or 0,
    )


def slurm(environ: Environ) -> Place | None:
    """SLURM, only under `srun`: in the batch script itself the variables are set, but there is one process."""
    job, step = environ.get("SLURM_JOB_ID", "").strip(), environ.get("SLURM_STEP_ID", "").strip()
    rank = _number(environ, "SLURM_PROCID")
    if not job or not step or rank is None:
        return None
    task = environ.get("SLURM_ARRAY_TASK_ID", "").strip()
    array = environ.get("SLURM_ARRAY_JOB_ID", "").strip() or job
    return Place(
        rank=rank,
        world_size=_number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") or 1,
        local_rank=_number(environ, "SLURM_LOCALID") or 0,
        launcher="slurm",
        job=f"slurm-{array}_{task}.{step}" if task else f"slurm-{job}.{step}",
        is_unique=True,
        hosts=_number(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES") or 1,
        attempt=_number(environ, "SLURM_RESTART_COUNT"),
        host=_number(environ, "SLURM_NODEID") or 0,
    )


def open_mpi(environ: Environ) -> Place | None:
    """Open MPI's `mpirun`."""
    rank, world_size = _number(environ, "OMPI_COMM_WORLD_RANK"), _size(environ, "OMPI_COMM_WORLD_SIZE")
    if rank is None or world_size is None:
        return None
    local = _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE") or world_size
    return Place(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "OMPI_COMM_WORLD_LOCAL_RANK") or 0,
        launcher="mpi",
        job=_clean(environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid") or ""),
        hosts=-(-world_size // local),
        host=rank // local,
    )


def hydra(environ: Environ) -> Place | None:
    """MPICH's and Intel MPI's `mpiexec` (hydra)."""
    rank, world_size = _number(environ, "PMI_RANK"), _size(environ, "PMI_SIZE")
    if rank is None or world_size is None:
        return None
    local = _number(environ, "MPI_LOCALNRANKS") or world_size
    return Place(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "MPI_LOCALRANKID") or 0,
        launcher="mpi",
        job=_clean(environ.get("PMI_JOBID") or environ.get("HYDRA_JOBID") or ""),
        hosts=-(-world_size // local),
        host=rank // local,
    )


def ray(environ: Environ) -> Place | None:
    """A Ray driver, task or actor; ranks where Ray Train gives them."""
    module = sys.modules.get("ray")
    if module is None or not module.is_initialized():
        return None
    rank = _number(environ, "RANK")
    return Place(
        rank=rank or 0,
        world_size=_number(environ, "WORLD_SIZE") or 1,
        local_rank=_number(environ, "LOCAL_RANK") or 0,
        launcher="ray",
        job=_ray_job(module),
        is_unique=True,
    )


def _ray_job(module: Any) -> str:
    context = module.get_runtime_context()
    session = getattr(context, "get_session_name", str)() or getattr(context, "gcs_address", "")
    return _clean(f"{session}-{context.get_job_id()}")


def torch_env(environ: Environ) -> Place | None:
    """Torch's `env://` variables, set by whoever starts the processes."""
    rank, world_size = _number(environ, "RANK"), _size(environ, "WORLD_SIZE")
    if rank is None or world_size is None:
        return None
    local = _number(environ, "LOCAL_WORLD_SIZE") or world_size
    return Place(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "LOCAL_RANK") or rank % local,
        launcher="environment",
        hosts=-(-world_size // local),
        host=rank // local,
    )


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]+", "-", text).strip("-.")


DETECTORS: tuple[Callable[[Environ], Place | None], ...] = (torchrun, slurm, open_mpi, hydra, ray, torch_env)
"""In order: the first that recognises its launcher wins."""


def detect(environ: Environ) -> Place:
    """Return this process' place; a process no launcher speaks of is rank 0 of 1."""
    for detector in DETECTORS:
        place = detector(environ)
        if place is not None:
            return place
    return Place()
