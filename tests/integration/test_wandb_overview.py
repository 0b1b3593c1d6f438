"""Config and summary of a run on W&B's page, as its own files say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from wandb.proto import wandb_internal_pb2

from otel_ml_exporters.backends.wandb.transaction_log import records
from tests.integration.worker_process import environment, run
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # each starts processes of W&B's own

SCRIPT = """
    with wandb.init(project="overview", mode="offline", config={"lr": 0.1, "opt": {"name": "adam"}}) as run:
        run.define_metric("val/acc", step_metric="epoch")
        run.log({"epoch": 0, "val/acc": 0.5})
        run.summary["best"] = 0.9
        run.summary["note"] = "hi"
        run.summary.update({"shape": [3, 4], "missing": None})
        run.config.update({"late": True})
"""


def sent(folder: Path) -> list[wandb_internal_pb2.Record]:
    return [
        wandb_internal_pb2.Record.FromString(content)
        for path in folder.glob("**/offline-run-*/*.wandb")
        for _, content in records(path)
    ]


def known(items: Iterable[Any]) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def overview(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (config, summary) without what each side says of itself."""
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    for record in sent(folder):
        config |= known([*record.run.config.update, *record.config.update])
        summary |= known(record.summary.update)
    return of_the_script(config), of_the_script(summary)


def of_the_script(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if not name.startswith(("otel_ml", "_"))}


def test_what_a_script_says_of_its_run_is_on_its_page_where_wandbs_own_client_puts_it(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, imported in ((ours, "from otel_ml.compat import wandb"), (theirs, "import wandb")):
        folder.mkdir()
        script = f"    {imported}\n{SCRIPT}"
        run(script, environment(folder, {"OTEL_ML_EXPORTERS": "jsonl,wandb"}), folder)
    eventually(lambda: any(record.HasField("exit") for record in sent(ours)), timeout=120)

    (config, summary), (their_config, their_summary) = overview(ours), overview(theirs)
    assert summary == their_summary
    assert config == {**their_config, "summary": {"note": "hi", "shape": [3, 4], "missing": None}}
    assert "otel_ml.step_metrics" not in [
        item.key for record in sent(ours) for item in (*record.config.update, *record.run.config.update)
    ]
