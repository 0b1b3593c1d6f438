"""At which moments of an `export()` the contract kills an exporter, and what such a life leaves."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from otel_ml_exporters.contract.case import CANNOT_BE_FORKED
from otel_ml_exporters.contract.interrupted import _Calls, _life, _moments, _position, live_and_die
from otel_ml_exporters.contract.stream import points, rows, run_in
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import RunInfo
from tests.contract.lines import AnotherPosition, Lines, points_of


@pytest.mark.parametrize(
    ("calls", "moments"),
    [
        (1, [1]),
        (5, [1, 2, 3, 4, 5]),
        (12, list(range(1, 13))),
        (50, [1, 11, 21, 31, *range(40, 51)]),
        (100, [1, 23, 45, 67, 89, *range(90, 101)]),
    ],
)
def test_it_is_killed_at_some_calls_of_all_and_at_each_of_the_last_ten(calls: int, moments: list[int]) -> None:
    assert sorted(set(_moments(calls))) == moments


def test_calls_into_c_are_counted_and_no_others() -> None:
    calls = _Calls(0)
    for event in ("call", "c_call", "c_return", "return", "c_exception"):
        calls(None, event, None)  # type: ignore[arg-type]

    assert calls.count == 3


def test_an_exporter_without_a_position_has_one_life_and_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live_and_die(Lines, run_in(tmp_path))

    assert capsys.readouterr().out == ""


class Forgetful(AnotherPosition):
    """Says always that row 19 is its last."""


class Failing(AnotherPosition):
    """Cannot export."""

    def export(self, records: object) -> None:
        raise OSError("no such host")


def test_a_life_counts_the_calls_of_its_export_and_one_that_is_killed_has_none(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    calls = _life(Forgetful, run, 0)

    assert calls is not None
    assert calls > 40  # two values a row
    assert _life(Forgetful, run, 1) == 0
    assert _life(Forgetful, run, calls) == 0
    assert _life(Forgetful, run, calls + 1) == calls
    assert _life(Lines, run, 0) is None
    assert _position(Forgetful, run) == 19
    lines = (run.dir / "lines.jsonl").read_text().splitlines()
    assert lines[0].startswith('["loss", "step", 20,')
    assert lines[39].startswith('["time/step", "step", 39,')


class Hanging(AnotherPosition):
    """Does not come back from its export, as a library whose threads a fork has not."""

    def export(self, records: object) -> None:
        signal.pause()


def test_a_life_without_an_end_cannot_be_forked(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        _life(Hanging, run_in(tmp_path), 0, timeout_s=0.01)


def test_an_export_that_fails_without_being_killed_ends_the_lives(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not killed has not returned"):
        live_and_die(Failing, run_in(tmp_path))


def test_the_last_of_all_lives_says_up_to_where_it_has_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make() -> Exporter:
        return Forgetful()

    live_and_die(make, run_in(tmp_path))

    assert capsys.readouterr().out == "19\n"


class Counting(Lines):
    """Says up to which row it has stored."""

    def start(self, run: RunInfo) -> None:
        super().start(run)
        self.run = run

    def position(self) -> int | None:
        return max((step for _, _, step, _ in points_of(self.run)), default=0)


def test_the_first_and_the_last_life_store_all_and_those_between_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live_and_die(Counting, run_in(tmp_path))

    assert capsys.readouterr().out == "40\n"
    assert list(points_of(run_in(tmp_path))) == points(rows(1, 40), float)


def test_a_process_says_by_its_status_that_its_library_cannot_be_forked() -> None:
    assert CANNOT_BE_FORKED == 3
