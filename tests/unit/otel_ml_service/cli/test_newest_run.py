"""Commands that are told no run mean the newest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_ml_service.cli import main
from tests.recorded_run import digits_records, write_run


@pytest.mark.parametrize(
    "arguments",
    [["show", "--json"], ["tail", "--no-follow"], ["why", "--json"], ["trace", "--json", "-o", "t"]],
)
def test_without_a_run_the_newest_one_is_meant(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for age, run_id in enumerate(("02new", "01old")):
        run = write_run(tmp_path, run_id, digits_records(steps=3 + age))
        for path in (run.jsonl, run.database):
            os.utime(path, (2e9 - age, 2e9 - age))

    named = main([arguments[0], "02new", *arguments[1:]]), capsys.readouterr().out
    unnamed = main(arguments), capsys.readouterr().out

    assert named[0] == unnamed[0]
    assert named[1] == unnamed[1]
    assert main([arguments[0], "01old", *arguments[1:]]) == named[0]
    assert capsys.readouterr().out != named[1]
