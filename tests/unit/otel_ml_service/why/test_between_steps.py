"""What passes between steps is in no timer: it is named as that, and no rank is accused for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from otel_ml_exporters.records import Record, RunStatus, Span, StepRecord
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import RunFacts, facts_of
from tests.unit.otel_ml_service.why.jobs import numbered

STEP_S = 0.040
CHECKPOINTS = (10, 20, 30, 40, 50)
Of = Callable[[int], float]


def run(before: Of, waits: Of = lambda _: 0.0, *, attempt: Callable[[int], int] = lambda _: 0) -> list[Record]:
    """Return 60 steps of 30 ms of `forward` and 10 ms of `all_reduce`, or longer, and what passes before each."""
    rows: list[Record] = []
    now = 1000.0
    for step in range(60):
        reduce = 0.010 + waits(step)
        now += before(step) + 0.030 + reduce
        timers = {
            "time/exposed/forward": 0.030, "time/exposed/forward/rank": float(step % 4),
            "time/exposed/all_reduce": reduce, "time/exposed/all_reduce/rank": 0.0, "time/step": 0.030 + reduce,
        }  # fmt: skip
        rows.append(StepRecord(0, "trainer", "step", step, attempt(step), now, timers))
    return numbered([*rows, RunStatus(0, now, "finished")])


def asked(facts: RunFacts, *steps: int) -> Answer:
    return why(facts, Question(first=steps[0], last=steps[-1]) if steps else Question())


def texts(answer: Answer) -> str:
    return "\n".join([*answer.sentences, *(one.text for one in answer.evidence)])


def at_checkpoints(seconds: float) -> Of:
    return lambda step: seconds if step in CHECKPOINTS else 0.0


def test_what_passes_between_steps_now_and_then_is_told_with_the_steps_and_nobody_is_slow() -> None:
    answer = asked(facts_of("run", run(at_checkpoints(0.6))))

    assert answer.verdict == "cannot tell"
    assert answer.sentences[0] == (
        "Nothing stands out in 60 steps, but 3 s (56 % of the time) passed between steps, in no timer: 600 ms each "
        "between steps 9 and 10, 19 and 20, 29 and 30 and 2 more, every 10th step."
    )
    assert "nobody is slow for it" in answer.sentences[1]
    assert answer.sentences[2].endswith("look at what comes before step 10.")
    assert "rank" not in " ".join(answer.sentences)


def test_what_passes_between_all_steps_is_told_once() -> None:
    answer = asked(facts_of("run", run(lambda _: 0.02)))

    assert "1.18 s (33.3 % of the time) passed between steps, in no timer: 20 ms each time" in answer.sentences[0]


@pytest.mark.parametrize("before", [lambda _: 0.0, lambda _: 0.001], ids=["nothing", "little"])
def test_next_to_nothing_between_steps_is_not_told(before: Of) -> None:
    assert "between steps" not in texts(asked(facts_of("run", run(before))))


def test_a_restart_is_not_told_as_time_between_steps() -> None:
    rows = run(lambda step: 60.0 if step == 30 else 0.0, attempt=lambda step: int(step >= 30))

    assert "between steps" not in texts(asked(facts_of("run", rows), 0, 59))


def test_of_the_steps_that_are_asked_for_only_what_passed_between_them_counts() -> None:
    facts = facts_of("run", run(at_checkpoints(0.6)))

    assert "between steps" not in texts(asked(facts, 11, 19))
    assert "600 ms (65.2 % of the time) passed between steps, in no timer: 600 ms between steps 19 and 20" in texts(
        asked(facts, 16, 24)
    )


def with_spans(rows: list[Record], begin: Callable[[int, int], float | None]) -> RunFacts:
    """Return facts with a span of each step and rank; `begin` says when it begins after the end of the step before."""
    facts = facts_of("run", rows)
    ends = {row.step: row.time for row in rows if isinstance(row, StepRecord)}
    skew = {0: 0.0, 1: 5.0, 2: -3.0, 3: 0.0}

    def spans(first_ns: int, last_ns: int, *wanted: bytes) -> Iterator[Span]:
        for step, end in ends.items():
            line = f'"step":{step},'.encode()
            if not first_ns <= int(end * 1e9) <= last_ns or any(one != line for one in wanted):
                continue
            for rank, of_host in skew.items():
                after = begin(rank, step)
                if after is not None:
                    start = ends.get(step - 1, end - STEP_S) + after + of_host
                    yield Span(
                        "aa", f"{rank}.{step}", None, "step", int(start * 1e9), int((end + of_host) * 1e9), "trainer",
                        rank, "step", step,
                    )  # fmt: skip

    facts.spans = spans
    return facts


def test_a_step_that_waits_for_a_rank_from_between_two_steps_says_so_whatever_the_clocks_of_hosts() -> None:
    rows = run(lambda _: 0.0, waits=at_checkpoints(0.6))
    facts = with_spans(rows, lambda rank, step: 0.6 if rank == 1 and step in CHECKPOINTS else 0.0)

    answer = asked(facts, 20)

    assert answer.verdict == "coincided"
    assert "rank 1 was in no timer for 600 ms between steps 19 and 20 (the others 0 s)" in answer.sentences[1]
    assert "slow" not in answer.sentences[1]


def test_a_step_in_which_a_rank_joins_says_so() -> None:
    facts = with_spans(
        run(lambda _: 0.0, waits=lambda step: 2.0 if step == 20 else 0.0),
        lambda rank, step: None if rank == 3 and step < 20 else 0.0,
    )

    answer = asked(facts, 20)

    assert answer.verdict == "coincided"
    assert "rank 3 joined at step 20: the others had begun without it" in answer.sentences[1]


def test_a_step_in_which_all_stand_still_names_nobody() -> None:
    facts = with_spans(run(lambda _: 0.0, waits=at_checkpoints(0.6)), lambda *_: 0.0)

    assert [one.text for one in asked(facts, 20).evidence if one.kind == "state"] == []
