"""After the end of a run `otel-ml runs` and `otel-ml show` say how far each backend is, and what it lacks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run
from tests.plugin_package import install
from tests.ports import free_port
from tests.waiting import eventually

MODULE = """
from pathlib import Path
from otel_ml_exporters import Exporter, PermanentExportError, RetryableExportError, StepRecord

class Store(Exporter):
    "Away until it is told what to answer; then it takes everything, or no row with a step."

    max_batch = 1

    def start(self, run):
        self._answer = run.dir.parents[2] / "answer"

    def position(self):
        return None

    def export(self, records):
        if not self._answer.exists():
            raise RetryableExportError("The store is being moved.")
        if self._answer.read_text() == "refuse" and any("loss" in getattr(one, "values", ()) for one in records):
            raise PermanentExportError("the store is read-only")

    def shutdown(self, timeout, status):
        pass
"""

JOB = """
    import otel_ml
    with otel_ml.init("digits", id="one", exporters="jsonl,store"):
        for step in range(3):
            otel_ml.log({"loss": 1.0}, step=step)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a job that is over when its store still is away."""
    package = install(tmp_path / "site", {"acme_store": MODULE}, "store = acme_store:Store")
    found = environment(tmp_path, {"OTEL_ML_EXIT_WAIT": "0", "COLUMNS": "80"})
    return {**found, "PYTHONPATH": os.pathsep.join([str(package), found["PYTHONPATH"]])}


def otel_ml_command(*arguments: str, env: dict[str, str], cwd: Path) -> str:
    command = [sys.executable, "-m", "otel_ml_service", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=True).stdout


def row_of(environ: dict[str, str], folder: Path) -> dict[str, object]:
    listed = otel_ml_command("runs", "--json", env=environ, cwd=folder)
    found: dict[str, object] = json.loads(listed) if listed else {"status": "", "delivering": []}
    return found  # nothing, before the service has made the folder


def test_what_a_backend_lost_after_the_end_is_said_by_show_and_runs_and_before_that_it_is_on_its_way(
    environ: dict[str, str], tmp_path: Path
) -> None:
    def asked(*arguments: str) -> str:
        return otel_ml_command(*arguments, env=environ, cwd=tmp_path)

    def row() -> dict[str, object]:
        return row_of(environ, tmp_path)

    run(JOB, environ, tmp_path)
    eventually(lambda: row()["status"] == "finished" and row()["delivering"] == ["store"])
    listed, shown = asked("runs"), asked("show", "one")

    (tmp_path / "answer").write_text("refuse")
    eventually(lambda: row()["not_taken"] and not row()["delivering"])
    listed_while_open, shown_while_open = asked("runs"), asked("show", "one")
    eventually(lambda: not (tmp_path / "runs/digits/one/state/open").exists(), timeout=90)
    listed_at_last, shown_at_last = asked("runs"), asked("show", "one")

    assert "finished, on its way to store" in listed
    [jsonl, store] = [line for line in shown.splitlines() if line.startswith(("jsonl", "store"))]
    assert jsonl.split()[0:2] == ["jsonl", "delivered"]
    assert "on their way (The store is being moved.)" in store
    for text in (listed_while_open, listed_at_last):
        assert "finished, 3 values not in store" in text
    for text in (shown_while_open, shown_at_last):
        [store] = [line for line in text.splitlines() if line.startswith("store")]
        assert store.endswith("delivered, but for 3 values: the store is read-only (3)")


@pytest.mark.parametrize("is_reached", [True, False], ids=["of the same user", "of a container"])
def test_another_terminal_than_the_jobs_names_the_backend_that_a_run_is_on_its_way_to(
    environ: dict[str, str], tmp_path: Path, is_reached: bool
) -> None:
    (tmp_path / "elsewhere").mkdir()
    there = {**environ, "XDG_RUNTIME_DIR": str(tmp_path / "elsewhere")}
    run(JOB, environ, tmp_path)
    eventually(lambda: row_of(there, tmp_path)["status"] in {"finished", "ended"})

    if not is_reached:
        (tmp_path / "runs/digits/one/state/rendezvous").unlink()
    row = row_of(there, tmp_path)
    listed, shown = (otel_ml_command(*command, env=there, cwd=tmp_path) for command in (["runs"], ["show", "one"]))
    (tmp_path / "answer").write_text("take")
    eventually(lambda: not (tmp_path / "runs/digits/one/state/open").exists(), timeout=90)

    assert row["delivering"] == ["store"]
    assert "finished, on its way to store" in listed
    assert re.search(r"^jsonl +delivered$", shown, re.MULTILINE)
    assert re.search(r"^store +0 of \d+ records delivered, \d+ on their way \(The store", shown, re.MULTILINE)
    assert row_of(there, tmp_path)["delivering"] == row_of(there, tmp_path)["lacking"] == []
    assert not (tmp_path / "runs/digits/one/state/delivery.json").exists()


def test_a_run_whose_service_says_nothing_here_is_not_called_finished(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    there = {**environ, "XDG_RUNTIME_DIR": str(tmp_path / "elsewhere")}
    run(JOB, environ, tmp_path)
    eventually(lambda: row_of(there, tmp_path)["delivering"])
    state = tmp_path / "runs/digits/one/state"
    (state / "delivery.json.new").mkdir()  # it cannot write one anymore, as on a full disk, or an older one
    (state / "delivery.json").unlink()
    (state / "rendezvous").unlink()  # as in another container, or for another user

    row = row_of(there, tmp_path)
    listed, shown = (otel_ml_command(*command, env=there, cwd=tmp_path) for command in (["runs"], ["show", "one"]))
    (tmp_path / "answer").write_text("take")
    eventually(lambda: row_of(there, tmp_path)["status"] == "finished", timeout=90)

    assert row["status"] == "ended"
    for text in (listed, shown):
        assert "a service has it open, and does not say here how far delivery is" in text
        assert "finished" not in text


def test_a_run_that_serve_has_open_is_not_finished_before_its_backend_has_it(
    environ: dict[str, str], tmp_path: Path
) -> None:
    port = free_port()
    command = ["serve", "--to", "jsonl,store", "--http", f"127.0.0.1:{port}", "--grpc", "127.0.0.1:0"]
    serve = subprocess.Popen([sys.executable, "-m", "otel_ml_service", *command], env=environ, cwd=tmp_path)
    try:
        remote = {**environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_ML_EXIT_WAIT": "5"}
        run(JOB.replace('exporters="jsonl,store"', ""), remote, tmp_path)
        eventually(lambda: row_of(environ, tmp_path)["status"] in {"finished", "ended"})
        while_away = row_of(environ, tmp_path)
        (tmp_path / "answer").write_text("take")
        eventually(lambda: not row_of(environ, tmp_path)["delivering"])
        at_last = row_of(environ, tmp_path)
    finally:
        serve.terminate()
        serve.wait(timeout=60)

    assert (while_away["status"], while_away["delivering"]) == ("finished", ["store"])
    assert (at_last["status"], at_last["delivery_known"], at_last["lacking"]) == ("finished", True, [])
