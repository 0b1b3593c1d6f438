"""What a page knows of a run beyond its curves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml_exporters.records import JsonValue, Params, Record, Span, SpanBatch, StepRecord, Summary
from otel_ml_service.report import contents as module
from otel_ml_service.report.contents import Contents, contents, read_contents, without_collecting
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.report.runs import spans_of


def run_of(*records: Record) -> Contents:
    return contents("run-1", "pages", records)


def step(at: int, values: dict[str, float], attempt: int = 0, axis: str = "step", missing: int = 0) -> StepRecord:
    return StepRecord(1, "trainer", axis, at, attempt, 1000.0 + at, values, missing)


def spans(count: int, role: str = "trainer", first: int = 0) -> SpanBatch:
    return SpanBatch(1, [
        Span("0" * 32, "0" * 16, None, "x", at + 1, at + 2, role, at % 4, "step", at)
        for at in range(first, first + count)
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("params", "ranks"),
    [
        ({"world_size": 8, "ranks": 4}, 8),
        ({"ranks": 4.0}, 4),
        ({"num_gpus": 2}, 2),
        ({"gpus": 1}, 1),
        ({"world_size": "eight", "gpus": 3}, 3),
        ({"world_size": 0, "ranks": float("inf")}, None),
        ({}, None),
    ],
)
def test_how_many_trained_is_what_a_parameter_says_where_nobody_sent_spans(
    params: dict[str, JsonValue], ranks: int | None
) -> None:
    assert run_of(Params(1, 1.0, params)).ranks == ranks


def test_who_sent_spans_trained() -> None:
    both = run_of(Params(1, 1.0, {"world_size": 64}), spans(8, "generator"), spans(2))

    assert both.ranks == 2
    assert list(both.roles.items()) == [("trainer", 2), ("generator", 4)]
    assert run_of(spans(3, "learner"), spans(1, "actor")).ranks == 3


def test_a_step_that_an_attempt_did_again_is_counted_and_a_window_of_time_is_not() -> None:
    rows = [step(0, {"a": 1.0}), step(1, {"a": 1.0}), step(1, {"a": 2.0}, attempt=1), step(1, {"b": 2.0}, attempt=1),
            step(5, {"a": 1.0}, axis="time"), step(5, {"a": 1.0}, attempt=1, axis="time"),
            step(2, {"otel_ml/lag": 1.0}, attempt=2)]  # fmt: skip

    run = run_of(*rows)

    assert run.redone == 1
    assert run.attempts == {0, 1, 2}
    assert run.steps == {("trainer", "step"): {0: 0, 1: 1}, ("trainer", "time"): {5: 1}}


def test_a_step_lacks_a_rank_until_its_row_comes_again_whole() -> None:
    rows = [step(0, {"a": 1.0}, missing=1), step(1, {"a": 1.0}, missing=2), step(1, {"a": 1.0})]

    assert run_of(*rows).missing == 1
    corrected = StepRecord(9, "trainer", "step", 0, 0, 1.0, {"a": 2.0}, amendment=True)
    assert run_of(*rows, corrected).missing == 1


def test_what_was_lost_is_not_known_before_the_end() -> None:
    assert (run_of().lost, run_of().unheard) == (None, 0)
    said = Summary(1, 1.0, {"otel_ml/recorded": 9.0, "otel_ml/dropped/x": 2.0, "otel_ml/ranks_unheard": 3.0})
    assert (run_of(said).lost, run_of(said).unheard) == (2, 3)


def test_energy_is_kept_by_step_and_attempt() -> None:
    run = run_of(
        step(0, {"hw.energy.step": 4.0, "a": 1.0}), step(0, {"hw.energy.step": 5.0}, attempt=1), step(1, {"a": 1.0})
    )

    assert run.energy == {("step", 0, 0): {"hw.energy.step": 4.0}, ("step", 0, 1): {"hw.energy.step": 5.0}}


def test_the_newest_spans_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SPANS", 10)  # a bound that one test can reach
    run = run_of(spans(9))
    assert (len(run.spans), run.is_cut) == (9, False)

    run.add(spans(1, first=9))
    assert (len(run.spans), run.is_cut) == (10, True)
    run.add(spans(5, first=10))
    assert [span.step for span in run.spans] == list(range(5, 15))
    run.add(spans(40, first=15))
    assert [span.step for span in run.spans] == list(range(45, 55))
    assert run._held == 10


def test_spans_without_a_step_are_no_times_of_ranks() -> None:
    loose = [Span("0" * 32, "0" * 16, None, "x", 1, 2, "trainer", rank, None, None) for rank in range(3)]

    run = run_of(SpanBatch(1, loose))

    assert (run.workers, dict(run.times)) == ({("trainer", 0), ("trainer", 1), ("trainer", 2)}, {})


def test_a_stored_run_is_read_with_its_spans_and_its_name(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "01abc", [*digits_records(steps=3), replace(spans(4), seq=100)])

    run = read_contents(folder)

    assert (run.id, run.experiment, run.name, run.notes) == ("01abc", "digits", folder.name, "")
    assert len(run.spans) == 4
    assert run.ranks == 4
    assert run.history.get("loss").keys() == {0, 1, 2}


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_garbage_collector_is_as_it_was_afterwards(is_enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    state = [is_enabled]
    monkeypatch.setattr(module.gc, "isenabled", lambda: state[-1])
    monkeypatch.setattr(module.gc, "disable", lambda: state.append(False))
    monkeypatch.setattr(module.gc, "enable", lambda: state.append(True))

    with without_collecting():
        assert state[-1] is False

    assert state[-1] is is_enabled


def test_spans_that_come_after_they_were_looked_at_are_there() -> None:
    run = Contents("7", "docs")
    first, second = (spans_of(range(step, step + 1), ranks=2) for step in range(2))
    run.add(SpanBatch(1, first))
    assert run.spans == first

    run.add(SpanBatch(2, second))

    assert run.spans == [*first, *second]


def test_who_sent_spans_and_in_which_steps_they_were_is_known_also_where_ranks_take_turns_in_a_batch() -> None:
    run = Contents("7", "docs")
    of_rank = [[span for span in spans_of(range(3), ranks=2) if span.rank == rank] for rank in range(2)]
    run.add(SpanBatch(1, [span for both in zip(*of_rank, strict=True) for span in both]))

    assert run.workers == {("trainer", 0), ("trainer", 1)}
    assert [sorted(of_step) for of_step in run.times["trainer", "step"].all().values()] == [[0, 1]] * 3


def test_rows_that_have_other_values_than_the_one_before_are_looked_at_for_energy_and_for_the_users() -> None:
    run = Contents("7", "docs")
    of_energy, own, user = {"hw.energy/gpu0": 3.0}, {"otel_ml/attempt": 0.0}, {"loss": 0.5}
    for step, values in enumerate(({**of_energy, **own}, {**own}, user, {**user, **of_energy})):
        run.add(StepRecord(step + 1, "trainer", "step", step, 0, 10.0 + step, values))

    assert run.energy == {("step", step, 0): of_energy for step in (0, 3)}
    assert sorted(run.steps["trainer", "step"]) == [0, 2, 3]
