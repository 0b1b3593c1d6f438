"""A job that is over before its service has imported W&B."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run

PROGRAM = """
    import otel_ml
    with otel_ml.init("short") as run:
        otel_ml.log({"loss": 1.0}, step=0)
    print(run.id)
"""

pytestmark = pytest.mark.long


def test_without_a_key_it_is_told_how_the_offline_run_is_uploaded(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_ML_EXPORTERS": "wandb,jsonl", "HOME": str(tmp_path)})

    output, errors = run(PROGRAM, environ, tmp_path)

    [line] = [line for line in errors.splitlines() if "W&B" in line]
    assert f"wandb login; wandb sync {tmp_path}/runs/wandb/offline-run-*-{output.strip()} " in line
