"""What a developer's shell says, and no test may hear: where runs go, who a process is in its job, what Python does."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

__all__ = ["SOURCES", "forget", "is_the_shells", "reach_loopback"]

_ROOT = Path(__file__).resolve().parents[1]
SOURCES = os.pathsep.join(map(str, (_ROOT, _ROOT / "exporters", _ROOT / "service")))
"""PYTHONPATH of a process that can import the project as it is here, and these tests."""

_PREFIXES = (
    "OTEL_",
    "WANDB_",
    "MLFLOW_",
    "TRACKIO_",
    "SWANLAB_",
    "SLURM_",
    "SUBMITIT_",
    "OMPI_",
    "PMI_",
    "PMIX_",
    "MPI_",
    "HYDRA_",
    "FLUX_",
    "PALS_",
    "RAY_",
    "TORCHELASTIC_",
    "MASTER_",
    "GIT_",
)
_NAMES = frozenset({
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "PBS_JOBID", "LSB_JOBID", "NETRC"),
    "XDG_RUNTIME_DIR",  # spools of the developer's own runs, and services that wait for more
    *("PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONSAFEPATH", "PYTHONIOENCODING", "PYTHONUNBUFFERED"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"),
})  # fmt: skip


def is_the_shells(name: str) -> bool:
    """Whether a variable changes what a job does, where it sends to, or what a program prints."""
    return name in _NAMES or name.startswith(_PREFIXES)


def forget(environ: MutableMapping[str, str] = os.environ) -> None:
    """Remove them from this process, and so from all that it starts."""
    for name in [*filter(is_the_shells, environ)]:
        del environ[name]


def reach_loopback(environ: MutableMapping[str, str] = os.environ) -> None:
    """Have no proxy asked for the servers of tests; the package index may still need it."""
    for name in ("no_proxy", "NO_PROXY"):
        environ[name] = ",".join(filter(None, [environ.get(name), "localhost,127.0.0.1,::1"]))
