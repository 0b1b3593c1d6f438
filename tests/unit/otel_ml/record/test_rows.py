"""`log()` of several numbers is one record: against an oracle that knows of records one by one only."""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_ml._internal.error_reporting import RecordingError
from otel_ml._internal.messages.recorder import Batch, recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.series import buffer
from otel_ml._internal.series.definition import define_metric
from otel_ml._internal.series.row import Row, Table
from otel_ml._internal.steps.step import set_step
from tests.unit.otel_ml.record.conftest import Recorded
from tests.unit.otel_ml.record.decoded import manifests, points, sums

NAMES = {
    "a": "mean",
    "b": ("mean", "std"),
    "c": ("first", "last"),
    "d": ("p50", "sum"),
    **dict.fromkeys("efgh", "sum"),
}
FIVE = dict.fromkeys("abcde", 1.0)

one = st.one_of(
    st.floats(-1e6, 1e6), st.integers(-1000, 1000), st.booleans(), st.floats(-100, 100, width=32).map(np.float32)
)
several = st.lists(st.floats(-1e6, 1e6), max_size=3)
rows = st.tuples(st.permutations([*NAMES]), st.integers(1, len(NAMES))).flatmap(
    # Of what is recorded at the same moment, no time says which is the first.
    lambda drawn: st.fixed_dictionaries({name: one if name == "c" else one | several for name in drawn[0][: drawn[1]]})
)
weighted = st.tuples(st.sampled_from("ab"), st.floats(-1e6, 1e6), st.floats(0, 1e6))
calls = st.lists(st.one_of(rows, weighted, st.just("collect")), max_size=30)


class Oracle:
    """Every record of a series, in order, with its weight."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def take(self, values: Mapping[str, Any], weight: float = 1.0) -> None:
        for name, value in values.items():
            for item in value if isinstance(value, list) else [value]:
                self.records[name].append((float(item), weight))


def means_and_deviations(batches: list[Batch], name: str) -> tuple[int, float, float, float, float]:
    """Merge the points of a series: count, sum, minimum, maximum, sum of squared deviations."""
    count, total, m2, extremes = 0, 0.0, 0.0, []
    for point in (point for batch in batches for point in points(batch, name) if point.kind != "gauge"):
        n, other = point.moments
        delta = other / n - (total / count if count else 0.0)
        m2 += point.attributes.get("ml.m2", 0.0) + delta * delta * count * n / (count + n)
        count, total = count + n, total + other
        has = point.raw.HasField("min")
        extremes += [point.raw.min, point.raw.max] if has else [other]
    return count, total, min(extremes), max(extremes), m2


def close(expected: float) -> Any:
    return pytest.approx(expected, rel=1e-9, abs=1e-3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(calls=calls)
def test_rows_come_to_what_each_of_their_records_comes_to(recorded: Recorded, calls: list[Any]) -> None:
    recorder.forget()
    oracle = Oracle()
    for name, reduce in NAMES.items():
        define_metric(name, reduce=reduce)
    batches = []
    for call in calls:
        if call == "collect":
            batches.append(recorded.collect())
        elif isinstance(call, dict):
            log(call, step=3)
            oracle.take(call)
        else:
            record(call[0], call[1], weight=call[2], step=3)
            oracle.take({call[0]: call[1]}, call[2])
    batches.append(recorded.collect(final=True))

    assert sum(batch.values for batch in batches) == sum(map(len, oracle.records.values())) == recorder.recorded
    assert recorder.dropped == {}
    for name in NAMES.keys() - {"c"}:
        values = [value for value, _ in oracle.records[name]]
        if not values:
            continue
        count, total, least, most, m2 = means_and_deviations(batches, name)
        assert (count, least, most) == (len(values), min(values), max(values))
        assert total == close(math.fsum(values))
        if name == "b":
            assert m2 / count == pytest.approx(statistics.pvariance(values), rel=1e-6, abs=1e-3)
    for name in ("a", "b"):
        check_weights(batches, name, oracle.records[name])
    check_order(batches, oracle.records["c"])


def check_weights(batches: list[Batch], name: str, records: list[tuple[float, float]]) -> None:
    found = [point for batch in batches for point in points(batch, name)]
    weights = sum(point.attributes.get("ml.wsum", point.raw.count) for point in found)
    products = sum(point.attributes.get("ml.wxsum", point.raw.sum) for point in found)
    assert weights == close(math.fsum(weight for _, weight in records))
    assert products == pytest.approx(math.fsum(weight * value for value, weight in records), rel=1e-9, abs=1e3)


def check_order(batches: list[Batch], records: list[tuple[float, float]]) -> None:
    found = [point for batch in batches for point in points(batch, "c")]
    if records:
        by_time = sorted(found, key=lambda point: point.raw.time_unix_nano)
        assert (by_time[0].value, by_time[-1].value) == (records[0][0], records[-1][0])


def test_names_that_were_logged_together_are_one_record_the_next_time(recorded: Recorded) -> None:
    log(FIVE)
    assert Row not in map(type, buffer.RECORDS)
    recorded.collect()

    log({**FIVE, "e": 2})

    row, step, value, _, *values = buffer.RECORDS
    assert (type(row), step.index, value, values) == (Row, None, None, [1.0, 1.0, 1.0, 1.0, 2.0])


def test_what_a_caller_does_to_its_dictionary_afterwards_changes_nothing(recorded: Recorded) -> None:
    values = dict(FIVE)
    for _ in range(3):
        log(values)
    values["a"] = 100.0
    del values["b"]

    assert sums(recorded.collect()) == {(name, None): 3.0 for name in FIVE}


def test_a_dictionary_that_other_threads_write_to_is_recorded_as_it_was_at_some_moment(recorded: Recorded) -> None:
    values = dict(FIVE)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            values["z"] = 1.0
            del values["z"]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writer = threading.Thread(target=write)
    try:
        writer.start()
        for _ in range(20_000):
            log(values)
    finally:
        done.set()
        writer.join()
        sys.setswitchinterval(interval)

    found = sums(recorded.collect())
    assert [found[name, None] for name in FIVE] == [20_000] * 5
    assert recorder.dropped == {}


def test_one_value_of_a_row_that_is_none_takes_no_other_with_it(recorded: Recorded) -> None:
    for last in (1, 10**400, None, "text", [1.0, 2.0], 2):
        log({**FIVE, "e": last})

    assert sums(recorded.collect()) == {(name, None): 6.0 for name in FIVE}
    assert recorder.dropped == {"bad_value": 3}


def test_a_row_that_is_wrong_raises_at_its_call_in_strict_mode(recorded: Recorded) -> None:
    recorded.configure(strict=True)
    log(FIVE)

    with pytest.raises(RecordingError, match="'e'"):
        log({**FIVE, "e": "text"})


def test_rows_of_one_step_and_of_many_have_their_manifests(recorded: Recorded) -> None:
    for step in range(50):
        set_step(step)
        log({**FIVE, "a": float(step)})

    batch = recorded.collect(final=True)
    assert {key: total for key, total in sums(batch).items() if key[0] == "a"} == {
        ("a", s): float(s) for s in range(50)
    }
    assert manifests(batch) == {("step", step): 5 for step in range(50)}


def test_callers_of_rows_bound_the_buffer_themselves(recorded: Recorded) -> None:
    values = {f"m{number}": 1.0 for number in range(10)}
    calls = 2 * buffer.LIMIT // 14
    for _ in range(calls):
        log(values)

    assert len(buffer.RECORDS) < buffer.LIMIT
    assert sums(recorded.collect()) == {(name, None): calls for name in values}


def test_threads_that_log_rows_lose_nothing_while_others_fold(recorded: Recorded) -> None:
    each, threads = 5_000, 4
    totals: dict[tuple[str, int | None], float] = defaultdict(float)

    def collect() -> None:
        for key, total in sums(recorded.collect()).items():
            totals[key] += total

    def hammer() -> None:
        for _ in range(each):
            log(FIVE)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=hammer) for _ in range(threads)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            collect()
    finally:
        sys.setswitchinterval(interval)
    collect()

    assert totals == {(name, None): each * threads for name in FIVE}


def test_names_that_change_from_call_to_call_do_not_fill_the_memory() -> None:
    table = Table()
    kept = set()
    for number in range(3 * Table.MOST // 100):
        table.add_row(tuple(f"{number}/{name}" for name in range(100)), ())
        kept.add(len(table.rows))

    assert max(kept) < 1_000


def test_a_program_that_logs_thousands_of_names_one_by_one_has_a_row_of_each() -> None:
    table = Table()
    names = [(f"layer/{number}",) for number in range(15_000)]
    for name in names:
        table.add_row(name, ())

    assert list(table.rows) == names


def test_a_row_wakes_a_process_that_sleeps(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    log(FIVE)
    recorded.collect()
    woken: list[bool] = []
    monkeypatch.setattr(buffer, "_begin", lambda: woken.append(True))  # what it starts is a thread
    buffer.sleep()
    log(FIVE)

    assert woken == [True]
    assert sums(recorded.collect()) == {(name, None): 1.0 for name in FIVE}


class Busy:
    """A number that does something else first when it is asked for its value."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.do = do

    def __float__(self) -> float:
        self.do()
        return 2.0


@pytest.mark.parametrize("names", ["a", "abcde"])
def test_a_number_that_has_rows_forgotten_while_it_is_read_is_recorded_all_the_same(
    names: str, recorded: Recorded
) -> None:
    defined = itertools.count()
    value = Busy(lambda: define_metric(f"new/{next(defined)}", reduce="max") or log({"beside": 1.0}))
    values = dict.fromkeys(names, value)
    record("new/0", 0.0)
    for _ in range(3):
        log(values)

    expected = {(name, None): 6.0 for name in names}
    assert {key: total for key, total in sums(recorded.collect()).items() if key[0] in names} == expected


@pytest.mark.parametrize("names", ["a", "abcde"])
def test_a_number_that_cannot_be_read_is_lost_alone(names: str, recorded: Recorded) -> None:
    """Also where it raises what ends an iteration."""
    numbers = iter([1.0])
    values = {**dict.fromkeys(names, 1.0), "read": Busy(lambda: next(numbers))}
    log(values)
    log(values)

    assert sums(recorded.collect()) == {**dict.fromkeys([(name, None) for name in names], 2.0), ("read", None): 2.0}


@pytest.mark.parametrize("names", ["a", "abcde"])
def test_what_ends_a_program_while_a_number_is_read_ends_it(names: str, recorded: Recorded) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    do: list[Callable[[], object]] = [lambda: None]
    values = {name: Busy(lambda: do[0]()) for name in names}
    log(values)
    do[0] = interrupt
    with pytest.raises(KeyboardInterrupt):
        log(values)
    with pytest.raises(KeyboardInterrupt):
        record("a", values["a"])

    assert sums(recorded.collect()) == {(name, None): 2.0 for name in names}
