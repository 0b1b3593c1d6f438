"""What a replay hands to exporters, and what it says of those that do not take it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from otel_ml_exporters.contract.stream import points, rows, run_in
from otel_ml_exporters.records import Params
from otel_ml_service.stored_runs.replay import Replayed, ReplayError, _Recorded, replay, run_info
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.contract.lines import Lines, NotStarting, Refusing, points_of
from tests.recorded_run import digits_records, write_run


def nothing(delivered: Mapping[str, int]) -> None:
    """Show no progress."""


def test_every_record_is_delivered_and_how_far_that_is_is_told(tmp_path: Path) -> None:
    seen: list[Mapping[str, int]] = []

    found = replay(rows(1, 600), run_in(tmp_path), {"lines": Lines}, timeout=60.0, progress=seen.append)

    assert found == [Replayed("lines", None, {})]
    assert list(points_of(run_in(tmp_path))) == points(rows(1, 600), float)
    assert seen == sorted(seen, key=lambda one: one["lines"])
    assert all(before != after for before, after in pairwise(seen))


def test_what_an_exporter_refuses_is_lost_and_counted(tmp_path: Path) -> None:
    [found] = replay(rows(1, 30), run_in(tmp_path), {"lines": Refusing}, timeout=60.0, progress=nothing)

    assert found.name == "lines"
    assert sum(found.lost.values()) > 0


def test_an_exporter_that_cannot_start_is_given_up_and_told_once(tmp_path: Path) -> None:
    failing: list[str] = []

    with pytest.raises(ReplayError) as error:
        replay(
            rows(1, 3), run_in(tmp_path), {"lines": NotStarting},
            timeout=0.3, progress=nothing, failing=failing.append,
        )  # fmt: skip

    assert str(error.value).startswith("Exporter 'lines': ")
    assert "no such host" in str(error.value)
    assert "Put it right and replay again: nothing is doubled." in str(error.value)
    assert failing in ([], ["lines"])


def test_records_are_found_by_their_seq_though_the_first_are_gone() -> None:
    source = _Recorded(rows(5, 9))

    assert (source.first_seq, source.last_seq) == (5, 9)
    assert [record.seq for record in source.read(0, 2)] == [5, 6]
    assert [record.seq for record in source.read(6, 9)] == [7, 8, 9]
    assert source.read(9, 9) == []
    assert (_Recorded([]).first_seq, _Recorded([]).last_seq) == (1, 0)


def test_exporters_are_started_for_the_run_as_its_folder_tells(tmp_path: Path) -> None:
    records = digits_records(steps=2)
    stored = write_run(tmp_path, "01abc", records)
    alone = RunFolder(tmp_path / "digits" / "02abc")
    alone.path.mkdir()

    known, of_folder = run_info(stored, records), run_info(alone, [Params(1, 7.0, {}), *rows(3, 4)])

    assert (known.id, known.experiment, known.name, known.dir) == ("01abc", "digits", stored.name, stored.path)
    assert known.started_at == 1000.0
    assert (of_folder.id, of_folder.experiment, of_folder.dir) == ("02abc", "digits", alone.path)
    assert of_folder.started_at == 1_700_000_003.0
