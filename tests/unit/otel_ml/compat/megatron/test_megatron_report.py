"""The report of Megatron's `Timers`: its form, and of which ranks it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml.compat.megatron import Timers, across_ranks_string
from otel_ml.testing import Capture, capture
from otel_ml.warn_once import forget_warnings

SHORT_S = 0.003


@pytest.fixture(autouse=True)
def said_anew() -> None:
    forget_warnings()


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def ran(timers: Timers, name: str, seconds: float) -> None:
    timer = timers(name, log_level=0)
    timer.set_elapsed(seconds)


def test_the_report_of_a_job_with_one_rank_has_the_documented_form() -> None:
    expected = {
        "max": f"max time across ranks (ms):\n    {'optimizer '.ljust(48, '.')}: 12.34",
        "minmax": f"(min, max) time across ranks (ms):\n    {'optimizer '.ljust(48, '.')}: (12.34, 12.34)",
        "all": "times across ranks (ms):\n  optimizer:\n     rank  0: 12.34",
    }
    for option, text in expected.items():
        timers = Timers(1, option)
        ran(timers, "optimizer", 0.01234)
        ran(timers, "never", 0.0)

        assert timers.get_all_timers_string() == text


def test_a_rank_among_others_says_that_the_times_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    timers = Timers(1, "minmax")
    ran(timers, "optimizer", 0.01)

    text = timers.get_all_timers_string() or ""

    assert text.splitlines()[0] == "(min, max) time across ranks (ms), rank 3 alone (1 of 8):"


def test_only_the_last_rank_prints_and_nothing_where_nothing_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    printed: list[str] = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        timers = Timers(1, "max")
        timers.log(write=printed.append)
        ran(timers, "optimizer", 0.01)
        timers.log(write=printed.append)
        ran(timers, "optimizer", 0.01)
        timers.log(rank=0, write=printed.append)

    assert [line.partition("rank ")[2][0] for line in printed] == ["0", "1"]


FIRST = {
    "iteration-time": 9.0,
    "f-time": 0.02,
    "f-time/count": 2.0,
    "f-time/min": 0.01,
    "f-time/rank_0": 0.01,
    "f-time/rank_1": 0.02,
}
SECOND = {"f-time": 0.03, "f-time/min": 0.03, "f-time/rank_1": 0.03, "f-time/count": 1.0}
ROWS = [{"seq": step, "step": step, "axis": "step", "values": values} for step, values in ((5, FIRST), (6, SECOND))]


@pytest.mark.feature("M4", "better", "min and max without an all-gather; ranks may have different timers")
@pytest.mark.parametrize(
    ("option", "step", "expected"),
    [
        ("max", 5, f"max time across ranks (ms):\n    {'f '.ljust(48, '.')}: 20.00"),
        ("minmax", 5, f"(min, max) time across ranks (ms):\n    {'f '.ljust(48, '.')}: (10.00, 20.00)"),
        ("all", 5, "times across ranks (ms):\n  f:\n     rank  0: 10.00\n     rank  1: 20.00"),
        ("all", None, "times across ranks (ms), 1 of 2 ranks:\n  f:\n     rank  1: 30.00"),
    ],
)
def test_all_ranks_are_reported_from_the_runs_file_and_how_many_they_are(
    tmp_path: Path, option: str, step: int | None, expected: str
) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    assert across_ranks_string(tmp_path, option=option, step=step, world_size=2) == expected


def test_a_timer_whose_name_has_a_space_is_reported_under_the_name_it_is_asked_for_by(tmp_path: Path) -> None:
    values = {"data_loader-time": 0.02, "data_loader-time/count": 1.0, "data_loader-time/min": 0.02}
    row = {"seq": 5, "step": 5, "axis": "step", "values": values}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")

    text = across_ranks_string(tmp_path, ["data loader"], option="max")

    assert text == f"max time across ranks (ms):\n    {'data loader '.ljust(48, '.')}: 20.00"


@pytest.mark.parametrize(
    ("first", "second", "note"), [(3, 3, ""), (3, 1, ", 1 to 3 of 3 ranks"), (2, 2, ", 2 of 3 ranks")]
)
def test_the_title_says_of_how_many_ranks_each_timer_is(tmp_path: Path, first: int, second: int, note: str) -> None:
    values = {"f-time": 0.02, "f-time/count": first, "embedding-time": 0.02, "embedding-time/count": second}
    row = {"seq": 5, "step": 5, "axis": "step", "values": values}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")

    text = across_ranks_string(tmp_path, option="max", world_size=3)

    assert str(text).splitlines()[0] == f"max time across ranks (ms){note}:"


def test_a_run_that_has_no_file_yet_has_no_report(tmp_path: Path) -> None:
    assert across_ranks_string(tmp_path) is None


def test_a_timer_that_is_named_twice_is_in_the_report_once_with_its_time() -> None:
    timers = Timers(2, "max")
    ran(timers, "optimizer", 0.5)

    text = timers.get_all_timers_string(["optimizer", "optimizer"])

    assert text is not None
    assert text.count("optimizer") == 1
    assert text.endswith(": 500.00")
