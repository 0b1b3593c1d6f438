"""Runs of a W&B script that go on beside each other are in W&B each as itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from wandb.proto import wandb_internal_pb2

from otel_ml_exporters.backends.wandb.transaction_log import records
from tests.integration.worker_process import environment, run
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # it starts processes of W&B's own

BESIDE = """
    from otel_ml.compat import wandb
    first = wandb.init(project="p1", name="first", mode="offline", group="g1", job_type="j1")
    second = wandb.init(project="p2", name="second", mode="offline", group="g2", job_type="j2", reinit="create_new")
    third = wandb.init(project="p3", name="third", mode="offline", reinit="create_new")
    assert (third.group, third.job_type, third.project) == ("", "", "p3")
    for number, run in enumerate((first, second, third)):
        run.log({"x": number})
    third.finish()
    second.finish()
    first.finish()
"""


def begun(folder: Path) -> dict[str, tuple[str, str, str]]:
    """Return project, group and job type of the runs that have ended, by name."""
    found = {}
    for path in folder.glob("**/offline-run-*/*.wandb"):
        sent = [wandb_internal_pb2.Record.FromString(content) for _, content in records(path)]
        if any(record.HasField("exit") for record in sent):
            described = next(record.run for record in sent if record.HasField("run"))
            found[described.display_name] = (described.project, described.run_group, described.job_type)
    return found


def test_each_run_has_its_own_project_group_and_job_type_in_wandb(tmp_path: Path) -> None:
    without_exporters = {name: value for name, value in environment(tmp_path).items() if name != "OTEL_ML_EXPORTERS"}
    run(BESIDE, without_exporters, tmp_path)
    eventually(lambda: len(begun(tmp_path)) == 3, timeout=120)

    assert begun(tmp_path) == {
        "first": ("p1", "g1", "j1"),
        "second": ("p2", "g2", "j2"),
        "third": ("p3", "", ""),
    }
