"""Exporters that say how far they are are killed in the middle of an export, and store nothing twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.contract.cases import Case, case
from tests.contract.stored import RUN_ID, environment, read
from tests.contract.test_exporter_contract import as_text, points, rows

IN_THE_MIDDLE = """
import sys
from pathlib import Path
from otel_ml_exporters.contract.interrupted import live_and_die
from tests.contract.cases import case
from tests.contract.stream import run_info

live_and_die(case(sys.argv[1]).exporter, run_info(Path(sys.argv[2]), sys.argv[3]))
"""


@pytest.mark.parametrize(
    "name",  # W&B and Trackio have threads once they are imported, and cannot be forked
    [
        "jsonl",
        "tensorboard",
        *[pytest.param(name, marks=pytest.mark.full) for name in ("mlflow", "parquet", "swanlab")],
    ],
)
@pytest.mark.timeout(280)
def test_a_kill_in_the_middle_of_an_export_stores_nothing_twice(name: str, tmp_path: Path) -> None:
    one: Case = case(name)
    run_dir = tmp_path / "runs" / "default" / RUN_ID
    run_dir.mkdir(parents=True)
    command = [sys.executable, "-c", IN_THE_MIDDLE, name, str(run_dir), RUN_ID]
    last = int(subprocess.run(command, stdout=subprocess.PIPE, env=environment(), check=True, timeout=250).stdout)

    stored = read(one, run_dir, RUN_ID)

    assert Counter(as_text(stored.scalars)) == Counter(points(one, rows(1, last)))
