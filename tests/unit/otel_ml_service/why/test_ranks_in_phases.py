"""One rank alone has what steps are longer by, or a rank has no timers: told as what it is, and nobody is accused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from otel_ml_exporters.records import Span, StepRecord
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.jobs import job

RANKS, LONG = range(4), (30, 55, 81, 99)


def asked(
    of: Callable[[int, int], Mapping[str, float]], phase: str, steps: tuple[int, int] | None, hosts: int = 0
) -> Answer:
    """Return why steps are long in which `phase` takes 0.4 s more; `of` is what each rank has in its spans."""
    rows = job(values=lambda step: _more(phase, 0.4 if step in LONG else 0.0))
    facts = facts_of("run", rows)
    spans = [
        Span("aa", f"{rank}-{row.step}-{name}", None, name, int((row.time - seconds) * 1e9), int(row.time * 1e9),
             "trainer", rank, "step", row.step)
        for row in rows if isinstance(row, StepRecord)
        for rank in RANKS for name, seconds in of(rank, row.step).items()
    ]  # fmt: skip
    facts.spans = lambda *_: iter(spans)
    facts.hosts = lambda: {"trainer": dict.fromkeys(range(hosts), "n0")}
    return why(facts, Question(None, *(steps or (None, None))))


def _more(phase: str, seconds: float) -> dict[str, float]:
    return {f"time/exposed/{phase}": seconds + 0.002, f"time/exposed/{phase}/rank": 0.0}


@pytest.mark.parametrize("steps", [None, (55, 55)])
def test_a_rank_that_alone_takes_longer_in_a_few_steps_is_named_with_what_it_did_and_is_not_called_slow(
    steps: tuple[int, int] | None,
) -> None:
    answer = asked(lambda rank, step: {"layer": 0.4 if rank == 3 and step in LONG else 0.001}, "layer", steps)

    assert answer.verdict == "cannot tell"
    assert "of it is in layer of rank 3 alone; timers inside of it would tell more" in answer.sentences[1]


@pytest.mark.parametrize("of", [lambda rank, step: 0.4, lambda rank, step: 0.4 if LONG.index(step) == rank else 0.001])
def test_where_all_ranks_take_longer_or_one_after_the_other_none_is_named(of: Callable[[int, int], float]) -> None:
    answer = asked(lambda rank, step: {"layer": of(rank, step) if step in LONG else 0.001}, "layer", None)

    assert "alone" not in " ".join(answer.sentences)


def test_who_waits_alone_in_communication_is_not_named() -> None:
    answer = asked(lambda rank, step: {"recv": 0.4 if rank == 3 and step in LONG else 0.001}, "recv", None)

    assert "rank 3" not in " ".join(answer.sentences)


def test_a_rank_without_timers_is_named_where_the_others_wait() -> None:
    def of(rank: int, step: int) -> dict[str, float]:
        return {"all_reduce": 0.4 if step in LONG else 0.001}

    answer = asked(of, "all_reduce", (55, 55), hosts=5)
    complete = asked(of, "all_reduce", (55, 55), hosts=4)

    assert "is in all_reduce, and rank 4 has no timers: with some it could be told" in answer.sentences[1]
    assert "no timers" not in complete.sentences[1]
