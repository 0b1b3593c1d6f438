"""Ranks without an `init()` wait for what rank 0 decides; whole launches are in `tests/integration`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml._internal.identity.run_identity import identify
from otel_ml._internal.lifecycle import join_rank_zero
from otel_ml._internal.lifecycle.join_rank_zero import Waiting, announce, decided, is_of_several
from otel_ml.config import Config
from tests.waiting import eventually

VARIABLES = {"OTEL_ML_EXPERIMENT_ID": "run-1", "OTEL_ML_EXPERIMENT_NAME": "digits", "OTEL_EXPORTER_OTLP_ENDPOINT": "x"}
HERE = {"TORCHELASTIC_RUN_ID": "job-1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"}


class Rank:
    """This process as a rank of a launch sees itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._folder = folder
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))

    def be(self, rank: int, **variables: str) -> Config:
        for name, value in {**HERE, "RANK": str(rank), "LOCAL_RANK": str(rank), **variables}.items():
            self._monkeypatch.setenv(name, value)
        return Config.from_env(os.environ)

    def announce(self, rank: int = 0, **variables: str) -> None:
        config = self.be(rank, **variables)
        announce(config, identify(config, os.environ), VARIABLES)


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rank:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    return Rank(monkeypatch, runtime)


def test_what_rank_0_says_is_what_the_others_join_by_and_never_where_to_send(rank: Rank) -> None:
    before = decided(rank.be(1))
    rank.announce()

    assert before is None
    assert decided(rank.be(1)) == {"OTEL_ML_EXPERIMENT_ID": "run-1", "OTEL_ML_EXPERIMENT_NAME": "digits"}


def test_another_launch_is_not_told(rank: Rank) -> None:
    rank.announce()

    assert decided(rank.be(1, TORCHELASTIC_RUN_ID="job-2")) is None


def test_only_rank_0_of_several_decides(rank: Rank) -> None:
    rank.announce(1)
    rank.announce(0, WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")

    assert decided(rank.be(1)) is None
    assert [is_of_several({**HERE, "RANK": "0", "WORLD_SIZE": size}) for size in "12"] == [False, True]


def test_on_several_hosts_it_is_found_in_the_folder_that_they_share(
    rank: Rank, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    several = {"GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    rank.announce(**several)
    other_host = tmp_path / "other-host"
    other_host.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(other_host))

    found = decided(rank.be(1, **several, GROUP_RANK="1", LOCAL_RANK="0"))

    assert found is not None
    assert found["OTEL_ML_EXPERIMENT_ID"] == "run-1"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"started_by": 5, "variables": {}}', '{"started_by": [1, 2]}'])
def test_a_file_that_cannot_be_read_says_nothing(rank: Rank, tmp_path: Path, content: str) -> None:
    rank.announce()
    files = [*(tmp_path / "runtime").rglob("*.launch.json")]
    for file in files:
        file.write_text(content)

    assert files
    assert decided(rank.be(1)) is None


class Looks:
    """Counts looks for what rank 0 decides, and finds it at one of them."""

    def __init__(self, found_at: float = float("inf")) -> None:
        self.found_at = found_at
        self.count = 0
        self.given_up = threading.Event()

    def __call__(self) -> bool:
        self.count += 1
        return self.count >= self.found_at


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_rank_zero, "LOOK_S", 0.001)


def is_over(waiting: Waiting) -> Callable[[], bool]:
    return lambda: not waiting._thread.is_alive()


def test_who_waits_looks_until_it_is_decided(rank: Rank) -> None:
    looks = Looks(found_at=3)
    waiting = Waiting(looks, looks.given_up.set, None)
    waiting.start()
    eventually(is_over(waiting))

    assert (looks.count, looks.given_up.is_set()) == (3, False)


def test_after_its_timeout_it_begins_alone() -> None:
    looks = Looks()
    waiting = Waiting(looks, looks.given_up.set, 0.02)
    waiting.start()
    eventually(is_over(waiting))

    assert looks.given_up.is_set()
    assert looks.count > 1


def test_where_a_run_has_begun_nobody_waits_or_gives_up() -> None:
    looks = Looks()
    waiting = Waiting(looks, looks.given_up.set, 1_000.0)
    waiting.start()
    waiting.leave()
    eventually(is_over(waiting))
    waiting.end(1_000.0)

    assert not looks.given_up.is_set()


@pytest.mark.parametrize(("timeout", "gives_up"), [(5.0, True), (None, False)])
def test_at_its_end_a_process_looks_a_last_time_and_begins_alone_where_a_run_is_asked_for(
    timeout: float | None, gives_up: bool
) -> None:
    looks = Looks()
    waiting = Waiting(looks, looks.given_up.set, timeout)
    waiting.end(0.0)

    assert (looks.count, looks.given_up.is_set()) == (1, gives_up)


def test_at_its_end_it_waits_as_long_as_it_may() -> None:
    looks = Looks(found_at=4)
    waiting = Waiting(looks, looks.given_up.set, None)
    waiting.end(20.0)

    assert looks.count == 4
