"""Who this process is in its job: ordered detectors of launchers, each reading what the launcher documents."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from otel_ml._internal.identity.trials import ray_train_rank, ray_train_run, trial

__all__ = ["BY_HAND", "DETECTORS", "JobPlace", "detect", "unusable_rank"]

Environ = Mapping[str, str]

BY_HAND = "environment"
"""The launcher of ranks that were given their numbers, and nothing that tells one start from the next."""


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A process' place in its job.

    Attributes:
        launcher: who said so; empty for a process on its own.
        job: the launcher's id of the job, or empty.
        is_unique: whether `job` differs between two runs of the same command.
        is_of_scheduler: whether `job` is the scheduler's alone, in which more starts may follow.
        hosts: how many hosts the job spans.
        host: which of them this is; global rank 0 is on 0.
        attempt: how many restarts came before, where the launcher counts them.
        variable: by which the launcher gives the rank: the launcher's own process was started without it.
        task: the process that the launcher started, where it is the only one: what else runs below it, as the programs
            of a shell do, are starts of their own.
        trial: which trial of a search this process does; empty where there is no search.
        tasks: how many agents of a launch the step has, where there are steps.
        job_of_steps: the job, where agents of one launch are in more than one step.
        role: of the process; ranks count anew in each.
        logs: where the launcher keeps the logs of this launch, on this host; it has another folder for the next.
        rank_pid: the process that is the rank, where it has made this one; 0 where this one is the rank.
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
    variable: str = ""
    task: int | None = None
    trial: str = ""
    tasks: int = 1
    job_of_steps: str = ""
    is_of_scheduler: bool = False
    role: str = ""
    logs: str = ""
    rank_pid: int = 0

    @property
    def is_alone(self) -> bool:
        """Whether no other process is known to be in its job."""
        return not self.launcher and self.world_size == 1


_MOST_DIGITS = 10
"""Longer numbers are neither ranks nor whole numbers of OTLP."""


def _number(environ: Environ, *names: str) -> int | None:
    for name in names:
        raw = environ.get(name, "").strip()
        if raw.isdecimal() and len(raw) < _MOST_DIGITS:
            return int(raw)
    return None


def _size(environ: Environ, *names: str) -> int | None:
    """Return how many there are, where that is said and is not nonsense."""
    return _number(environ, *names) or None


def torchrun(environ: Environ) -> JobPlace | None:
    """`torchrun`, and everything built on torchelastic (accelerate, NeMo-Run)."""
    run_id = environ.get("TORCHELASTIC_RUN_ID", "").strip()
    rank, world_size = _number(environ, "RANK"), _size(environ, "WORLD_SIZE")
    if not run_id or rank is None or world_size is None:
        return None
    named = "" if run_id == "none" else run_id
    hosts = _number(environ, "GROUP_WORLD_SIZE") or 1
    step = slurm(environ)
    return JobPlace(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "LOCAL_RANK") or 0,
        launcher="torchrun",
        job=_named(step.job, named) if step else named,
        is_unique=step is not None,
        hosts=hosts,
        attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT"),
        host=_number(environ, "GROUP_RANK") or 0,
        variable="TORCHELASTIC_RUN_ID",
        task=_agent(environ, step) if step else None,
        tasks=step.world_size if step else 1,
        job_of_steps=_named(_slurm_job(environ), named) if step else "",
        logs=_logs(environ),
    )


def _logs(environ: Environ) -> str:
    """Return the folder of `<folder>/attempt_0/<rank>/error.json`, which torch makes for a launch."""
    found = re.fullmatch(r"(.+)/attempt_\d+/\d+/error\.json", environ.get("TORCHELASTIC_ERROR_FILE", ""))
    return found[1] if found else ""


def _named(job: str, name: str) -> str:
    """Return the id of a launch below what the scheduler has started: a copied script has the same name."""
    return f"{job}-{_clean(name)}" if name else job


def _agent(environ: Environ, step: JobPlace) -> int | None:
    """Return the step's task; where it has several, none of them stands for all agents of the host."""
    return (_number(environ, "SLURM_TASK_PID") or 0) if step.world_size == 1 else 0


def slurm(environ: Environ) -> JobPlace | None:
    """SLURM, only under `srun`: in the batch script itself the variables are set, but there is one process."""
    step, rank = environ.get("SLURM_STEP_ID", "").strip(), _number(environ, "SLURM_PROCID")
    if not _slurm_job(environ) or not step or rank is None:
        return None
    # The step's own numbers: those of the job are also set in `salloc`'s shell, which is one process.
    world_size = _size(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") or 1
    return JobPlace(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "SLURM_LOCALID") or 0,
        launcher="slurm",
        job=f"{_slurm_job(environ)}.{step}",
        is_unique=True,
        hosts=_size(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES") or 1,
        attempt=_number(environ, "SLURM_RESTART_COUNT"),
        host=_number(environ, "SLURM_NODEID") or 0,
        variable="SLURM_PROCID",
        task=_number(environ, "SLURM_TASK_PID") if world_size == 1 else None,
    )


def _slurm_job(environ: Environ) -> str:
    job, task = environ.get("SLURM_JOB_ID", "").strip(), environ.get("SLURM_ARRAY_TASK_ID", "").strip()
    array = environ.get("SLURM_ARRAY_JOB_ID", "").strip() or job
    return "" if not job else f"slurm-{array}_{task}" if task else f"slurm-{job}"


def flux(environ: Environ) -> JobPlace | None:
    """Flux, a job of several tasks (flux-environment(7)); each program of a job of one task is a start of its own."""
    rank, world_size = _number(environ, "FLUX_TASK_RANK"), _size(environ, "FLUX_JOB_SIZE")
    job = _clean(environ.get("FLUX_JOB_ID_PATH") or environ.get("FLUX_JOB_ID") or "")
    if rank is None or world_size is None or world_size == 1 or not job:
        return None
    hosts = _size(environ, "FLUX_JOB_NNODES") or 1
    return JobPlace(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "FLUX_TASK_LOCAL_ID") or 0,
        launcher="flux",
        job=f"flux-{job}",
        is_unique=True,
        hosts=hosts,
        # As tasks fill one host after the other, in equal parts.
        host=rank * hosts // world_size,
        variable="FLUX_TASK_RANK",
    )


def open_mpi(environ: Environ) -> JobPlace | None:
    """Open MPI's `mpirun`."""
    job = environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid") or ""
    return _mpi(
        environ,
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        job,
    )


def hydra(environ: Environ) -> JobPlace | None:
    """MPICH's and Intel MPI's `mpiexec` (hydra)."""
    job = environ.get("PMI_JOBID") or environ.get("HYDRA_JOBID") or ""
    return _mpi(environ, ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), job)


def pals(environ: Environ) -> JobPlace | None:
    """HPE Cray's `mpiexec` and `aprun` (PALS), as on PBS."""
    names = ("PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE")
    return _mpi(environ, names, environ.get("PALS_APID") or "")


def _mpi(environ: Environ, names: tuple[str, str, str, str], job: str) -> JobPlace | None:
    rank, world_size = _number(environ, names[0]), _size(environ, names[1])
    if rank is None or world_size is None or _is_slurms(environ, rank, world_size):
        return None
    local = _size(environ, names[3]) or world_size
    step = slurm(environ)
    is_of_step = not job and step is not None and step.world_size > 1  # its tasks are the proxies of `mpirun`
    allocation = step.job if step is not None and is_of_step else _slurm_job(environ)
    return JobPlace(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, names[2]) or 0,
        launcher="mpi",
        job="-".join(part for part in (allocation, _clean(job)) if part),
        is_of_scheduler=bool(allocation) and not job and not is_of_step,
        # Rounded up: the last host may have fewer ranks. `host` holds where ranks fill one host after the other.
        hosts=-(-world_size // local),
        host=rank // local,
        variable=names[0],
    )


def _is_slurms(environ: Environ, rank: int, world_size: int) -> bool:
    """Whether `srun` itself has started the ranks, and speaks MPI's protocol with them; `mpirun` may run in a step."""
    step = slurm(environ)
    return step is not None and (step.rank, step.world_size) == (rank, world_size)


def submitit(environ: Environ) -> JobPlace | None:
    """The local executor of submitit; its jobs on SLURM are steps of SLURM."""
    rank, world_size = _number(environ, "SUBMITIT_LOCAL_GLOBALID"), _size(environ, "SUBMITIT_LOCAL_NTASKS")
    if rank is None or world_size is None or environ.get("SUBMITIT_EXECUTOR") != "local":
        return None
    return JobPlace(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "SUBMITIT_LOCAL_LOCALID") or 0,
        launcher="submitit",
        job=_clean(f"submitit-{environ.get('SUBMITIT_LOCAL_JOB_ID', '')}"),
        variable="SUBMITIT_LOCAL_GLOBALID",
    )


def ray(environ: Environ) -> JobPlace | None:
    """A Ray driver, task or actor; ranks where Ray Train gives them."""
    module = sys.modules.get("ray")
    if module is None or not module.is_initialized():
        return None
    of_train = ray_train_rank() if _number(environ, "RANK") is None else None
    rank, world_size, local_rank = of_train or (
        _number(environ, name) or 0 for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    )
    return JobPlace(
        rank=rank,
        world_size=world_size or 1,
        local_rank=local_rank,
        launcher="ray",
        job=_ray_job(module),
        is_unique=True,
    )


def _ray_job(module: Any) -> str:
    context = module.get_runtime_context()
    session = getattr(context, "get_session_name", str)() or getattr(context, "gcs_address", "")
    training = "" if trial() else ray_train_run()
    return _clean(f"{session}-{context.get_job_id()}-{training}")


def dask(environ: Environ) -> JobPlace | None:
    """A task on a worker of Dask; a worker that has no rank is the one that its name says, if that is a number."""
    module = sys.modules.get("distributed.worker")
    worker = _dask_worker(module) if module is not None else None
    if worker is None:
        return None
    return JobPlace(
        rank=_number({**environ, "name": str(worker.name)}, "RANK", "name") or 0,
        world_size=_size(environ, "WORLD_SIZE") or 1,
        local_rank=_number(environ, "LOCAL_RANK") or 0,
        launcher="dask",
    )


def _dask_worker(module: Any) -> Any:
    try:
        return module.get_worker()
    except ValueError:  # no worker runs in this process
        return None


def torch_env(environ: Environ) -> JobPlace | None:
    """Torch's `env://` variables, set by whoever starts the processes."""
    rank, world_size = _number(environ, "RANK"), _size(environ, "WORLD_SIZE")
    # `unusable_rank()` says what is wrong with them.
    if rank is None or world_size is None or rank >= world_size:
        return None
    local = _number(environ, "LOCAL_WORLD_SIZE") or world_size
    return JobPlace(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environ, "LOCAL_RANK") or rank % local,
        launcher=BY_HAND,
        hosts=-(-world_size // local),
        host=rank // local,
        variable="RANK",
    )


def unusable_rank(environ: Environ) -> str:
    """Return what is wrong with torch's variables, by which ranks were meant to be told apart; an empty text of others.

    A rank of 0 alone, or a size alone, may be any image's: nothing is meant by it.

    Examples:
        >>> unusable_rank({"RANK": "5", "WORLD_SIZE": "2"})
        "RANK='5': expected a whole number from 0 to 1, as WORLD_SIZE='2' says."
        >>> unusable_rank({"RANK": "0", "WORLD_SIZE": "2"}), unusable_rank({"RANK": "0"})
        ('', '')
        >>> unusable_rank({"RANK": "-1", "WORLD_SIZE": "1"})  # what says that there are no ranks
        ''
    """
    given, size = environ.get("RANK", "").strip(), _size(environ, "WORLD_SIZE")
    rank = _number(environ, "RANK")
    if not given or (rank is not None and rank < (size or 1)) or (rank is None and size == 1):
        return ""
    if size is None:
        return f"RANK={given!r}: expected WORLD_SIZE, too, got {environ.get('WORLD_SIZE')!r}." if rank else ""
    return (
        f"RANK={given!r}: expected a whole number from 0 to {size - 1}, as WORLD_SIZE={environ['WORLD_SIZE']!r} says."
    )


def lightning(environ: Environ) -> JobPlace | None:
    """Lightning's own launcher, on the first node: it starts the script again for each other rank, without a `RANK`."""
    rank, world_size = _number(environ, "LOCAL_RANK"), _size(environ, "WORLD_SIZE")
    if rank is None or world_size is None or _number(environ, "NODE_RANK") != 0:
        return None
    return JobPlace(rank=rank, world_size=world_size, local_rank=rank, launcher="lightning", variable="LOCAL_RANK")


def torch_group(environ: Environ) -> JobPlace | None:
    """The default process group of `torch.distributed`, where it was begun already."""
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    rank = module.get_rank()
    local = _number(environ, "LOCAL_RANK")
    return JobPlace(
        rank=rank,
        world_size=module.get_world_size(),
        local_rank=rank if local is None else local,
        launcher="torch.distributed",
    )


def _first(detectors: Sequence[Callable[[Environ], JobPlace | None]], environ: Environ) -> JobPlace | None:
    return next((place for detector in detectors if (place := detector(environ)) is not None), None)


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]+", "-", text).strip("-.")


DETECTORS: tuple[Callable[[Environ], JobPlace | None], ...] = (
    torchrun,
    flux,
    open_mpi,
    pals,
    hydra,
    submitit,
    slurm,
    ray,
    dask,
    torch_env,
    lightning,
    torch_group,
)
"""In order: the first that recognizes its launcher wins. What is started within something else comes before it."""


_STARTED_BY_ONE: tuple[Callable[[Environ], JobPlace | None], ...] = (ray, dask, torch_env, lightning)
"""What gives ranks to processes that the one process of a step or an `mpirun` has started, often a shell."""

_STARTERS_OF_ONE = frozenset({"mpi", "submitit", "slurm"})


def detect(environ: Environ) -> JobPlace:
    """Return this process' place; a process no launcher speaks of is rank 0 of 1.

    A launcher that has started one process may have been overtaken: that has started others, and told them their
    ranks, or joined them to a process group.
    """
    place = _first(DETECTORS, environ) or JobPlace()
    if place.world_size == 1 and place.launcher in _STARTERS_OF_ONE:
        within = _first(_STARTED_BY_ONE, environ)
        place = within if within is not None and within.world_size > 1 else place
    group = torch_group(environ) if place.world_size == 1 and place.launcher else None
    if group is not None and group.world_size > 1:
        place = replace(place, rank=group.rank, world_size=group.world_size, local_rank=group.local_rank)
    return replace(place, trial=trial())
