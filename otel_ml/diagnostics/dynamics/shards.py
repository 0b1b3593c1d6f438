"""What a rank holds of a tensor, and how many ranks hold the same."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["copies_of", "held", "is_distributed", "rank_here", "shards_of", "world_size"]


def world_size() -> int:
    """Return the ranks of torch.distributed, 1 without it."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank_here() -> int:
    """Return the rank in torch.distributed, 0 without it."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def is_distributed(tensor: Any) -> bool:
    """Return whether a tensor is a DTensor; what a plain one lacks takes long to look for."""
    import torch

    return type(tensor) not in (torch.Tensor, torch.nn.Parameter) and hasattr(tensor, "placements")


def held(tensor: Any) -> Any:
    """Return this rank's part of a DTensor, or the tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def copies_of(tensor: Any, world: int) -> int:
    """Return how many of `world` ranks hold the same values; 0 for parts of a sum, which no norm can be made of.

    A DTensor tells by its mesh; a plain tensor is taken as one that data parallelism copied to all.
    """
    shards = shards_of(tensor)
    # A mesh of 8 that cuts a tensor into 4 holds it twice.
    return world if not hasattr(tensor, "placements") else tensor.device_mesh.size() // shards if shards else 0


def shards_of(tensor: Any) -> int:
    """Return into how many parts a tensor is cut, 1 for a plain one; 0 for parts of a sum."""
    placements = getattr(tensor, "placements", ())
    if any(placement.is_partial() for placement in placements):
        return 0
    sizes = tensor.device_mesh.shape if placements else ()
    return math.prod(size for size, placement in zip(sizes, placements, strict=True) if not placement.is_replicate())
