"""A reduction of the table is one everywhere: in calls, on the wire, in the service, in its pages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import otel_ml
from otel_ml.exceptions import WireError
from otel_ml.testing import capture
from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import REDUCTIONS
from otel_ml_exporters.records import HistogramValue
from otel_ml_service.aggregation.reduce import ACROSS, EXTREMES
from tests.strategies import Rank, Service

ROOT = Path(__file__).resolve().parents[2]
every = pytest.mark.parametrize("name", REDUCTIONS)


@every
def test_programs_may_ask_for_it_and_it_travels_under_its_name(name: str) -> None:
    with capture() as run:
        otel_ml.log({"x": 2.0}, step=0, reduce=name)
        otel_ml.log({"x": 8.0}, step=0, reduce=name)

    assert {point.reduction for point in run.points if point.name == "x"} == {name}
    assert run.notices == []


@every
def test_the_service_publishes_it(name: str) -> None:
    service, ranks = Service(), [Rank(0), Rank(1)]
    for rank in ranks:
        service.take(rank.record(0, {"x": [2.0, 8.0]}, name), rank.done(0), rank.bye())

    shown = {*service.rows()[0], *(one.name for one in service.records if isinstance(one, HistogramValue))}
    assert any(published.partition("/")[0] == "x" for published in shown)


@every
def test_what_it_needs_is_told_by_the_points_that_are_sent_for_it(name: str) -> None:
    reduction, row = Reduction.parse(name), REDUCTIONS[name]

    assert [reduction.needs_moments, reduction.needs_order, reduction.needs_buckets] == [
        row.point == point for point in ("moments", "order", "buckets")
    ]
    assert set(reduction.extra_statistics) == {one for one in row.needs if one.called}


@every
def test_records_of_a_rank_are_combined_by_it_if_it_makes_one_number_of_them(name: str) -> None:
    if name in {"mean", "sum", "min", "max", "count", "std", "geomean", "last", "first"}:
        assert Reduction.parse(f"{name}>mean").within == name
    else:
        with pytest.raises(WireError, match=f"Unknown reduction {name!r}"):
            Reduction.parse(f"{name}>mean")


@every
def test_a_function_of_the_service_makes_it(name: str) -> None:
    row = REDUCTIONS[name]

    is_made = name in ACROSS or name in EXTREMES
    assert is_made == (row.point == "moments" and row.publishes == "value")
    assert row.within <= (name in ACROSS or row.point == "order")


@pytest.mark.parametrize("page", ["protocol", "concepts", "service"])
@every
def test_every_page_that_lists_reductions_has_it(name: str, page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")

    assert re.search(rf"`{name}`", text)


def names_in(path: Path) -> set[str]:
    """Return the reductions that a module of Python or C has as texts, but for what it documents."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return set(re.findall(r'"(\w+)"', text)) & REDUCTIONS.keys()
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    return {node.value for node in nodes if isinstance(node.value, str)} & REDUCTIONS.keys()


PLACES = [
    *("otel_ml/wire", "otel_ml/_internal", "native", "exporters"),
    *(f"service/otel_ml_service/{part}" for part in ("aggregation", "receiver", "live_runs", "stored_runs", "report")),
]
OTHER_WORDS = {"count", "first", "histogram", "last", "max", "mean", "min", "rank", "sum"}
"""What programs also say of other things."""


@pytest.mark.parametrize("place", PLACES)
def test_only_the_table_and_the_functions_know_the_names(place: str) -> None:
    files = [path for path in sorted((ROOT / place).rglob("*")) if path.suffix in {".py", ".c", ".h"}]
    found = {path.relative_to(ROOT).as_posix() for path in files if names_in(path) - OTHER_WORDS}

    known = {"otel_ml/wire/reductions.py", "service/otel_ml_service/aggregation/reduce.py"}
    assert len(files) > 5
    assert found - known == set()
