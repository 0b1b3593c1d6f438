"""How often ranks that are not slow are long; every number is worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from otel_ml_service.findings.evidence_matrix import EvidenceMatrix
from otel_ml_service.findings.how_often_long import add_up, beside, count, forget, seldom


@pytest.fixture
def cells() -> EvidenceMatrix:
    """Three ranks, and one phase."""
    found = EvidenceMatrix()
    found.grow((0, 1, 2), ("forward",))
    return found


def of(*flags: int) -> np.ndarray:
    return np.array(flags, dtype=bool)[:, None]


ALL = of(1, 1, 1)


def test_before_anything_is_seen_one_step_in_25_is_guessed(cells: EvidenceMatrix) -> None:
    assert seldom(cells, 0.5).ravel().tolist() == pytest.approx([0.04] * 3)


def test_a_rank_is_expected_to_be_long_as_often_as_the_others_are(cells: EvidenceMatrix) -> None:
    cells.looks[:, 0], cells.high[:, 0] = [10.0, 20.0, 30.0], [1.0, 2.0, 6.0]

    # The guess is 0.8 of 20 looks; a rank's own looks do not count.
    expected = [(0.8 + 2 + 6) / (20 + 20 + 30), (0.8 + 1 + 6) / (20 + 10 + 30), (0.8 + 1 + 2) / (20 + 10 + 20)]
    assert seldom(cells, 0.5).ravel().tolist() == pytest.approx(expected)
    assert seldom(cells, 0.1).ravel().tolist() == pytest.approx([0.1, 0.1, 0.076])


def test_who_was_long_in_the_step_before_is_compared_with_others_who_were(cells: EvidenceMatrix) -> None:
    cells.looks_again[:, 0], cells.high_again[:, 0] = [4.0, 0.0, 2.0], [2.0, 0.0, 1.0]
    cells.was_high[:, 0] = [False, True, True]

    expected = [0.04, (0.8 + 3) / 26, (0.8 + 2) / 24]
    assert seldom(cells, 1.0).ravel().tolist() == pytest.approx(expected)


def test_looks_are_forgotten_by_and_by_and_those_that_are_none_are_not_counted(cells: EvidenceMatrix) -> None:
    count(cells, of(1, 0, 1), of(1, 1, 0))
    count(cells, of(1, 0, 1), of(1, 0, 0))

    assert cells.looks.ravel().tolist() == pytest.approx([1.995, 1.0, 0.0])
    assert cells.high.ravel().tolist() == pytest.approx([1.995, 0.0, 0.0])
    assert cells.looks_again.ravel().tolist() == [0.0, 0.0, 0.0]


def test_long_steps_in_a_row_are_counted_when_the_row_is_over(cells: EvidenceMatrix) -> None:
    cells.was_high[:] = True
    cells.looks_again[0], cells.high_again[0] = 10.0, 4.0
    for _ in range(2):
        count(cells, of(1, 0, 1), ALL)
    under_way = cells.row.ravel().tolist()
    before = cells.looks_again.ravel().tolist()
    count(cells, of(0, 0, 1), ALL)

    assert (under_way, before) == ([2.0, 0.0, 2.0], pytest.approx([10.0, 1.995, 0.0]))
    assert cells.row.ravel().tolist() == [0.0, 0.0, 3.0]
    # A row of two more long steps, and the one with which it was over: three looks.
    assert cells.looks_again.ravel().tolist() == pytest.approx([10 * 0.995 + 3, 1.995 * 0.995 + 1, 0.0])
    assert cells.high_again.ravel().tolist() == pytest.approx([4 * 0.995 + 2, 0.0, 0.0])
    assert cells.looks.ravel().tolist() == [0.0, 0.0, 0.0]


def test_of_a_rank_that_was_slow_already_all_of_it_is_forgotten(cells: EvidenceMatrix) -> None:
    names = ("looks", "high", "looks_again", "high_again", "row")
    for name in names:
        getattr(cells, name)[:] = 3.0
    forget(cells, (1, 0))

    assert {name: getattr(cells, name).ravel().tolist() for name in names} == {name: [3.0, 0.0, 3.0] for name in names}


def test_how_much_longer_ranks_are_is_a_mean_in_which_quick_steps_count_as_0(cells: EvidenceMatrix) -> None:
    for slow in ([0.3, 0.1, np.nan], [0.1, -0.5, np.nan], [0.2, 0.2, 0.4]):
        add_up(cells, np.array(slow)[:, None])

    assert cells.steps.ravel().tolist() == [3.0, 3.0, 1.0]
    assert cells.over.ravel().tolist() == pytest.approx([0.2, 0.1, 0.4])


def test_after_24_steps_the_oldest_count_less(cells: EvidenceMatrix) -> None:
    for _ in range(24):
        add_up(cells, np.full((3, 1), 0.24))
    add_up(cells, np.full((3, 1), 0.48))

    assert cells.steps.ravel().tolist() == [24.0] * 3
    assert cells.over.ravel().tolist() == pytest.approx([0.25] * 3)


def test_those_beside_a_suspect_are_the_others_that_were_seen(cells: EvidenceMatrix) -> None:
    cells.grow((0, 1, 2, 3, 4), ("forward",))
    cells.over[:, 0], cells.steps[:, 0] = [0.9, 0.1, 0.2, 0.4, 9.0], [5.0, 5.0, 5.0, 5.0, 0.0]

    assert beside(cells, of(1, 0, 1, 0, 0)).ravel().tolist() == pytest.approx([0.2, 0.0, 0.4, 0.0, 0.0])


def test_beside_a_rank_that_alone_was_seen_there_is_nobody(cells: EvidenceMatrix) -> None:
    cells.over[:, 0], cells.steps[:, 0] = [0.9, 0.5, 0.5], [5.0, 0.0, 0.0]

    assert beside(cells, of(1, 0, 0)).ravel().tolist() == [0.0, 0.0, 0.0]
