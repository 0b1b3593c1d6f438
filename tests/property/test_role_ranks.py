"""How many ranks a run has, and of how many something was heard, whichever roles its launches give them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.role_ranks import ranks_elsewhere, ranks_heard
from otel_ml_service.aggregation.writer_state import WriterState
from tests.strategies import writer


@dataclass(frozen=True)
class Launch:
    """What one `srun` has started: as many ranks as no other launch here has, each in one of its roles."""

    number: int
    world_size: int
    role_of: tuple[str, ...]
    heard: frozenset[int]

    @property
    def roles(self) -> set[str]:
        """Roles of which something was heard."""
        return {self.role_of[rank] for rank in self.heard}

    def writers(self, attempt: int | None) -> list[WriterState]:
        """Return those of which something was heard."""
        return [entered(rank, self.role_of[rank], self.world_size, attempt) for rank in sorted(self.heard)]


def entered(rank: int, role: str, world_size: int, attempt: int | None) -> WriterState:
    found = WriterState(rank, writer(rank, role=role, world_size=world_size), "pool")
    if attempt is not None:
        found.enter(attempt)
    return found


@st.composite
def launches(draw: st.DrawFn) -> list[Launch]:
    found = []
    for number, size in enumerate(draw(st.lists(st.integers(1, 6), max_size=3, unique=True))):
        roles = draw(st.lists(st.sampled_from([f"a{number}", f"b{number}"]), min_size=size, max_size=size))
        heard = draw(st.frozensets(st.integers(0, size - 1), min_size=1))
        found.append(Launch(number, size, tuple(roles), heard))
    return found


@given(launches(), st.sampled_from([None, 0, 1, 2]))
def test_ranks_of_all_launches_are_counted_once(started: list[Launch], attempt: int | None) -> None:
    writers = [one for launch in started for one in launch.writers(attempt)]

    found = ranks_heard(writers)

    assert found.heard == sum(len(launch.heard) for launch in started)
    assert found.expected == sum(launch.world_size for launch in started)


@given(launches(), st.sampled_from([None, 0, 1]))
def test_of_a_launch_that_was_started_again_the_newest_one_counts(started: list[Launch], before: int | None) -> None:
    """The one before had more ranks, in the same roles."""
    former = [
        entered(rank, role, launch.world_size + 7, before)
        for launch in started
        for role in launch.roles
        for rank in range(launch.world_size + 7)
    ]
    writers = [one for launch in started for one in launch.writers(2)]

    assert ranks_heard([*former, *writers]) == ranks_heard(writers)


@given(launches())
def test_the_ranks_of_other_roles_of_the_same_launch_are_elsewhere(started: list[Launch]) -> None:
    everybody = [one.writer for launch in started for one in launch.writers(0)]

    for launch in started:
        for role in launch.roles:
            wanted = {rank for rank in launch.heard if launch.role_of[rank] != role}
            assert ranks_elsewhere(everybody, role, launch.world_size) == wanted


def test_launches_of_one_size_that_each_have_a_rank_0_are_two() -> None:
    writers = [entered(rank, role, 2, 0) for role in ("trainer", "generator") for rank in (0, 1)]

    assert ranks_heard(writers) == (4, 4)
    assert ranks_elsewhere([one.writer for one in writers], "trainer", 2) == set()


def test_who_does_not_say_how_many_there_are_is_one_and_more_that_are_heard_are_there() -> None:
    alone = WriterState(0, writer(0), "pool")
    several = [WriterState(rank, writer(rank, role="eval", world_size=2), "pool") for rank in range(3)]

    assert ranks_heard([alone]) == (1, 1)
    assert ranks_heard([alone, *several]) == (4, 4)
