"""`--json` of commands that show something: what programs read, with numbers that JSON has."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters.records import Params, RunStatus, StepRecord, Summary
from otel_ml_service.cli.mcp_tools import RunTools
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import Run


def a_run(folder: Path) -> None:
    values = [{"loss": 2.0, "time/step": 0.1}, {"loss": 1.0}, {"loss": math.nan}]
    steps = [StepRecord(seq, "trainer", "step", seq, 0, float(seq), row) for seq, row in enumerate(values, 1)]
    rest = [Params(4, 4.0, {"lr": 0.1}), Summary(5, 5.0, {"best": math.inf}), RunStatus(6, 6.0, "finished")]
    write_run(folder, "01abc", [*steps, *rest])


def test_show_says_what_a_run_is_and_what_each_metric_has(otel_ml: Run, tmp_path: Path) -> None:
    a_run(tmp_path)

    status, out, _ = otel_ml("show", "01abc", "--json")

    shown = json.loads(out)
    metrics = {metric["name"]: metric for metric in shown["metrics"]}
    assert status == 0
    assert (shown["id"], shown["status"], shown["steps"]) == ("01abc", "finished", 3)
    assert (shown["params"], shown["summary"]) == ({"lr": 0.1}, {"best": "inf"})
    assert metrics["loss"] == {
        "axis": "step", "name": "loss", "steps": 3, "last": "nan", "min": 1.0, "max": 2.0, "own": False
    }  # fmt: skip


def test_show_of_metrics_has_their_values(otel_ml: Run, tmp_path: Path) -> None:
    a_run(tmp_path)

    _, out, _ = otel_ml("show", "01abc", "loss", "--json")

    [loss] = json.loads(out)["metrics"]
    assert (loss["name"], loss["points"]) == ("loss", [[1, 2.0], [2, 1.0], [3, "nan"]])


def test_tail_has_an_object_for_every_step_and_the_status(otel_ml: Run, tmp_path: Path) -> None:
    a_run(tmp_path)

    _, out, _ = otel_ml("tail", "01abc", "loss", "--json", "--lines", "2")

    lines = [json.loads(line) for line in out.splitlines()]
    step = {"axis": "step", "step": 3, "amendment": False, "writers_missing": 0, "values": {"loss": "nan"}}
    assert lines == [step, {"status": "finished"}]


def test_top_has_the_state_of_the_run_with_numbers_that_json_has(otel_ml: Run, tmp_path: Path) -> None:
    a_run(tmp_path)

    status, out, _ = otel_ml("top", "01abc", "--json")

    [shown] = map(json.loads, out.splitlines())
    assert status == 0
    assert (shown["id"], shown["experiment"], shown["status"]) == ("01abc", "digits", "finished")
    assert (shown["role"], shown["axis"], shown["step"]) == ("trainer", "step", 3)
    assert (shown["values"], shown["seconds_left"], shown["finding"]) == ({"loss": "nan", "time/step": 0.1}, None, None)


def test_top_of_a_run_without_a_step_has_null_for_what_is_not_known(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", [RunStatus(1, 1.0, "running")])

    _, out, _ = otel_ml("top", "01abc", "--json")

    shown = json.loads(out)
    assert [shown[name] for name in ("axis", "step", "fraction")] == [None, None, None]


def test_what_writes_files_says_where(otel_ml: Run, tmp_path: Path) -> None:
    new, files = tmp_path / "new", tmp_path / "files"

    _, project, _ = otel_ml("new-exporter", "click-house", "--out", str(new), "--json")
    _, folders, _ = otel_ml("deployment-files", str(files), "--json")

    exporter = new / "otel_ml_click_house" / "exporter.py"
    assert json.loads(project) == {"name": "click-house", "dir": str(new), "exporter": str(exporter)}
    assert exporter.is_file()
    assert [Path(folder).is_dir() for folder in json.loads(folders)["dirs"]] == [True, True, True]


def test_a_run_that_no_exporter_has_gets_no_report_attached_and_that_is_an_error(
    otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path)
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "none")

    status, out, said = otel_ml("report", "01abc", "--attach", "--json")

    assert (status, out) == (1, "")
    assert "Run '01abc' has no exporter that could take the report" in said


def test_env_has_an_object_for_every_setting_and_no_secret(otel_ml: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_TOKEN", "a-secret-of-some-length")
    monkeypatch.setenv("OTEL_ML_RANK", "3")

    status, out, _ = otel_ml("env", "--json")

    found = {row["name"]: row for row in map(json.loads, out.splitlines())}
    assert status == 0
    assert found["OTEL_ML_RANK"] == {"name": "OTEL_ML_RANK", "value": "3", "from": "environment"}
    assert found["OTEL_EXPORTER_OTLP_PROTOCOL"]["from"] == "default"
    assert "a-secret" not in out


def test_why_has_numbers_that_json_has(otel_ml: Run, tmp_path: Path) -> None:
    tasks = {"reward/environment/math": math.inf, "reward/environment/code": 0.5}
    write_run(
        tmp_path, "01abc",
        [StepRecord(n, "trainer", "step", n, 0, float(n), {"reward": 0.5, **tasks}) for n in range(1, 21)],
    )  # fmt: skip

    status, out, _ = otel_ml("why", "01abc", "--metric", "reward", "--json")
    told = RunTools(tmp_path).why("01abc", metric="reward")

    levels = {level["name"]: level["after"] for level in _strict(out)["levels"]}
    assert (status, levels) == (0, {"code": 0.5, "math": "inf"})
    assert _strict(json.dumps(told)) == _strict(out)


def _strict(text: str) -> Any:
    """Read JSON as programs do that are not Python: it has no NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
