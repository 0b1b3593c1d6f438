"""Whose fault a long timer is, in seconds that are added up by hand."""

from __future__ import annotations

import numpy as np
import pytest

from otel_ml_service.findings.blame import own_extra, without_containers

ALL = (np.arange(3),)


def rounded(found: np.ndarray) -> list[list[float]]:
    return (found.round(6) + 0.0).tolist()


def test_who_waits_for_a_slow_rank_in_a_later_phase_is_not_slow() -> None:
    # Rank 2 takes 0.5 s longer in the first phase; the others wait for it in the last one.
    seconds = np.array([[1.0, 0.2, 0.6], [1.0, 0.2, 0.6], [1.5, 0.2, 0.1]])
    usual = np.array([[1.0, 0.2, 0.1]] * 3)

    assert rounded(own_extra(seconds, usual, ALL)) == [[0.0] * 3, [0.0] * 3, [0.5, 0.0, 0.0]]


def test_who_waits_longer_than_it_was_ahead_is_slow_for_the_rest() -> None:
    seconds = np.array([[1.0, 0.9], [1.0, 0.6], [1.5, 0.1]])
    usual = np.array([[1.0, 0.1]] * 3)

    # Rank 0 was 0.5 s ahead, and took 0.3 s longer than rank 1 that was as much.
    assert rounded(own_extra(seconds, usual, ALL)) == [[0.0, 0.3], [0.0, 0.0], [0.5, 0.0]]


def test_a_phase_that_a_rank_does_not_have_takes_it_no_time() -> None:
    seconds = np.array([[np.nan, 1.0], [0.5, 1.0], [0.5, 1.0]])
    usual = np.array([[np.nan, 1.0], [0.5, 1.0], [0.5, 1.0]])

    found = own_extra(seconds, usual, ALL)

    assert np.isnan(found[0, 0])
    assert rounded(found[:, 1:]) == [[-0.5], [0.0], [0.0]]


def test_many_steps_at_once_are_each_as_one() -> None:
    one = np.array([[1.0, 0.4], [1.3, 0.1], [1.0, 0.4]])
    other = np.array([[1.0, 0.1], [1.0, 0.1], [1.2, 0.3]])
    usual = np.array([[1.0, 0.1]] * 3)

    found = own_extra(np.stack([one, other], axis=1), np.stack([usual] * 2, axis=1), ALL)

    assert rounded(found[:, 0]) == rounded(own_extra(one, usual, ALL))
    assert rounded(found[:, 1]) == rounded(own_extra(other, usual, ALL))


@pytest.mark.parametrize("is_sure", [True, False])
def test_who_came_late_out_of_the_step_before_was_not_ahead(is_sure: bool) -> None:
    # Rank 2 begins 0.3 s late; rank 0 and 1 wait for it in the first phase.
    seconds = np.array([[0.4, 0.1], [0.4, 0.1], [0.1, 0.4]])
    usual = np.array([[0.1, 0.1]] * 3)
    later = np.array([[0.0, 0.0], [0.0, 0.0], [0.3, 0.0]])

    found = rounded(own_extra(seconds, usual, ALL, later, (later > 0) & is_sure))

    assert found[0][0] == found[1][0] == 0.0
    assert found[2][0] == (0.0 if is_sure else -0.3)


class TestContainers:
    def suspects(self, *rows: list[int]) -> np.ndarray:
        return np.array(rows, dtype=bool)

    @pytest.mark.parametrize(("inner", "is_kept"), [(0.21, False), (0.2, True), (0.3, False)])
    def test_a_timer_around_one_that_lost_most_of_it_is_left_out(self, inner: float, is_kept: bool) -> None:
        suspects, usual = self.suspects([1, 1]), np.array([[1.0, 3.0]])

        found = without_containers(suspects, suspects, np.array([[inner, 0.3]]), usual)

        assert found.tolist() == [[True, is_kept]]

    def test_what_usually_takes_as_long_is_not_inside(self) -> None:
        suspects, usual = self.suspects([1, 1]), np.array([[3.0, 3.0]])

        assert without_containers(suspects, suspects, np.array([[0.3, 0.3]]), usual).tolist() == [[True, True]]

    def test_what_is_only_likely_explains_what_is_around_it_and_is_no_suspect(self) -> None:
        suspects, likely, usual = self.suspects([0, 1]), self.suspects([1, 0]), np.array([[1.0, 3.0]])

        assert without_containers(suspects, likely, np.array([[0.3, 0.3]]), usual).tolist() == [[False, False]]
        assert without_containers(suspects, ~likely, np.array([[0.3, 0.3]]), usual).tolist() == [[False, True]]

    def test_the_phases_of_another_rank_explain_nothing(self) -> None:
        suspects, usual = self.suspects([1, 0], [0, 1]), np.array([[1.0, 3.0]] * 2)

        assert without_containers(suspects, suspects, np.array([[0.3, 0.0], [0.3, 0.3]]), usual).tolist() == [
            [True, False],
            [False, True],
        ]
