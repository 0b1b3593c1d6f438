"""How slow each rank of a page is: steps that are looked at together say what each of them says by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.records import Span
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.findings.blame import own_extra
from otel_ml_service.findings.peers import groups_of, usual_of
from otel_ml_service.findings.phases import is_routed, is_waiting
from otel_ml_service.report.rank_times import RankTimes
from otel_ml_service.stored_runs.read_spans import SpanRow

PHASES = ("load", "recv", "forward", "experts", "all_reduce")
WHOLE = "step"

Timers = Mapping[str, int]
"""Timer → milliseconds."""

lengths = st.sampled_from([5, 20, 21, 60, 400])
shapes = st.dictionaries(st.integers(0, 4), st.sets(st.sampled_from(PHASES), min_size=1), min_size=1)


def of_shape(shape: Mapping[int, set[str]]) -> st.SearchStrategy[Mapping[int, Timers]]:
    """Return steps in which these ranks have these timers."""
    return st.fixed_dictionaries(
        {rank: st.fixed_dictionaries(dict.fromkeys(sorted(names), lengths)) for rank, names in shape.items()}
    )


runs = st.lists(shapes, min_size=1, max_size=2).flatmap(
    lambda some: st.lists(st.one_of([of_shape(one) for one in some]), min_size=1, max_size=8)
)


def rows_of(step: int, rank: int, timers: Timers, *, is_whole: bool) -> list[SpanRow]:
    """Return the spans of a rank, one phase after the other."""
    begin = step * 10**10
    spans, now = list[Span](), begin
    for name in (name for name in PHASES if name in timers):
        spans.append(Span("", f"{rank}{name}", None, name, now, now + timers[name] * 10**6, "", rank, "step", step))
        now = spans[-1].end_ns
    whole = [Span("", f"{rank}", None, WHOLE, begin, now, "", rank, "step", step)] * is_whole
    return SpanLines.of([*whole, *spans]).rows()


def slow_alone(ranks: Mapping[int, Timers], *, is_whole: bool) -> Mapping[int, float]:
    """Return what one step says, rank by rank and timer by timer."""
    order = sorted(ranks)
    phases = [name for name in PHASES if any(name in of for of in ranks.values())]
    table = np.array([[ranks[rank].get(name, math.nan) for name in phases] for rank in order]) * 10**6 / 1e9
    longest = max(sum(of.values()) for of in ranks.values()) / 1e3
    groups = groups_of([None] * len(order), phases, ~np.isnan(table))
    usual = usual_of(table, groups)
    extra = own_extra(table, usual, groups)
    found = {}
    for row, rank in enumerate(order):
        shares = [
            max(extra[row, column], 0.0) / max(usual[row, column], 0.01, longest / 10)
            for column, name in enumerate(phases)
            if not (is_waiting(name) or is_routed(name)) and not math.isnan(extra[row, column])
        ]
        found[rank] = max(shares, default=math.nan) if len(order) > 1 else math.nan
    return found


@given(runs, st.booleans(), st.booleans())
def test_steps_that_are_looked_at_together_say_what_each_says_alone(
    steps: Sequence[Mapping[int, Timers]], is_whole: bool, is_late: bool
) -> None:
    first = {rank: dict.fromkeys(PHASES, 20) for rank in range(5)}  # in which the order of the timers is seen
    every = [first, *steps, first]
    sent = [
        rows_of(step, rank, timers, is_whole=is_whole)
        for step, ranks in enumerate(every)
        for rank, timers in sorted(ranks.items(), reverse=step % 2 == 1)
    ]
    if is_late:  # half of what was sent comes when the other half has been looked at already
        sent = [sent[0], *sent[1::2], *sent[2::2]]

    times = RankTimes()
    for number, rows in enumerate(sent):
        times.add(rows)
        if number == len(sent) // 2:
            times.all()

    found = times.all()
    assert list(found) == list(range(len(every)))
    for step, ranks in enumerate(every):
        expected = slow_alone(ranks, is_whole=is_whole)
        assert found[step].keys() == expected.keys()
        assert all(
            math.isclose(found[step][rank], slow, abs_tol=1e-9) or (math.isnan(slow) and math.isnan(found[step][rank]))
            for rank, slow in expected.items()
        )
