"""What steps would take without something a person names, from the spans of all ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from otel_ml_exporters.records import Span, SpanBatch, StepRecord
from otel_ml_service.why.facts import Place
from otel_ml_service.why.without import Removed, WhatIf, removed, what_if
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import otel_ml

PLACE = Place("trainer", "step")
MS = 1_000_000


def spans_of(step: int, of_rank: Mapping[int, Mapping[str, float]]) -> Iterator[Span]:
    """Yield a span for each timer: name → milliseconds, one after the other."""
    for rank, timers in of_rank.items():
        begin = step * 1000 * MS
        for name, took in timers.items():
            number = f"{step:04x}{rank:04x}{len(name):08x}"
            yield Span("0" * 32, number, None, name, begin, begin + int(took * MS), "trainer", rank, "step", step)
            begin += int(took * MS)


def data_parallel(steps: range, forward: Mapping[int, float]) -> list[Span]:
    """Four ranks that work for 10 ms, or for as long as `forward` says, and wait for the last one."""
    took = {rank: forward.get(rank, 10.0) for rank in range(4)}
    of_rank = {rank: {"forward": own, "all_reduce": max(took.values()) - own + 1.0} for rank, own in took.items()}
    return [span for step in steps for span in spans_of(step, of_rank)]


def asked(
    text: str, spans: list[Span], stages: Mapping[int, int] | None = None, *, steps: tuple[int, int] = (3, 7)
) -> WhatIf:
    return what_if(spans, PLACE, *steps, removed(text), stages or {})


def test_without_a_slow_rank_steps_are_shorter_by_what_others_wait_for_it():
    found = asked("rank=2,phase=forward", data_parallel(range(10), {2: 25.0}))

    assert (found.steps, found.asked) == (5, 5)
    assert found.step_s == pytest.approx(0.026)
    assert found.saved_s == pytest.approx(0.015)
    assert found.sentence == (
        "Without rank 2 in forward, steps 3-7 would take 11 ms each instead of 26 ms: 15 ms shorter, 75 ms in all; "
        "of 5 steps all ranks are known."
    )


def test_one_of_two_ranks_that_are_as_slow_saves_nothing_and_both_save_all():
    spans = data_parallel(range(10), {1: 25.0, 2: 25.0})

    assert asked("rank=2,phase=forward", spans).saved_s == pytest.approx(0.0, abs=1e-9)
    assert "others are as late" in asked("rank=2,phase=forward", spans).sentence
    assert asked("rank=1-2,phase=forward", spans).saved_s == pytest.approx(0.015)


def test_steps_of_which_spans_of_a_rank_are_missing_are_not_counted():
    spans = [span for span in data_parallel(range(10), {2: 25.0}) if (span.step, span.rank) != (5, 0)]

    assert asked("rank=2,phase=forward", spans).steps == 4


PIPELINE = {
    rank: {"forward-recv": 1.0, "forward-compute": 30.0 if rank in {4, 5} else 20.0, "grads-reduce-scatter": 2.0}
    for rank in range(6)
}
STAGES = {rank: rank // 2 for rank in range(6)}


def test_what_a_stage_has_more_is_spread_over_all_stages():
    spans = [span for step in range(10) for span in spans_of(step, PIPELINE)]

    found = asked("stage=2", spans, STAGES)

    assert found.saved_s == pytest.approx(0.030 - 0.070 / 3)
    assert found.sentence.startswith("Without stage 2, steps 3-7 would take ")
    assert asked("stage=2,phase=forward-compute", spans, STAGES).saved_s == pytest.approx(found.saved_s)
    assert asked("stage=1", spans, STAGES).saved_s == 0.0


def test_a_rank_of_a_pipeline_counts_as_far_as_it_comes_later_than_its_peers():
    slow = {**PIPELINE, 1: {**PIPELINE[1], "forward-compute": 26.0}}

    found = asked("rank=1,phase=forward-compute", [span for step in range(10) for span in spans_of(step, slow)], STAGES)

    assert found.saved_s == pytest.approx(0.006)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank=9,phase=forward", "rank 9 in forward has no spans in steps 3-7. There are those of 4 ranks."),
        ("rank=2,phase=nosuch", "there is no timer 'nosuch' in steps 3-7. Timers there: all_reduce and forward."),
        ("rank=0-3,phase=forward", "no rank is left to compare with."),
        ("stage=1", "which rank is in which stage is not known"),
    ],
)
def test_what_cannot_be_told_is_a_sentence(text: str, said: str) -> None:
    found = asked(text, data_parallel(range(10), {2: 25.0}))

    assert (found.saved_s, found.steps) == (None, 0)
    assert found.sentence.startswith(f"Cannot tell: {said}")


def test_a_rank_that_is_not_there_is_said_to_be_none_also_beside_one_alone() -> None:
    spans = [span for span in data_parallel(range(10), {}) if span.rank == 0]

    assert asked("rank=3,phase=forward", spans).sentence == (
        "Cannot tell: rank 3 in forward has no spans in steps 3-7. There are those of 1 rank."
    )
    assert asked("rank=0,phase=forward", spans).sentence == "Cannot tell: no rank is left to compare with."


def test_without_spans_it_says_what_makes_them():
    assert "Timers (`otel_ml.timed`) make them" in asked("rank=2,phase=forward", []).sentence


@pytest.mark.parametrize(
    "text", ["", "2", "rank=2", "rank=x,phase=a", "rank=3-1,phase=a", "stage=a", "rank=1,stage=1,phase=a"]
)
def test_what_names_nothing_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="Write for example rank=2,phase=forward"):
        removed(text)


def test_ranks_are_written_as_numbers_and_ranges():
    assert removed("rank=0-2+7,phase=data") == Removed((0, 1, 2, 7), None, "data")


def test_the_command_answers_for_people_and_programs(tmp_path: Path) -> None:
    spans = data_parallel(range(10), {2: 25.0})
    rows = [StepRecord(step + 1, "trainer", "step", step, 0, 1000.0 + step, {"loss": 0.5}) for step in range(10)]
    write_run(tmp_path, "01what", [*rows, SpanBatch(11, spans)])

    said = otel_ml(tmp_path, "why", "01what", "3-7", "--without", "rank=2,phase=forward")
    told = otel_ml(tmp_path, "why", "01what", "3-7", "--without", "rank=2,phase=forward", "--json")
    wrong = otel_ml(tmp_path, "why", "01what", "3-7", "--without", "rank=two")

    assert " ".join(said.stdout.split()).startswith(
        "Without rank 2 in forward, steps 3-7 would take 11 ms each instead"
    )
    answer = json.loads(told.stdout)
    assert (answer["run"], answer["first"], answer["last"], answer["steps"]) == ("01what", 3, 7, 5)
    assert answer["saved_s"] == pytest.approx(0.015)
    assert wrong.returncode == 2
    assert "'two' are not ranks" in wrong.stderr
