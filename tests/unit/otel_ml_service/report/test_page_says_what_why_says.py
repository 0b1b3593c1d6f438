"""The page of a run begins with what `otel-ml why` says of its steps, while the run goes on, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, RunStatus, Span, SpanBatch, StepRecord
from otel_ml_service.report.contents import read_contents
from otel_ml_service.report.page import page
from otel_ml_service.stored_runs.read_records import is_live
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.ui.followed_run import FollowedRun
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import read_facts
from tests.recorded_run import export, going_on, write_run
from tests.unit.otel_ml_service.report.test_page import Reader
from tests.unit.otel_ml_service.why.jobs import finding, job, numbered
from tests.unit.otel_ml_service.why.test_long_steps import (
    CHECKPOINTS,
    NOISE,
    at,
    every,
    pause,
    phases,
    records_of_one_rank,
    with_checkpoints,
)
from tests.unit.otel_ml_service.why.test_longer_and_longer import cache

_LENGTHS = 0.01 * NOISE.lognormal(0.0, 1.0, 160)


def with_spans_of(alone: int, ranks: int, longer: Callable[[int], float]) -> list[Record]:
    """Return a run of whose long steps the spans show that one rank is long in them alone."""
    records, last = list[Record](), 1000.0
    for row in job(values=phases(backward=longer)):
        records.append(row)
        if not isinstance(row, StepRecord):
            continue
        begin, last = last, row.time
        for rank in range(ranks):
            own = longer(row.step) if rank == alone else 0.0
            whole = Span(
                "aa", f"{row.step}-{rank}", None, "step", ns(begin), ns(last), "trainer", rank, "step", row.step
            )
            backward = replace(whole, span_id=f"b{whole.span_id}", parent_id=whole.span_id, name="backward")
            records.append(SpanBatch(0, [whole, replace(backward, end_ns=backward.start_ns + round(own * 1e9))]))
    return numbered(records)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


KINDS = {
    "a checkpoint": job(values=CHECKPOINTS),
    "a checkpoint that was found": job(values=CHECKPOINTS, findings=[pause("checkpoint")]),
    "a checkpoint of rank 0": job(values=CHECKPOINTS, findings=[pause("checkpoint", of_rank=0)]),
    "two things": job(steps=400, values=phases(checkpoint=every(20, 0.4), evaluation=every(50, 1.5))),
    "every fifth": job(values=phases(optimizer=every(5, 0.02))),
    "every second": job(values=phases(optimizer=every(2, 0.02))),
    "one": job(values=phases(backward=at(40.0, 80))),
    "five in a row": job(values=phases(backward=at(0.3, 60, 61, 62, 63, 64))),
    "waiting": job(values=phases(all_gather=every(25, 0.3))),
    "warm-up": job(values=phases(backward=at(30.0, 0))),
    "in all phases": job(values=phases(**{f"part{number}": every(20, 0.05) for number in range(8)})),
    "a heavy tail": job(values=phases(generate=lambda step: float(_LENGTHS[step]))),
    "one rank with its spans": records_of_one_rank(with_checkpoints),
    "of one rank alone": with_spans_of(2, 4, every(20, 0.15)),
    "in no timer": job(values=phases(untimed=at(0.3, 30, 55))),
    "shorter": job(values=phases(backward=lambda step: 0.02 if step < 80 else 0.0)),
    "a level without a cause": job(values=phases(backward=lambda step: 0.02 if step >= 80 else 0.0)),
    "too few steps": job(steps=6),
    "one step": job(steps=1),
    "longer and longer": job(steps=400, values=cache(lambda step: 0.0001 * step)),
    "longer and longer, with checkpoints": job(
        steps=400, values=cache(lambda step: 0.0003 * step + (0.4 if step % 20 == 19 else 0.0))
    ),
}


@pytest.fixture(params=["going on", "over"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, records: Sequence[Record]) -> Iterator[RunFolder]:
    if request.param == "over":
        yield write_run(tmp_path, "run", records)
        return
    with going_on(tmp_path, "run", [one for one in records if not isinstance(one, RunStatus)]) as run:
        assert is_live(run)
        yield run


@pytest.mark.parametrize("records", KINDS.values(), ids=KINDS)
def test_the_page_begins_with_the_sentences_of_why(folder: RunFolder) -> None:
    first, verdict, _ = why(read_facts(folder), Question()).sentences

    assert not first.startswith("Nothing stands out in 160 steps:"), "the run is of a kind that has something to say"
    assert first_sentences(FollowedRun(folder).page()).startswith(f"{first} {verdict}")
    assert first_sentences(page([read_contents(folder)])).startswith(f"{first} {verdict}")


def first_sentences(html: str) -> str:
    _, answer = html.split('<section class="top">', 1)
    return " ".join("".join(Reader(answer.split("</section>", 1)[0]).texts).split())


@pytest.mark.parametrize("records", [KINDS["of one rank alone"]], ids=["of one rank alone"])
def test_the_rank_that_alone_is_long_is_named_by_both(folder: RunFolder) -> None:
    assert "of backward (rank 2 alone)" in why(read_facts(folder), Question()).sentences[0]

    assert "of backward (rank 2 alone)" in first_sentences(page([read_contents(folder)]))


@pytest.mark.parametrize("records", [job(), job(values=phases(backward=at(0.003, 40, 80)))], ids=["even", "little"])
def test_where_why_says_that_nothing_stands_out_the_page_says_nothing_of_long_steps(folder: RunFolder) -> None:
    assert why(read_facts(folder), Question()).sentences[0].startswith("Nothing stands out in 160 steps")

    for html in (FollowedRun(folder).page(), page([read_contents(folder)])):
        assert first_sentences(html).startswith("No rank was found slow or silent.")


@pytest.mark.parametrize(
    "records",
    [job(slow=range(80, 120), extra_s=0.015, findings=[finding(since=80, until=119, extra_s=0.0149)])],
    ids=["a slow rank"],
)
def test_who_was_found_is_named_by_both_and_the_page_does_not_say_that_nobody_was(folder: RunFolder) -> None:
    assert "rank 2 was slow in forward" in why(read_facts(folder), Question()).sentences[1]

    for html in (FollowedRun(folder).page(), page([read_contents(folder)])):
        assert first_sentences(html).startswith("Rank 2 was slow in forward")
        assert "nobody was found slow" not in html


def test_of_a_run_that_goes_on_new_steps_are_in_the_first_sentence(tmp_path: Path) -> None:
    """It is asked again once there are enough new ones, not each time somebody looks."""
    records = [one for one in job(steps=400, values=CHECKPOINTS) if not isinstance(one, RunStatus)]
    with going_on(tmp_path, "run", records[:201]) as run:
        followed = FollowedRun(run)
        assert first_sentences(followed.page()).startswith("Steps 0-199 took 12 ms each, but 10 of them")
        export(run, records[201:])

        assert first_sentences(followed.page()).startswith("Steps 0-399 took 12 ms each, but 20 of them")
