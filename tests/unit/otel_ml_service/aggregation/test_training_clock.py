"""The clock of training: which step was current at a time, and what of it is written with a commit."""

from __future__ import annotations

from random import Random

import pytest

from otel_ml_service.aggregation.training_clock import MAX_ENTRIES, TrainingClock


class Stored:
    """A clock whose changes are written, and which begins again from them."""

    def __init__(self) -> None:
        self.clock = TrainingClock()
        self.blocks: dict[int, bytes] = {}

    def commit(self) -> int:
        """Return how many bytes are written."""
        changes = dict(self.clock.changes())
        for block, data in changes.items():
            if data is None:
                self.blocks.pop(block, None)
            else:
                self.blocks[block] = data
        return sum(len(data or b"") for data in changes.values())

    def restart(self) -> None:
        role = self.clock.role
        self.clock = TrainingClock()
        self.clock.restore(role, self.blocks)


@pytest.mark.parametrize("seed", range(20))
def test_a_clock_that_begins_again_after_each_commit_tells_the_steps_of_one_that_never_ended(seed: int) -> None:
    random = Random(seed)
    through, stored = TrainingClock(), Stored()
    roles = ["generator", *["default"] * random.randint(0, 2), "trainer"]
    turns = sorted(random.randint(0, 3 * MAX_ENTRIES) for _ in roles)
    step = 0
    for moment in range(3 * MAX_ENTRIES):
        role = roles[sum(turn <= moment for turn in turns) - 1]
        step += random.randint(0, 2)
        for clock in (through, stored.clock):
            clock.note(role, 0, step, moment)
        if random.random() < 0.02:
            stored.commit()
            stored.restart()

    moments = range(-1, 3 * MAX_ENTRIES, 7)
    assert [stored.clock.at(moment) for moment in moments] == [through.at(moment) for moment in moments]
    assert stored.clock.role == through.role


def test_a_commit_writes_the_steps_since_the_last_one_and_a_few_before() -> None:
    stored = Stored()
    most = 0
    for step in range(3 * MAX_ENTRIES):
        stored.clock.note("trainer", 0, step, 1_700_000_000_000_000_000 + step)
        most = max(most, stored.commit())

    assert most < 64 * 40
    assert stored.commit() == 0
    assert len(stored.blocks) <= MAX_ENTRIES // 64 + 1
