"""One life of an exporter, as the contract begins it in a process of its own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from otel_ml_exporters.contract.stream import points, rows, run_in
from otel_ml_exporters.contract.writer import main
from tests.contract.lines import points_of


def life(exporter: str, folder: Path, last: int) -> int:
    with pytest.raises(SystemExit) as ended:
        main(f"tests.contract.lines:{exporter}", {}, folder, last)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_each_life_goes_on_behind_the_mark_of_the_last_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert life("Lines", tmp_path, 30) == 0
    first = [int(line) for line in capsys.readouterr().out.splitlines()]
    assert (tmp_path / "mark").read_text() == "30"
    assert life("Lines", tmp_path, 50) == 0
    second = [int(line) for line in capsys.readouterr().out.splitlines()]

    assert (first, first[-1]) == (sorted(first), 30)
    assert (second, second[-1]) == (sorted(second), 50)
    assert min(second) > 30
    assert (tmp_path / "mark").read_text() == "50"
    assert list(points_of(run_in(tmp_path))) == points(rows(1, 50), float)


def test_a_life_without_anything_to_deliver_is_over(tmp_path: Path) -> None:
    (tmp_path / "mark").write_text("30")

    assert life("Lines", tmp_path, 30) == 0


@pytest.mark.parametrize(("exporter", "why"), [("NotStarting", "no such host"), ("Refusing", "too many rows")])
def test_a_life_that_stores_not_all_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exporter: str, why: str
) -> None:
    began = time.monotonic()
    assert life(exporter, tmp_path, 30) == 1
    assert time.monotonic() - began < 15, "nobody mends it meanwhile"

    assert why in capsys.readouterr().err
