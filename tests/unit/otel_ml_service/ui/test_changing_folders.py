"""Runs that come, go, end and are read again while somebody looks at their pages."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from otel_ml_exporters.records import Params, Record, RunStatus, StepRecord
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.ui import known_runs
from otel_ml_service.ui.followed_run import FollowedRun
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.report.job_of_roles import job_of_two_roles
from tests.unit.otel_ml_service.report.runs import records_of_everything
from tests.unit.otel_ml_service.ui.client import Client
from tests.unit.otel_ml_service.ui.growing import Growing, chart_of


def recorded(folder: Path, *names: str) -> Path:
    rows = [StepRecord(n + 1, "trainer", "step", n, 0, 1000.0 + n, {name: 1.0}) for n, name in enumerate(names)]
    return write_run(folder, "run-1", [*rows, RunStatus(len(rows) + 1, 2000.0, "finished")]).path


def test_a_finished_run_that_went_on_while_nobody_asked_is_read_again(client: Client, tmp_path: Path) -> None:
    run = recorded(tmp_path, "of_before")
    before = client.get("run/digits/run-1/").body
    longer = recorded(tmp_path / "elsewhere", "of_before", "of_the_restart")

    for file in ("metrics.jsonl", "state/run.db"):
        (longer / file).replace(run / file)
        os.utime(run / file, (time.time() + 10, time.time() + 10))
    after = client.get("run/digits/run-1/").body

    assert "<b>of_the_restart</b>" not in before
    assert "<b>of_the_restart</b>" in after


def test_a_run_that_cannot_be_read_says_so_each_time(client: Client, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    run.step(0, loss=1.0)
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write("no JSON\n")

    said = [client.get("run/growing/run-1/") for _ in range(3)]

    assert [one.status for one in said] == [500, 500, 500]
    assert all("is not a row of the exporter jsonl" in one.body for one in said)


def test_a_run_that_could_not_be_read_is_whole_when_it_can(client: Client, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    run.step(0, of_before=1.0)
    file = run.folder / "metrics.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b"no JSON\n")
    client.get("run/growing/run-1/")

    file.write_bytes(whole)
    run.step(1, loss=1.0)
    shown = client.get("run/growing/run-1/")

    assert shown.status == 200
    assert "<b>of_before</b>" in shown.body
    assert "<b>loss</b>" in shown.body


def test_a_run_that_was_deleted_while_its_page_was_open_is_not_found(client: Client, tmp_path: Path) -> None:
    finished = write_run(tmp_path, "run-1", records_of_everything())
    growing = Growing(tmp_path)
    growing.step(0, loss=1.0)
    open_pages = ("run/digits/run-1/", "run/growing/run-1/")
    before = [client.get(page).status for page in open_pages]

    for folder in (finished.path, growing.folder):
        shutil.rmtree(folder)

    assert before == [200, 200]
    assert [client.get(page).status for page in open_pages] == [404, 404]
    assert [client.get(f"{page}news").status for page in open_pages] == [404, 404]


def test_a_page_of_a_run_that_was_put_away_meanwhile_gets_what_is_new(tmp_path: Path) -> None:
    """Of many runs only some are kept: the page of another one asks somebody who has read the run anew."""
    run = Growing(tmp_path)
    run.step(0, loss=1.0)
    with FollowedRun(RunFolder(run.folder)).held() as held:
        version = held.version.rstrip(".")

    run.step(1, loss=0.5)
    news = FollowedRun(RunFolder(run.folder)).news(version, frozenset(), [])

    assert news is not None


def test_a_run_in_a_folder_with_an_odd_name_is_found_by_its_row(client: Client, tmp_path: Path) -> None:
    for name in ("👩\u200d🔬 lab", "a\u202eb", "50%/".rstrip("/"), "a#b?c", "caf\udce9"):
        Growing(tmp_path, experiment=name).step(0, loss=1.0)

    rows = client.rows()

    assert len(rows) == 5
    assert [client.run(row["name"]).status for row in rows] == [200] * 5


def test_a_step_of_thousands_of_ranks_has_them_all_although_not_all_newest_spans_are_held(
    client: Client, tmp_path: Path
) -> None:
    run = Growing(tmp_path)
    for step in range(3):
        run.step(step, loss=1.0)
        run.spans(step, ranks=4096, slow=7)  # 8,192 spans: of the first step a half is held
    client.get("run/growing/run-1/")

    for step in range(3):
        view = client.get(f"run/growing/run-1/step?role=trainer&axis=step&step={step}").json
        assert "4,048 ranks are not drawn." in view["said"]


def test_a_point_of_a_curve_is_of_the_role_that_recorded_it(client: Client, tmp_path: Path) -> None:
    write_run(tmp_path, "roles", job_of_two_roles())

    wanted = {"generator/rollout/time/generate": "generator", "time/forward": "trainer"}
    charts = {chart_of(client, "digits/roles", name): role for name, role in wanted.items()}
    asked = ",".join(f"{chart}::" for chart in charts)
    told = client.get(f"run/digits/roles/news?charts={asked}").json["charts"]

    assert {key: chart["role"] for key, chart in told.items()} == charts


def test_a_step_of_a_curve_whose_role_nobody_knows_is_that_of_whoever_did_it(client: Client, tmp_path: Path) -> None:
    run = Growing(tmp_path)
    run.step(0, loss=1.0)
    run.spans(0, ranks=2, slow=1)

    assert client.get("run/growing/run-1/step?role=&axis=step&step=0").json["role"] == "trainer"
    assert client.get("run/growing/run-1/step?role=&axis=step&step=1").json == {"rows": []}


def test_a_parameter_in_the_list_says_that_it_was_cut(client: Client, tmp_path: Path) -> None:
    rows: list[Record] = [Params(1, 1.0, {"prompt": "x" * 61, "system": "y" * 60}), RunStatus(2, 2.0, "finished")]
    write_run(tmp_path, "run-1", rows)

    [row] = client.rows()

    assert row["params"] == {"prompt": "x" * 59 + "…", "system": "y" * 60}


def test_how_many_runs_are_too_old_for_the_list_is_told(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_runs, "_RUNS", 3)  # else 501 runs have to be read
    for number in range(5):
        Growing(tmp_path, run=f"run-{number}").step(0, loss=1.0)

    found = client.get("runs.json").json

    assert (len(found["runs"]), found["older"]) == (3, 2)
