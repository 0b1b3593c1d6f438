"""`otel-ml recover` of runs of `otel-ml serve`, of runs that hold nothing, and with exporters told by variables."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import Service
from otel_ml_service.storage.journal import Journal
from tests.integration.conftest import Sender
from tests.integration.recovering import KILLED, kill_with_its_service, otel_ml_command, serving, written
from tests.integration.worker_process import environment, run, start
from tests.otlp import FakeWriter
from tests.otlp_server import eventually
from tests.ports import free_port

pytestmark = pytest.mark.long


def test_a_run_of_serve_is_left_to_serve_and_what_its_workers_left_is_sent_there(tmp_path: Path) -> None:
    port = free_port()
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1000"})
    there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    state = tmp_path / "runs" / "exp" / "one" / "state"
    with serving(here, port) as service:
        process = start(KILLED, there, tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline() == "delivered\n"
        eventually((state / "run.db").exists)  # it has been taken from the journal
        service.kill()
        service.wait()
    process.communicate("go\n", timeout=30)

    without_endpoint = otel_ml_command(here, "recover", "--timeout", "10")
    while_down = otel_ml_command(there, "recover", "--timeout", "2")
    with serving(here, port):
        while_up = otel_ml_command(there, "recover", "--timeout", "20")
        eventually(lambda: "after" in written(tmp_path))

    assert (without_endpoint.returncode, while_down.returncode) == (1, 1), without_endpoint.stdout + while_down.stdout
    assert "Set OTEL_EXPORTER_OTLP_ENDPOINT as it was for the job" in without_endpoint.stdout
    assert "does not take it; run it again once it does" in while_down.stdout
    assert not (state / "journal.db").exists()  # no other service has touched the run
    assert while_up.returncode == 0, while_up.stdout + while_up.stderr
    assert "1 spool sent to" in while_up.stdout


def test_of_a_run_of_serve_that_was_killed_recover_says_what_to_do(tmp_path: Path) -> None:
    port = free_port()
    here = environment(tmp_path)
    there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    with serving(here, port) as service, closing(Sender(port)) as sender:
        run('import otel_ml\nwith otel_ml.init("exp", id="one"):\n    otel_ml.log({"x": 1.0}, step=0)', there, tmp_path)
        eventually(lambda: (found := sender.run("one")) and found["status"] == "finished")
        service.kill()
        service.wait()
    (tmp_path / "runs" / "exp" / "one" / "state" / "open").write_text("one")  # as if it had not been over yet

    done = otel_ml_command(here, "recover")

    assert done.returncode == 1
    assert f"Start it again as before: otel-ml serve --dir {tmp_path / 'runs'}" in done.stdout
    assert "in no run yet" not in done.stdout  # it has all of what was acknowledged


def test_recover_says_that_a_killed_serve_acknowledged_what_is_in_no_run_yet(tmp_path: Path) -> None:
    here = environment(tmp_path)
    with serving(here, free_port()) as service:
        service.kill()
        service.wait()
    journal: Journal[None] = Journal(tmp_path / "runs" / ".service" / "journal.db", lambda entries: None)
    journal.start()
    for step in range(3):  # killed before it had made the run's folder
        body = FakeWriter(experiment="one").step(step, {"loss": 1.0}).SerializeToString()
        journal.append("metrics", body, None, lambda done: None)
    journal.close()

    killed = otel_ml_command(here, "recover")
    with serving(here, free_port()):
        served = otel_ml_command(here, "recover")
    (tmp_path / "runs" / "default" / "one" / "state" / "open").unlink()
    over = otel_ml_command(here, "recover")

    assert killed.returncode == 1
    assert "`otel-ml serve` acknowledged 3 requests that are in no run yet" in killed.stdout
    assert f"otel-ml serve --dir {tmp_path / 'runs'}" in killed.stdout
    assert "Nothing to recover" in served.stdout  # it is alive
    assert "Nothing to recover" in over.stdout


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def without_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (x)")
        connection.execute("DROP TABLE other")


def no_database(path: Path) -> None:
    path.write_bytes(os.urandom(20_000))


@pytest.mark.parametrize("damage", [emptied, without_tables, no_database])
def test_a_run_that_holds_nothing_is_done_at_once(tmp_path: Path, damage: object) -> None:
    environ = environment(tmp_path)
    state = tmp_path / "runs" / "exp" / "one" / "state"
    state.mkdir(parents=True)
    damage(state / "run.db")  # type: ignore[operator]
    (state / "open").write_text("one")

    done = otel_ml_command(environ, "recover", "--timeout", "20")
    again = otel_ml_command(environ, "recover")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was left of it" in done.stdout
    assert "Nothing to recover" in again.stdout


def test_of_a_database_that_cannot_be_read_recover_says_where_it_is_kept(tmp_path: Path) -> None:
    state = tmp_path / "runs" / "exp" / "one" / "state"
    state.mkdir(parents=True)
    no_database(state / "run.db")
    (state / "run.db-wal").write_bytes(b"torn" * 1000)
    (state / "open").write_text("one")

    done = otel_ml_command(environment(tmp_path), "recover", "--timeout", "20")

    assert "run.db was damaged: 0 records could be read" in done.stdout
    assert str(state / "run.db.damaged-1") in done.stdout


def test_a_run_is_finished_where_its_exporters_were_told_to_write(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    told = {
        "OTEL_ML_EXPORTERS": "jsonl,mlflow",
        "MLFLOW_TRACKING_URI": store,
        "MLFLOW_TRACKING_PASSWORD": "kept out",
        "OTEL_ML_END_SILENCE": "1000",
        "OTEL_ML_FLUSH_INTERVAL": "60000",  # else it may miss its service before it is killed, and start another one
    }
    kill_with_its_service(tmp_path, told)

    done = otel_ml_command(environment(tmp_path), "recover", "--timeout", "60")

    assert done.returncode == 0, done.stdout + done.stderr
    with sqlite3.connect(tmp_path / "store.db") as database:
        kept = dict(database.execute("SELECT key, value FROM metrics WHERE key IN ('before', 'after')"))
    assert kept == {"before": 1.0, "after": 2.0}
    assert "kept out" not in (tmp_path / "runs" / "exp" / "one" / "state" / "served.json").read_text()


def test_a_backend_that_was_never_reached_is_named_until_it_has_everything(
    tmp_path: Path, mlflow_database: Path
) -> None:
    store = tmp_path / "server" / "store.db"
    store.parent.touch()  # a file where a folder has to be: the backend is down
    told = {
        "OTEL_ML_EXPORTERS": "jsonl,mlflow",
        "MLFLOW_TRACKING_URI": f"sqlite:///{store}",
        "OTEL_ML_END_SILENCE": "1000",
        "OTEL_ML_FLUSH_INTERVAL": "60000",
    }
    process = start(
        KILLED.replace("assert otel_ml.flush(20)", "otel_ml.flush(20)"), environment(tmp_path, told), tmp_path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "delivered\n"
    [announced] = tmp_path.glob("run/*/*/service.json")
    eventually(lambda: "before" in written(tmp_path))
    os.kill(Service.from_json(announced.read_text()).pid, signal.SIGKILL)
    process.communicate("go\n", timeout=30)

    listed = otel_ml_command(environment(tmp_path), "runs")
    while_down = otel_ml_command(environment(tmp_path), "recover", "--timeout", "12")
    shown = otel_ml_command(environment(tmp_path), "show", "one")
    store.parent.unlink()
    store.parent.mkdir()
    shutil.copy(mlflow_database, store)
    while_up = otel_ml_command(environment(tmp_path), "recover", "--timeout", "60")
    again = otel_ml_command(environment(tmp_path), "recover")

    assert re.search(r"not all in (jsonl, )?mlflow", listed.stdout), listed.stdout
    assert "otel-ml recover" in listed.stderr
    assert "not all of it is in mlflow: otel-ml recover one" in shown.stdout, shown.stdout
    assert while_down.returncode == 1, while_down.stdout + while_down.stderr
    assert "delivered to jsonl, 0 lost" in while_down.stdout
    assert "mlflow does not have all of it: " in while_down.stdout
    assert re.search(r"one: waits for mlflow, for at most (?:\d|1[0-2])(?:\.\d+)? s: mlflow: ", while_down.stderr), (
        while_down.stderr
    )
    assert (while_up.returncode, again.returncode) == (0, 0), while_up.stdout + while_up.stderr
    assert "2 values of the journal delivered to jsonl, mlflow, 0 lost" in while_up.stdout
    with closing(sqlite3.connect(store)) as database:
        kept = dict(database.execute("SELECT key, value FROM metrics WHERE key IN ('before', 'after')"))
    assert kept == {"before": 1.0, "after": 2.0}


def test_an_exporter_that_was_left_out_for_its_package_gets_the_run_once_that_is_there(tmp_path: Path) -> None:
    without = tmp_path / "without"
    without.mkdir()
    (without / "sitecustomize.py").write_text("import sys\nsys.modules['pyarrow'] = None\n")
    told = environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl,parquet"})
    path = os.pathsep.join([str(without), told.get("PYTHONPATH", "")])

    _, said = run('import otel_ml\nwith otel_ml.init("exp", id="one"):\n    otel_ml.log({"x": 1.0}, step=0)',
                  {**told, "PYTHONPATH": path}, tmp_path)  # fmt: skip
    state = tmp_path / "runs" / "exp" / "one" / "state"
    eventually((state / "undelivered").exists)
    while_missing = otel_ml_command({**environment(tmp_path), "PYTHONPATH": path}, "recover", "--timeout", "20")
    done = otel_ml_command(environment(tmp_path), "recover", "--timeout", "60")
    again = otel_ml_command(environment(tmp_path), "recover")

    assert "not to parquet" in said
    assert while_missing.returncode == 1, while_missing.stdout + while_missing.stderr
    assert "parquet does not have all of it: " in while_missing.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "delivered to jsonl, parquet" in done.stdout
    assert list((state.parent / "parquet").rglob("*.parquet"))
    assert "Nothing to recover" in again.stdout
