"""Which ranks a launch has: one of several roles (`mpirun a : b`, `srun --multi-prog`) counts its ranks over all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["RanksHeard", "of_newest_attempts", "ranks_elsewhere", "ranks_heard"]


class RanksHeard(NamedTuple):
    """Of how many ranks something was heard, and how many there are by `ml.world_size`."""

    heard: int
    expected: int


def of_newest_attempts(writers: Iterable[WriterState]) -> list[WriterState]:
    """Return the writers of each role's newest attempt; who entered no step is of its first one."""
    everybody = list(writers)
    newest: dict[str, int] = {}
    for writer in everybody:
        newest[writer.writer.role] = max(newest.get(writer.writer.role, 0), writer.attempt or 0)
    return [writer for writer in everybody if (writer.attempt or 0) == newest[writer.writer.role]]


def ranks_heard(writers: Iterable[WriterState]) -> RanksHeard:
    """Count the ranks of the newest attempts: one of which nothing was heard recorded nothing, or it did not arrive."""
    newest = of_newest_attempts(writers)
    sizes: dict[str, int] = {}
    own: dict[str, set[int]] = {}
    for one in newest:
        sizes[one.writer.role] = max(sizes.get(one.writer.role, 1), one.writer.world_size or 1)
        own.setdefault(one.writer.role, set()).add(one.writer.rank)
    heard = expected = 0
    counted: set[str] = set()
    for role, size in sizes.items():
        if role not in counted:
            launch = _launch_of((one.writer for one in newest), role, size)
            # Roles of one launch count once, together.
            counted |= launch.keys()
            ranks = len(own[role].union(*launch.values()))
            # Where nobody says a world size it is 1 here, and more ranks may have been heard.
            heard, expected = heard + ranks, expected + max(ranks, size)
    return RanksHeard(heard, expected)


def ranks_elsewhere(writers: Iterable[Writer], role: str, world_size: int) -> set[int]:
    """Return the ranks of the launch of `role` that are in other roles: they are not to be awaited in this one."""
    launch = _launch_of(writers, role, world_size)
    return {rank for other, ranks in launch.items() if other != role for rank in ranks}


def _launch_of(writers: Iterable[Writer], role: str, world_size: int) -> Mapping[str, set[int]]:
    """Return role → ranks of the launch of `role`.

    Roles of one launch have the same world size and share no rank; roles of launches of their own have a rank 0 each.
    """
    of_role: dict[str, set[int]] = {role: set()}
    for writer in writers:
        if writer.world_size == world_size and writer.parent is None:
            of_role.setdefault(writer.role, set()).add(writer.rank)
    own = of_role[role]
    return {other: ranks for other, ranks in of_role.items() if other == role or not ranks & own}
