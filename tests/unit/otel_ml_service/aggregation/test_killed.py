"""A rank that ends without a word: which timer it was in, as far as its spans tell."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from otel_ml_exporters.records import RunStatus, Span, Text
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.observation import Spans
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.strategies import START, Rank, Service

Timers = Sequence[tuple[str, float, float]]
"""(name, its begin, its end), in seconds since the step began."""

STEP: Timers = (("step", 0.0, 1.0), ("data", 0.0, 0.1), ("forward", 0.1, 0.6), ("all_reduce", 0.6, 1.0))


def spans(rank: Rank, step: int, timers: Timers, inside: str = "step") -> Spans:
    """Return the spans of a step that took a second, those within `inside` as its children."""
    began = START + step
    ids = [f"{rank.writer.rank:04x}{step:06x}{number:06x}" for number in range(1, len(timers) + 1)]
    around = next((number for number, (name, _, _) in enumerate(timers) if name == inside), None)
    found = []
    for number, (name, begin, end) in enumerate(timers):
        is_within = around is not None and number != around and begin >= timers[around][1] and end <= timers[around][2]
        found.append(
            Span(
                "a1" * 16, ids[number], ids[around] if around is not None and is_within else None, name,
                round((began + begin) * 1e9), round((began + end) * 1e9), "trainer", rank.writer.rank, "step", step,
            )
        )  # fmt: skip
    return Spans(rank.writer, SpanLines.of(found))


def job(
    *, last: dict[int, Timers], steps: int = 5, usual: Timers = STEP, inside: str = "step", boot: str = ""
) -> Service:
    """Return a job of 3 ranks; those in `last` record for 12 s more in the last step, and end without a word."""
    service, ranks = Service(), [Rank(rank, world_size=3, boot=boot) for rank in range(3)]
    for step in range(steps):
        service.take(*[[*rank.step(step, {"loss": 1.0}), spans(rank, step, usual, inside)] for rank in ranks])
        service.wait(1, *ranks)
    dying = [rank for rank in ranks if rank.writer.rank in last]
    for rank in dying:
        service.take(rank.record(steps, {"loss": 1.0}), [spans(rank, steps, last[rank.writer.rank], inside)])
    service.wait(12, *dying)
    service.take(*[rank.bye("failed") for rank in ranks if rank not in dying])
    service.wait(700)
    return service


def killed(service: Service) -> dict[str, tuple[int | None, str]]:
    texts = [record for record in service.records if isinstance(record, Text)]
    return {text.name: (text.step, text.text) for text in texts if "killed" in text.name}


@pytest.mark.parametrize("boot", ["", "a host"], ids=["clock of the host", "clock of the boot"])
def test_a_rank_that_is_killed_within_a_timer_is_said_to_have_been_in_it_and_for_how_long(boot: str) -> None:
    service = job(last={2: [("data", 0.0, 0.1)]}, boot=boot)

    assert killed(service) == {
        "otel_ml/killed/rank_2": (5, "Killed in forward, 11.9 s after it began. Nothing was heard of it since.")
    }
    answer: Answer = why(facts_of("run", service.records), Question())
    assert answer.failures[0].sentence == "Rank 2 was killed at step 5 in forward, 11.9 s after it began"


@pytest.mark.parametrize(
    ("done", "said"),
    [
        ([], "Killed. "),
        (STEP[:0], "Killed. "),
        ([("data", 0.0, 0.1), ("forward", 0.1, 0.6)], "Killed in all_reduce, 11.4 s after it began. "),
        (STEP, "Killed. "),
        ([("data", 0.0, 12.5)], "Killed. "),
    ],
    ids=["nothing known of the step", "nothing finished", "in the last timer", "between steps", "no longer than data"],
)
def test_what_is_not_known_is_not_said(done: Timers, said: str) -> None:
    [(_, text)] = killed(job(last={0: done})).values()

    assert text == f"{said}Nothing was heard of it since."


def test_of_timers_inside_of_others_the_innermost_is_named() -> None:
    usual: Timers = (("pass", 0.0, 0.8), ("forward", 0.0, 0.3), ("backward", 0.3, 0.8), ("optimizer", 0.8, 1.0))

    service = job(last={1: [("forward", 0.0, 0.3)]}, usual=usual, inside="pass")

    assert killed(service)["otel_ml/killed/rank_1"][1].startswith("Killed in backward, 11.7 s")


def test_timers_that_run_several_times_a_step_are_counted() -> None:
    usual: Timers = [("forward", 0.0, 0.2), ("backward", 0.2, 0.4), ("forward", 0.4, 0.6), ("backward", 0.6, 0.8)]

    service = job(last={1: usual[:3]}, usual=usual)

    assert killed(service)["otel_ml/killed/rank_1"][1].startswith("Killed in backward, 11.4 s")


def test_of_a_whole_job_that_is_killed_who_was_in_something_else_comes_first() -> None:
    waiting = [("data", 0.0, 0.1), ("forward", 0.1, 0.6)]

    said = killed(job(last={0: waiting, 1: waiting, 2: waiting[:1]}))

    assert [(name, text.split(",")[0]) for name, (_, text) in said.items()] == [
        ("otel_ml/killed/rank_2", "Killed in forward"),
        ("otel_ml/killed", "Killed in all_reduce"),
        ("otel_ml/killed/rank_1", "Killed in all_reduce"),
    ]


def test_without_spans_it_is_said_at_which_step_a_rank_was_killed_that_the_others_no_longer_wait_for() -> None:
    service, ranks = Service(), [Rank(rank, world_size=3) for rank in range(3)]
    for step in range(5):
        service.take(*[rank.step(step, {"loss": 1.0}) for rank in ranks])
        service.wait(1, *ranks)
    service.take(ranks[2].record(5, {"loss": 1.0}))
    for step in range(5, 9):
        service.take(*[rank.step(step, {"loss": 1.0}) for rank in ranks[:2]])
        service.wait(70, *ranks[:2])
    service.take(*[rank.bye("finished") for rank in ranks[:2]])
    service.wait(700)

    assert killed(service) == {"otel_ml/killed/rank_2": (5, "Killed. Nothing was heard of it since.")}


def test_a_rank_that_was_killed_in_its_first_step_was_in_that() -> None:
    service, ranks = Service(), [Rank(rank, world_size=3) for rank in range(3)]
    for step in range(4):
        service.take(*[rank.step(step, {"loss": 1.0}) for rank in ranks[:2]])
        service.wait(1, *ranks)
    service.take(ranks[2].record(4, {"loss": 1.0}))
    for step in range(4, 8):
        service.take(*[rank.step(step, {"loss": 1.0}) for rank in ranks[:2]])
        service.wait(70, *ranks[:2])
    service.take(*[rank.bye("finished") for rank in ranks[:2]])
    service.wait(700)

    assert killed(service) == {"otel_ml/killed/rank_2": (4, "Killed. Nothing was heard of it since.")}


def test_of_a_large_job_that_is_killed_as_a_whole_eight_ranks_have_a_text() -> None:
    service, ranks = Service(), [Rank(rank, world_size=12) for rank in range(12)]
    service.take(*[rank.step(0, {"loss": 1.0}) for rank in ranks])
    service.wait(700)

    assert len(killed(service)) == 8
    assert {step for step, _ in killed(service).values()} == {0}


def test_who_said_goodbye_was_not_killed() -> None:
    service = job(last={})

    assert killed(service) == {}
    assert [record.status for record in service.records if isinstance(record, RunStatus)] == ["failed"]


def test_a_rank_whose_shutdown_message_comes_after_all_was_not_killed() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    for step in range(5):
        service.take(*[rank.step(step, {"loss": 1.0}) for rank in ranks])
        service.wait(1, *ranks)
    kept = ranks[1].bye()
    service.wait(700)
    assert len(facts_of("run", service.records).history.failures) == 2

    service.take(kept)
    service.wait(700)

    [left] = facts_of("run", service.records).history.failures
    assert left.sentence.startswith("Rank 0 was killed at step ")
    assert killed(service)["otel_ml/killed/rank_1"][1] == "Not killed: what it sent last has come later."
