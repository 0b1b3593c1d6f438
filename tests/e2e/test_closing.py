"""When a step closes, seen from outside: real processes, a real service, what was written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.jobs import all_finished, environment, processes, the_run_in
from tests.e2e.straggler import LATE_AT, LATE_S, STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.feature("F20", "better", "as soon as all ranks are done with a step")
def test_a_step_closes_when_every_rank_is_done_with_it_not_when_a_timer_fires(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.e2e.straggler", tmp_path]
    commands = [
        (command, environment(OTEL_ML_EXPERIMENT_ID="straggler", RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=3))
        for rank in range(3)
    ]

    with processes(commands, tmp_path) as started:
        all_finished(started)

    rows = rows_of(the_run_in(tmp_path / "otel-ml-runs"))
    assert [(row["step"], row["values"]["ranks"]) for row in rows] == [(step, 3.0) for step in range(STEPS)]
    assert not [row for row in rows if row.get("amendment") or row.get("writers_missing")]
    assert rows[LATE_AT]["time"] - rows[LATE_AT - 1]["time"] > LATE_S * 0.9


def rows_of(run: Path) -> list[dict[str, object]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "ranks" in line.get("values", {})]
