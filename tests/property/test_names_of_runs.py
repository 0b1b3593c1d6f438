"""Ranks that mean one run may each make up a part of its name: the time, random digits. What they mean is the rest."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml._internal.identity.ranks import JobPlace
from otel_ml._internal.identity.runs_of_launch import number_in_launch
from otel_ml.config import Config

PLACE = JobPlace(world_size=2, launcher="torchrun", variable="RANK")
LAUNCHES = itertools.count()

TIMES: dict[str, Callable[[datetime], str]] = {
    "str": str,
    "isoformat": datetime.isoformat,
    "milliseconds": lambda time: time.isoformat(timespec="milliseconds"),
    "zone": lambda time: time.replace(tzinfo=timezone.utc).isoformat(),
    "Z": lambda time: f"{time.isoformat()}Z",
    "basic": lambda time: f"{time:%Y%m%dT%H%M%S}",
    "basic-Z": lambda time: f"{time:%Y%m%dT%H%M%SZ}",
    "compact": lambda time: f"{time:%Y%m%d-%H%M%S}",
    "of-the-year": lambda time: f"{time:%m%d_%H%M}",
    "tensorboard": lambda time: f"{time:%b%d_%H-%M-%S}",
    "hydra": lambda time: f"{time:%Y-%m-%d/%H-%M-%S}",
    "underscores": lambda time: f"{time:%Y_%m_%d_%H_%M_%S_%f}",
    "log": lambda time: f"{time:%Y-%m-%d %H:%M:%S},{time.microsecond // 1000:03}",
    "ctime": datetime.ctime,
    "hour": lambda time: f"{time:%H%M%S}",
    "seconds": lambda time: str(time.replace(tzinfo=timezone.utc).timestamp()),
    "nanoseconds": lambda time: f"{round(time.replace(tzinfo=timezone.utc).timestamp() * 1e9)}",
}
RANDOM: dict[str, Callable[[UUID], str]] = {
    "uuid": str,
    "hex": lambda uuid: uuid.hex,
    "16 digits": lambda uuid: uuid.hex[:16],
    "8 digits": lambda uuid: uuid.hex[:8],
    "capitals": lambda uuid: uuid.hex[:12].upper(),
    "decimals": lambda uuid: f"{uuid.int % 10**8:08}",
}


@pytest.fixture(autouse=True, scope="module")
def runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        yield


def are_one_run(*names: str) -> bool:
    """Whether ranks that each begin a run by one of these names begin one."""
    launch = f"launch-{next(LAUNCHES)}"
    return len({number_in_launch(launch, PLACE, 1, Config(name=name), ()) for name in names}) == 1


def begin_one_run(ranks: Iterable[tuple[int, str]]) -> bool:
    """Whether ranks with these process ids and names begin one."""
    launch = f"launch-{next(LAUNCHES)}"
    numbers = set()
    for pid, name in ranks:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "getpid", lambda pid=pid: pid)
            numbers.add(number_in_launch(launch, PLACE, 1, Config(name=name), ()))
    return len(numbers) == 1


@pytest.mark.parametrize("written", TIMES)
@given(
    time=st.datetimes(datetime.fromisoformat("2020-01-01"), datetime.fromisoformat("2039-12-31")),
    later=st.timedeltas(timedelta(), timedelta(seconds=90)),
    frame=st.sampled_from(["{}", "resnet_{}", "resnet-50-{}", "{}_lr=0.1", "run {} fold-3"]),
)
def test_ranks_that_write_the_time_into_a_name_mean_one_run(
    written: str, time: datetime, later: timedelta, frame: str
) -> None:
    assert are_one_run(*(frame.format(TIMES[written](moment)) for moment in (time, time + later)))


@pytest.mark.parametrize("written", RANDOM)
@given(one=st.uuids(), other=st.uuids(), frame=st.sampled_from(["{}", "resnet_{}", "{}-fold-3", "lr=0.1 {}"]))
def test_ranks_that_write_random_digits_into_a_name_mean_one_run(
    written: str, one: UUID, other: UUID, frame: str
) -> None:
    assert are_one_run(*(frame.format(RANDOM[written](uuid)) for uuid in (one, other)))


@pytest.mark.parametrize("frame", ["rank{}", "train-rank-{}", "rank={}", "local_rank: {}", "Rank_{} of 8"])
def test_ranks_that_write_their_own_into_a_name_mean_one_run(frame: str) -> None:
    assert are_one_run(*(frame.format(rank) for rank in range(8)))


@given(pids=st.lists(st.integers(10_000, 4_194_304), min_size=2, max_size=8, unique=True))
@pytest.mark.parametrize("frame", ["{}", "resnet_{}", "node3-{}-fold-3", "{} lr=0.1"])
def test_ranks_that_write_their_own_process_id_into_a_name_mean_one_run(frame: str, pids: list[int]) -> None:
    assert begin_one_run([(pid, frame.format(pid)) for pid in pids])


@given(pids=st.lists(st.integers(2, 4_194_304), min_size=2, max_size=8, unique=True), which=st.integers(0, 7))
def test_a_number_in_a_name_that_is_a_process_id_by_chance_stays_in_it(pids: list[int], which: int) -> None:
    name = f"seed {min(pids[which % len(pids)], 9_999)}"
    assert begin_one_run([(pid, name) for pid in pids])


@given(
    pair=st.sampled_from(
        [
            ("fold-0", "fold-1"),
            ("fold-9", "fold-10"),
            ("prepare", "train"),
            ("lr=0.1", "lr=0.01"),
            ("lr 1e-4", "lr 1e-5"),
            ("resnet50", "resnet18"),
            ("bert-base", "bert-large"),
            ("7b", "70b"),
            ("facade", "decade"),
            ("seed 1337", "seed 1338"),
            ("v1.2.3", "v1.2.4"),
            ("epochs 2020", "epochs 2021"),
        ]
    ),
    frame=st.sampled_from(["{}", "resnet_{}", "{} of the 1. try"]),
)
def test_names_that_differ_in_more_are_different_runs(pair: tuple[str, str], frame: str) -> None:
    assert not are_one_run(*(frame.format(name) for name in pair))
