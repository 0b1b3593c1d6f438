"""Streams that accumulate are after a restart what they were; of their entries only those that changed are written."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.json_text import plain_json
from otel_ml_service.aggregation.cumulative_streams import CumulativeStreams
from otel_ml_service.aggregation.fold import STATS
from otel_ml_service.aggregation.lazy_entries import LazyEntries
from otel_ml_service.aggregation.observation import Partials, SeriesKey, ThirdPartyPoints, Writer
from otel_ml_service.aggregation.older_state import in_this_form
from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.points import Buckets, ExplicitBuckets
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.stream_table import CHUNK, KEPT, Latest, Meter, StreamTable, decoded
from otel_ml_service.versions import RUN

SHAPES: dict[tuple[SeriesKey, ...], Shape] = {}
METER = Meter(3, "my.library", "step", None)
BUCKETS = st.one_of(
    st.none(),
    st.builds(
        ExplicitBuckets,
        st.just((0.5, 5.0)),
        st.tuples(*[st.integers(0, 2**60)] * 3),
        st.sampled_from([None, 0.25]),
        st.sampled_from([None, 9.0]),
    ),
    st.just(Buckets(6, 1, -3, (1, 2**62), 0, ())),
)


@st.composite
def points(draw: st.DrawFn) -> tuple[list[int], Latest]:
    """Points of some of many streams."""
    names = draw(st.lists(st.integers(0, 3 * CHUNK), min_size=1, max_size=6, unique=True))
    count = len(names)
    return names, Latest(
        np.array(draw(st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count)), np.uint64),
        np.array(draw(st.lists(st.integers(0, 2**63 - 1), min_size=count, max_size=count)), np.int64),
        np.array(draw(st.lists(st.floats(), min_size=count * KEPT, max_size=count * KEPT))).reshape(count, KEPT),
        np.array(draw(st.lists(st.floats(0, 2e9), min_size=count, max_size=count))),
        draw(st.lists(BUCKETS, min_size=count, max_size=count)),
    )


def known(table: StreamTable) -> dict[Any, Any]:
    """Return the newest point of each stream, such that NaN is equal to NaN."""
    found = {}
    for row, name in enumerate(table.names):
        if name is not None:
            starts, times, stats, received, buckets = table.at(np.array([row]))
            found[name] = (starts.tolist(), times.tolist(), stats.tobytes(), received.tolist(), buckets)
    return found


def put(table: StreamTable, names: list[int], latest: Latest) -> None:
    keys = tuple(SeriesKey(f"metric {name}", (("of", "half \udcff"),), "moments") for name in names)
    rows = table.rows_of(SHAPES.setdefault(keys, Shape(len(SHAPES), keys)))
    new = np.flatnonzero(rows < 0)
    rows = rows.copy()
    rows[new] = table.add([keys[place] for place in new.tolist()])
    table.put(rows, latest)


@given(st.lists(points(), max_size=6), st.integers(0, 3 * CHUNK), st.lists(st.integers(0, 3 * CHUNK), max_size=3))
def test_what_is_committed_is_restored(every: list[tuple[list[int], Latest]], many: int, gone: list[int]) -> None:
    table, state = StreamTable(METER), dict[str, bytes]()
    some = Latest(
        np.zeros(many, np.uint64), np.ones(many, np.int64), np.ones((many, KEPT)), np.ones(many), [None] * many
    )
    put(table, list(range(many)), some)
    for names, latest in every:
        put(table, names, latest)
        commit(table, state)
    for name in gone:
        table.take((f"metric {name}", (("of", "half \udcff"),)))
    commit(table, state)

    restored = StreamTable(METER)
    for chunk, keys, latest in sorted((decoded(data)[1:] for data in state.values()), key=lambda entry: entry[0]):
        restored.restore(chunk, keys, latest)

    assert known(restored) == known(table)
    assert len(restored) == len(table) == len(known(table))
    assert not list(restored.changes())
    if every:
        put(restored, *every[-1])
        put(table, *every[-1])
        commit(restored, state)
        again = StreamTable(METER)
        for chunk, keys, latest in sorted((decoded(data)[1:] for data in state.values()), key=lambda entry: entry[0]):
            again.restore(chunk, keys, latest)
        assert known(again) == known(table)


def commit(table: StreamTable, state: dict[str, bytes]) -> None:
    for key, data in table.changes():
        if data is None:
            state.pop(key, None)
        else:
            state[key] = data


def test_streams_that_version_9_kept_one_by_one_are_those_of_their_meter() -> None:
    stored = [5.0, 2.5, None, None, None, None, None]
    rows = [value if value is not None else float("nan") for value in stored]
    streams = {
        f"stream/{number}": plain_json(
            [[3, "my.library", f"metric {number}", [["of", "a"]], "step", None], [5, 7, rows, buckets, 1e9]]
        )
        for number, buckets in enumerate([None, [6, 0, 4, [0.5, 1.5], 0, []], *[None] * CHUNK])
    }
    run = plain_json({"version": 9, "recent": [2, 1e9], "training": [None, []]})

    state = in_this_form({"run": run, **streams})

    table = StreamTable(METER)
    for key in sorted(key for key in state if key.startswith("stream/")):
        meter, chunk, keys, latest = decoded(state[key])
        assert meter == METER
        table.restore(chunk, keys, latest)
    assert set(streams).isdisjoint(state)
    found = known(table)
    assert len(found) == CHUNK + 2
    assert found["metric 1", (("of", "a"),)] == (
        [5], [7], np.array([rows]).tobytes(), [1e9], [Buckets(6, 0, 4, (0.5, 1.5), 0, ())]
    )  # fmt: skip
    run_now = {"version": RUN, "recent": [2, 1e9, 3], "moments": [0, None], "training": None, "told": None}
    assert json.loads(state["run"]) == run_now


def test_streams_of_which_version_1_did_not_tell_the_meter_are_those_of_the_first_meter_that_goes_on() -> None:
    run = RunState("exp", EngineSettings(), LazyEntries(None, {}))
    streams = CumulativeStreams(run)
    names = ("a", "b", "c")
    keys = tuple(SeriesKey(name, (), "moments") for name in names)
    totals = np.array([[1.0, total, total, total, *[math.nan] * 3] for total in (10.0, 20.0, 30.0)])
    ones = np.ones(3, np.int64)
    before = Latest(ones.astype(np.uint64), ones, totals, np.ones(3), [None] * 3)
    streams.restore(Meter(3, None, "step", 1), 0, keys, before)

    sent = [
        ThirdPartyPoints(
            Writer("exp", "trainer", "sdk"), "sum", "cumulative", True, "step", 1, None, (1,) * len(rows),
            Partials(
                tuple(keys[row] for row in rows),
                np.array([[1.0, total, total, total, *[math.nan] * (STATS - 4)] for total in newer]),
                np.full((len(rows), 2), time),
            ),
            scope,
        )
        for scope, time, rows, newer in (
            ("meter", 5, [2], [33.0]), ("meter", 6, [0, 1], [11.0, 22.0]), ("other", 7, [0], [5.0]),
        )
    ]  # fmt: skip
    found = [
        streams.increases(3, one, Shape(number, one.partials.series), list(range(len(one.starts))))
        for number, one in enumerate(sent)
    ]

    assert [one.partials.stats[:, 1].tolist() for one in found] == [[3.0], [1.0, 2.0], [5.0]]
    assert streams.count == sum(map(len, streams.tables.values())) == 4
