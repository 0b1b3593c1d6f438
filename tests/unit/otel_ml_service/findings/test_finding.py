"""The row of a finding in the table, column by column."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_ml_service.findings.finding import COLUMNS, Finding, mean_with, rank_number, row_of

SLOW = Finding(
    "slow", 3, "forward", "warning", 40, 49, is_over=True, slowdown=0.31234567, extra_s=0.05, cost_s=0.3, trace_id="aa",
    span_id="b7", span_name="forward", span_step=41, saved_s=0.02, where="", amount="tokens", given=1.23456,
)  # fmt: skip


def row(finding: Finding) -> dict[str, object]:
    found = row_of(finding)
    assert len(found) == len(COLUMNS)
    return {name: value for name, value in zip(COLUMNS, found, strict=True) if value is not None}


def test_a_slow_rank_has_all_that_was_measured() -> None:
    assert row(SLOW) == {
        "level": "warning", "kind": "slow", "rank": 3, "phase": "forward", "since": 40, "until": 49, "slowdown": 0.3123,
        "s per step": 0.03, "s in all": 0.3, "span of": "forward", "at step": 41, "span": "b7", "trace": "aa",
        "place": "rank 3", "s saved per step": 0.02, "amount": "tokens", "given": 1.2346,
    }  # fmt: skip


def test_while_it_lasts_it_has_no_end_and_without_a_cost_the_newest_loss() -> None:
    found = row(replace(SLOW, is_over=False, cost_s=0.0))

    assert "until" not in found
    assert (found["s per step"], found["s in all"]) == (0.05, 0.0)


@pytest.mark.parametrize(("saved_s", "kind", "shown"), [(0.5, "slow", 0.03), (0.5, "stage", 0.5), (0.01, "slow", 0.01)])
def test_no_step_is_shorter_by_more_than_it_lost_but_for_a_stage(saved_s: float, kind: str, shown: float) -> None:
    assert row(replace(SLOW, kind=kind, saved_s=saved_s))["s saved per step"] == shown  # type: ignore[arg-type]


def test_of_a_silent_rank_nothing_was_measured_and_of_a_load_nobody_is_slow() -> None:
    silent, load = row(replace(SLOW, kind="silent")), row(replace(SLOW, kind="load"))

    assert not {"slowdown", "s per step", "s in all", "s saved per step"} & silent.keys()
    assert "slowdown" not in load
    assert load["s per step"] == 0.03


def test_several_ranks_and_pauses_are_told_with_how_often_and_who_did_not_wait() -> None:
    found = row(replace(SLOW, rank=None, where="host n1", ranks=(1, 2), times=4, every=10, others_wait=False))

    assert (found["place"], found["ranks"], found["times"], found["every"], found["others wait"]) == (
        "host n1", "1 2", 4, 10, "no",
    )  # fmt: skip
    assert "rank" not in found


def test_whom_a_finding_is_about() -> None:
    nobody, stage, first = replace(SLOW, rank=None), replace(SLOW, rank=None, stage=0), replace(SLOW, rank=0)

    assert [one.place for one in (nobody, stage, first)] == ["nobody", "stage 0", "rank 0"]
    assert [rank_number(one) for one in (nobody, first, SLOW)] == [-1, 0, 3]
    assert SLOW.subject == ("rank 3", "forward", "slow")


def test_what_would_be_saved_is_the_mean_over_all_its_steps() -> None:
    # Ten steps with the newest one: nine of 0.2 s, and one of 1.2 s.
    assert mean_with(replace(SLOW, saved_s=0.2), 1.2) == pytest.approx(0.3)
    assert mean_with(replace(SLOW, saved_s=0.0), 1.2) == 1.2
