"""The step at which a run goes on is the one after its own last, whatever was written since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_ml.compat.wandb.resuming import next_step


def _written(folder: Path, *rows: dict[str, Any]) -> Path:
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def _of_step(step: int) -> dict[str, Any]:
    return {"axis": "step", "step": step, "values": {"loss": 1.0}}


HOURS_OF_WINDOWS = [{"axis": "time", "step": number, "values": {"hw.gpu.utilization": 0.5}} for number in range(20_000)]
A_LONG_TEXT = [{"type": "event", "name": "note", "body": "a" * 2**21}]


@pytest.mark.parametrize("since", [HOURS_OF_WINDOWS, A_LONG_TEXT], ids=["windows", "text"])
def test_a_run_goes_on_after_its_last_step_however_much_was_written_since(tmp_path: Path, since: list[Any]) -> None:
    assert next_step(_written(tmp_path, *map(_of_step, range(8)), *since)) == 8


def test_a_correction_behind_the_last_step_moves_nothing(tmp_path: Path) -> None:
    assert next_step(_written(tmp_path, *map(_of_step, (6, 7, 3)))) == 8


def test_a_run_without_a_step_begins_at_0(tmp_path: Path) -> None:
    assert next_step(_written(tmp_path, *A_LONG_TEXT)) == 0
