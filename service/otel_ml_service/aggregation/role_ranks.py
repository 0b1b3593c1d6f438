"""Which ranks a launch has: one of several roles (`mpirun a : b`, `srun --multi-prog`) counts its ranks over all."""

from __future__ import annotations

from collections.abc import Iterable

from otel_ml_service.aggregation.observation import Writer

__all__ = ["ranks_elsewhere"]


def ranks_elsewhere(writers: Iterable[Writer], role: str, world_size: int) -> set[int]:
    """Return the ranks of the launch of `role` that are in other roles: they are not to be awaited in this one.

    Roles of one launch have the same world size and share no rank; roles of launches of their own have a rank 0 each.
    """
    of_role: dict[str, set[int]] = {role: set()}
    for writer in writers:
        if writer.world_size == world_size and writer.parent is None:
            of_role.setdefault(writer.role, set()).add(writer.rank)
    own = of_role.pop(role)
    return {rank for ranks in of_role.values() if not ranks & own for rank in ranks}
