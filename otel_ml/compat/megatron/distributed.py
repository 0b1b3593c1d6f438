"""Which rank this is, of how many: what the process knows by itself."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["rank", "world_size"]


def rank() -> int:
    """Return this process' rank; 0 where nobody says."""
    group = _group()
    return int(group.get_rank()) if group is not None else _number(("OTEL_ML_RANK", "RANK", "SLURM_PROCID"), 0)


def world_size() -> int:
    """Return how many processes the job has; 1 where nobody says."""
    group = _group()
    names = ("OTEL_ML_WORLD_SIZE", "WORLD_SIZE", "SLURM_NTASKS")
    return int(group.get_world_size()) if group is not None else _number(names, 1)


def _group() -> Any | None:
    """The default process group; asking it for numbers talks to nobody."""
    # Not imported: a process without torch has no group. A torch that was built without it has the module alone.
    group: Any = sys.modules.get("torch.distributed")
    return group if group is not None and group.is_available() and group.is_initialized() else None


def _number(names: tuple[str, ...], other: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), other)
