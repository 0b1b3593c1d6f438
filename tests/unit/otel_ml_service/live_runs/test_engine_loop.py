"""The engine's thread takes what waits in rounds: each is committed before the next one is observed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.live_runs import engine_queue
from otel_ml_service.live_runs.engine_loop import EngineLoop
from otel_ml_service.live_runs.engine_queue import EngineQueue
from otel_ml_service.live_runs.run_registry import RunRegistry
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.live_runs.undecided import Undecided
from otel_ml_service.receiver.partial_success import Rejections
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.telemetry import Telemetry
from tests.strategies import START, Rank
from tests.waiting import eventually

MIB = 2**20


class Committed:
    """What the loop told the journal to drop, in order."""

    def __init__(self, last: int) -> None:
        self._last = last
        self.entries: list[int] = []
        self.is_done = threading.Event()

    def __call__(self, entry: int) -> None:
        self.entries.append(entry)
        if entry == self._last:
            self.is_done.set()


def committed_by(folder: Path, requests: list[Undecided]) -> list[int]:
    """Let a loop find these requests when it starts; return up to which entry each commit made everything durable."""
    committed = Committed(requests[-1].number)
    queue = EngineQueue(8 * MIB)
    queue.put(requests)
    with engine_loop(RunRegistry(folder, RunSettings({}), Telemetry(), journal="j"), queue, committed) as loop:
        loop.start()
        assert committed.is_done.wait(60)
    return committed.entries


@contextmanager
def engine_loop(
    runs: RunRegistry, queue: EngineQueue, drop: Callable[[int], None], clock: Callable[[], float] = time.time
) -> Iterator[EngineLoop]:
    loop = EngineLoop(
        runs,
        queue,
        Telemetry(),
        RefusalLog(),
        digested=lambda size: None,
        drop=drop,
        dir_max=2**40,
        unreadable=lambda entry, experiment: None,
        clock=clock,
    )
    try:
        yield loop
    finally:
        loop.stop()
        for run in runs:
            runs.put_away(run)


def requests(sizes: list[int]) -> list[Undecided]:
    rank = Rank(0)
    return [
        Undecided(number, "metrics", size, {"exp": rank.step(number, {"loss": 1.0})}, Rejections(), bytes)
        for number, size in enumerate(sizes, start=1)
    ]


def test_what_a_tight_loop_has_left_behind_is_committed_a_few_mebibytes_at_a_time(tmp_path: Path) -> None:
    entries = committed_by(tmp_path, requests([MIB] * 40))

    steps = [after - before for before, after in zip([0, *entries], entries, strict=False)]
    assert max(steps) <= 16
    assert sum(steps) == 40


def test_requests_that_take_long_are_committed_before_all_of_them_are_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_queue, "_ROUND_S", 0.0)  # private: tests need not take half a second a round
    entries = committed_by(tmp_path, requests([1] * 100))

    assert entries == [*range(1, 101)]


def test_a_request_that_is_larger_than_a_round_is_taken_all_the_same(tmp_path: Path) -> None:
    assert committed_by(tmp_path, requests([19 * MIB, 100, 100]))[-1] == 3


def test_many_small_requests_share_a_commit(tmp_path: Path) -> None:
    assert committed_by(tmp_path, requests([2_000] * 500)) == [500]


def test_a_run_that_is_over_can_be_asked_about_for_a_minute(tmp_path: Path) -> None:
    runs = RunRegistry(tmp_path, RunSettings({}), Telemetry(), journal="j")
    queue, rank, now = EngineQueue(8 * MIB), Rank(0), [START]
    drops: list[int] = []

    def take_in(number: int, observations: list[Observation]) -> None:
        queue.put([Undecided(number, "metrics", 100, {"exp": observations}, Rejections(), bytes)])
        eventually(lambda: number in drops)

    with engine_loop(runs, queue, drops.append, lambda: now[0]) as loop:
        loop.start()
        take_in(1, [*rank.step(0, {"loss": 1.0}), *rank.bye()])
        run = runs.get("exp")
        assert run is not None
        assert run.is_over
        now[0] += 59.0
        take_in(2, [])
        assert runs.get("exp") is run

        now[0] += 61.0
        eventually(lambda: runs.get("exp") is None)
