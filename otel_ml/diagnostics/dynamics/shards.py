"""What a rank holds of a tensor, and how many ranks hold the same."""

from __future__ import annotations

from typing import Any

__all__ = ["copies_of", "held", "rank_here", "world_size"]


def world_size() -> int:
    """Return the ranks of torch.distributed, 1 without it."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank_here() -> int:
    """Return the rank in torch.distributed, 0 without it."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def held(tensor: Any) -> Any:
    """Return this rank's part of a DTensor, or the tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def copies_of(tensor: Any, world: int) -> int:
    """Return how many of `world` ranks hold the same values; 0 for parts of a sum, which no norm can be made of.

    A DTensor tells by its placements; a plain tensor is taken as one that data parallelism copied to all.
    """
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return world
    if any(placement.is_partial() for placement in placements):
        return 0
    sharded = 1
    for size, placement in zip(tensor.device_mesh.shape, placements, strict=True):
        sharded *= 1 if placement.is_replicate() else size
    return max(world // sharded, 1)
