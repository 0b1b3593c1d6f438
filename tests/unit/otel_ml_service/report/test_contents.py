"""What a report keeps of a run's records."""

from __future__ import annotations

from otel_ml_exporters.records import SpanBatch, StepRecord
from otel_ml_service.report.contents import Contents
from tests.unit.otel_ml_service.report.runs import spans_of


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
