"""Whatever a stored run holds, it has an answer, and of three verdicts one: runs may come from anybody."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_exporters.records import JsonValue, Params, Record, RunStatus, Span, StepRecord, Table, Text
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.comparison import compared
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.jobs import FINDINGS, numbered

VERDICTS = {"caused", "coincided", "cannot tell"}

names = st.sampled_from(
    ["loss", "time/step", "time/forward", "time/exposed/forward", "time/exposed/forward/rank", "time/exposed/a/b",
     "generator/loss", "generator/rollout/time/exposed/x", "otel_ml/findings", "time/", "\x1b[31m", "time/idle",
     *(f"{name}/generator/{rank}" for name in ("loss", "consumed/samples", "consumed/staleness") for rank in (0, 1))]
)  # fmt: skip
numbers = st.one_of(st.floats(), st.floats(0, 1), st.just(0.01))
places = st.sampled_from([("trainer", "step"), ("generator", "rollout"), ("", "time"), ("generator", "step")])
cells: st.SearchStrategy[JsonValue] = st.one_of(st.none(), st.integers(-5, 130), st.floats(), st.text(max_size=3))
tables = st.builds(
    lambda name, rows: Table(0, 0.0, name, "step", None, FINDINGS, tuple(map(tuple, rows))),
    st.sampled_from(["otel_ml/findings", "generator/rollout/otel_ml/findings"]),
    st.lists(st.lists(cells, max_size=14), max_size=3),
)


params = st.builds(Params, st.just(0), st.floats(900, 1100), st.dictionaries(st.text(max_size=3), cells, max_size=2))
events = st.builds(Text, st.just(0), st.just(0.0), names, st.just("step"), st.integers(-1, 90), st.text(max_size=100))
killed = st.just(RunStatus(0, 0.0, "killed"))
others = st.lists(st.one_of(tables, params, events, killed), max_size=6)
streams = st.lists(
    st.tuples(
        places, st.integers(-3, 100), st.sampled_from([0.0, 0.01, 100.0]), st.integers(0, 60), st.integers(0, 90),
        st.lists(st.tuples(names, numbers, numbers), max_size=5),
    ),
    max_size=3,
)  # fmt: skip


def run(found: list[tuple[Any, ...]], more: list[Record]) -> list[Record]:
    rows: list[Record] = []
    for (role, axis), first, step_s, change, count, series in found:
        for at in range(count):
            values = {name: before if at < change else after for name, before, after in series}
            rows.append(StepRecord(0, role, axis, first + at, int(at > change), 1e3 + at * step_s, values, at % 7 == 0))
    return numbered([*rows, *more])


runs = st.builds(run, streams, others)


timers = st.lists(
    st.builds(
        lambda place, name, rank, begin, took, step: Span(
            "aa", f"{rank}.{begin}.{name}", None, name, begin, begin + took, *place[:1], rank, place[1], step
        ),
        places, st.sampled_from(["step", "forward", "a-recv", "a-send", "sync"]), st.integers(0, 2),
        st.integers(0, 1000), st.integers(0, 500), st.integers(0, 100),
    ),
    max_size=20,
)  # fmt: skip


@given(records=runs, other=runs, spans=timers, first=st.integers(0, 100), length=st.integers(0, 60))
@settings(max_examples=60, deadline=None)
def test_every_run_has_an_answer_that_json_takes(
    records: list[Record], other: list[Record], spans: list[Span], first: int, length: int
) -> None:
    facts = facts_of("run", records)
    facts.spans, facts.hosts = (lambda *_: iter(spans)), lambda: {"trainer": {0: "a", 1: "b"}, "generator": {0: "a"}}

    answers = [why(facts, Question()), why(facts, Question(first=first, last=first + length))]
    answers += [why(facts, Question(metric=key.name, axis=key.axis)) for key in list(facts.history.series)]

    for answer in answers:
        assert answer.verdict in VERDICTS
        assert (answer.verdict == "caused") == (answer.explained >= 0.8)
        assert all(answer.sentences)
        json.dumps(asdict(answer))
    found = compared(facts, facts_of("other", other))
    assert found.verdict in VERDICTS
    json.dumps(asdict(found))
