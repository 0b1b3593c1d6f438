"""`otel-ml recover` of runs of `otel-ml serve`, of runs that hold nothing, and with exporters told by variables."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import otel_ml
from otel_ml.wire.rendezvous import Service
from otel_ml_service.storage.journal import Journal
from tests.integration.conftest import Sender
from tests.integration.worker_process import environment, run, start
from tests.otlp import FakeWriter
from tests.otlp_server import eventually, otlp_server
from tests.ports import free_port

pytestmark = pytest.mark.long

PROGRAM = [sys.executable, "-m", "otel_ml_service"]

KILLED = """
    import os, signal, time, otel_ml
    from pathlib import Path
    from otel_ml.wire.spool_format import read_spool

    def spooled(name):
        paths = Path(os.environ["XDG_RUNTIME_DIR"]).glob("*/*/spool/*.spool")
        return any(name in frame.payload for path in paths for frame in read_spool(path).frames)

    otel_ml.init("exp", id="one")
    otel_ml.log({"before": 1.0}, step=0)
    assert otel_ml.flush(20)
    print("delivered", flush=True)
    input()
    otel_ml.log({"after": 2.0}, step=1)
    while not spooled(b"after"):
        time.sleep(0.01)  # between two looks
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_with_its_service(folder: Path, told: dict[str, str]) -> None:
    """Kill the service of a job once it has the first step, and the job once it has spooled the second."""
    process = start(KILLED, environment(folder, told), folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "delivered\n"
    [announced] = folder.glob("run/*/*/service.json")
    os.kill(Service.from_json(announced.read_text()).pid, signal.SIGKILL)
    process.communicate("go\n", timeout=30)


def otel_ml_command(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], env=environ, capture_output=True, text=True, check=False, timeout=100)


def written(folder: Path) -> Mapping[str, object]:
    """Return what the run's file has by now."""
    run_folder = folder / "runs" / "exp" / "one"
    return otel_ml.read(run_folder) if (run_folder / "metrics.jsonl").exists() else {}


@contextmanager
def serving(environ: dict[str, str], port: int) -> Iterator[subprocess.Popen[str]]:
    command = [*PROGRAM, "serve", "--to", "jsonl", "--http", f"127.0.0.1:{port}", "--grpc", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any("OTLP/HTTP on" in line for line in process.stderr)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


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
    while_down = otel_ml_command(environment(tmp_path), "recover", "--timeout", "4")
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
    assert re.search(r"one: waits for mlflow, for at most [0-4] s: mlflow: ", while_down.stderr), while_down.stderr
    assert (while_up.returncode, again.returncode) == (0, 0), while_up.stdout + while_up.stderr
    assert "2 values of the journal delivered to jsonl, mlflow, 0 lost" in while_up.stdout
    with closing(sqlite3.connect(store)) as database:
        kept = dict(database.execute("SELECT key, value FROM metrics WHERE key IN ('before', 'after')"))
    assert kept == {"before": 1.0, "after": 2.0}


def test_recover_in_another_terminal_than_the_jobs_brings_what_its_ranks_left(tmp_path: Path) -> None:
    told = {"OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_END_SILENCE": "1000", "OTEL_ML_FLUSH_INTERVAL": "60000"}
    kill_with_its_service(tmp_path, told)
    (tmp_path / "elsewhere").mkdir()
    there = {**environment(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "elsewhere")}

    listed = otel_ml_command(there, "recover", "--dry-run")
    done = otel_ml_command(there, "recover", "--timeout", "60")

    assert "exp/one: not finished, 1 spool of workers" in listed.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 values of 1 spool and the journal delivered to jsonl, 0 lost" in done.stdout
    assert not list(tmp_path.glob("run/*/*/spool"))


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


def test_what_a_job_with_a_wrong_token_recorded_is_kept_until_recover_has_the_right_one(tmp_path: Path) -> None:
    port = free_port()
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1000"})
    there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    program = """
        import otel_ml
        with otel_ml.init("exp", id="one"):
            for step in otel_ml.steps(range(5)):
                otel_ml.log({"x": float(step)})
    """
    with serving({**here, "OTEL_ML_TOKEN": "the right one"}, port):
        _, said = run(program, {**there, "OTEL_ML_TOKEN": "a wrong one"}, tmp_path)
        still_wrong = otel_ml_command({**there, "OTEL_ML_TOKEN": "a wrong one"}, "recover")
        done = otel_ml_command({**there, "OTEL_ML_TOKEN": "the right one"}, "recover")
        eventually(lambda: written(tmp_path).get("x") == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]))

    assert "The receiver does not take the credentials of this process: HTTP 401" in said
    assert "not acknowledged" in said
    assert "are lost" not in said
    assert still_wrong.returncode == 1
    assert "The receiver does not take the credentials" in still_wrong.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 spool sent to" in done.stdout


LEFT_BEHIND = KILLED.replace('    assert otel_ml.flush(20)\n    print("delivered", flush=True)\n    input()\n', "")


def left_of_boots(tmp_path: Path, environ: dict[str, str], *digests: str) -> None:
    """Have jobs die that reached no service, and give each one's folder the name that it has of another boot."""
    for digest in digests:
        run(LEFT_BEHIND, environ, tmp_path, code=-signal.SIGKILL)
        [spool] = tmp_path.glob("run/*/*/spool")
        spool.parent.rename(tmp_path / digest)
    for digest in digests:
        [root] = tmp_path.glob("run/*")
        (tmp_path / digest).rename(root / digest)


@pytest.mark.parametrize("is_remote", [True, False])
def test_what_a_job_left_before_a_reboot_is_recovered(tmp_path: Path, is_remote: bool) -> None:
    port = free_port()
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1"})
    there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    left_of_boots(tmp_path, there, "0" * 32)

    if is_remote:
        with serving(here, port):
            done = otel_ml_command(there, "recover", "--timeout", "20")
            eventually(lambda: "after" in written(tmp_path))
    else:
        done = otel_ml_command(here, "recover", "one", "--timeout", "20")
    again = otel_ml_command(here, "recover")

    assert done.returncode == 0, done.stdout + done.stderr
    assert ("1 spool sent to" if is_remote else "2 values of 1 spool and the journal") in done.stdout
    assert "after" in written(tmp_path)
    assert "Nothing to recover" in again.stdout
    assert not list(tmp_path.glob("run/*/*/spool"))


def test_what_one_run_left_in_two_boots_is_recovered_of_both(tmp_path: Path) -> None:
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1"})
    there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    left_of_boots(tmp_path, there, "0" * 32, "1" * 32)

    done = otel_ml_command(here, "recover", "one", "--timeout", "20")

    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("run/*/*/spool"))


def leaves(tmp_path: Path, endpoint: str) -> dict[str, str]:
    """Have a job die that could not reach the endpoint that it was told; return its environment without it."""
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1", "OTEL_ML_EXPORTERS": "jsonl"})
    run(LEFT_BEHIND, {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, tmp_path, code=-signal.SIGKILL)
    return here


def test_what_was_on_its_way_to_an_endpoint_waits_for_it_and_is_there_once(tmp_path: Path) -> None:
    port = free_port()
    here = leaves(tmp_path, f"http://127.0.0.1:{port}")

    without_endpoint = otel_ml_command(here, "recover", "--timeout", "20")
    with_all = otel_ml_command(here, "recover", "--all", "--timeout", "20")
    kept = list(tmp_path.glob("run/*/*/spool/*.spool"))
    with serving(here, port):
        there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        with_endpoint = otel_ml_command(there, "recover", "--timeout", "20")
        eventually(lambda: "after" in written(tmp_path))
    again = otel_ml_command(here, "recover")

    assert (without_endpoint.returncode, with_all.returncode) == (1, 1), without_endpoint.stdout + with_all.stdout
    assert f"1 process of it sent to http://127.0.0.1:{port}." in " ".join(without_endpoint.stdout.split())
    assert "otel-ml recover one" in " ".join(without_endpoint.stdout.split())
    assert len(kept) == 1
    assert with_endpoint.returncode == 0, with_endpoint.stdout + with_endpoint.stderr
    assert written(tmp_path).get("after") == ([1], [2.0])
    assert "Nothing to recover" in again.stdout


def test_who_names_the_run_has_it_here_and_what_was_left_holds_no_credentials(tmp_path: Path) -> None:
    here = leaves(tmp_path, f"http://me:s3cret-s3cret@127.0.0.1:{free_port()}")
    [spool] = tmp_path.glob("run/*/*/spool/*.spool")
    content = spool.read_bytes()

    listed = otel_ml_command(here, "recover", "--dry-run")
    done = otel_ml_command(here, "recover", "one", "--timeout", "20")

    assert b"s3cret" not in content
    assert (listed.returncode, done.returncode) == (0, 0), done.stdout + done.stderr
    assert "Left alone: 1 process" in " ".join(listed.stdout.split())
    assert written(tmp_path).get("after") == ([1], [2.0])


def test_what_was_on_its_way_to_one_endpoint_goes_to_another_only_where_that_is_said_before(tmp_path: Path) -> None:
    was, port = f"http://127.0.0.1:{free_port()}", free_port()
    here = leaves(tmp_path, was)
    elsewhere = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}

    listed = otel_ml_command(elsewhere, "recover", "--dry-run")
    while_down = otel_ml_command(elsewhere, "recover", "--timeout", "2")
    with serving(here, port):
        done = otel_ml_command(elsewhere, "recover", "--timeout", "20")
        eventually(lambda: "after" in written(tmp_path))

    where = f"http://127.0.0.1:{port} (OTEL_EXPORTER_OTLP_ENDPOINT)"
    assert (listed.returncode, while_down.returncode, done.returncode) == (0, 1, 0), done.stdout + done.stderr
    for said in (listed, while_down, done):
        assert f"Its processes sent to {was}; what they left goes to {where} instead" in said.stdout
    assert f"one: sending to {where}, for at most 2 s" in while_down.stderr


def test_recover_names_the_variable_in_which_the_job_had_its_endpoint(tmp_path: Path) -> None:
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1", "OTEL_ML_EXPORTERS": "jsonl"})
    of_metrics = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{free_port()}/v1/metrics"}
    run(LEFT_BEHIND, {**here, **of_metrics}, tmp_path, code=-signal.SIGKILL)

    left = otel_ml_command(here, "recover")

    assert left.returncode == 1, left.stdout
    assert "Run this again with OTEL_EXPORTER_OTLP_METRICS_ENDPOINT set as it was" in left.stdout
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in left.stdout


def test_a_job_that_lives_and_sends_to_an_endpoint_is_nothing_that_is_left(tmp_path: Path) -> None:
    here = environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"})
    with otlp_server() as server:
        there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": server.url}
        process = start(LIVES, there, tmp_path)
        assert process.stdout is not None
        process.stdout.readline()
        meanwhile = otel_ml_command(here, "recover", "--timeout", "20")
        process.communicate("go\n", timeout=30)

    assert meanwhile.returncode == 0, meanwhile.stdout
    assert "its processes are alive, and send it themselves" in " ".join(meanwhile.stdout.split())
    assert not (tmp_path / "runs").exists()


LIVES = """
    import otel_ml
    with otel_ml.init("exp", id="one"):
        otel_ml.log({"x": 1.0}, step=0)
        assert otel_ml.flush(20)
        print("sent", flush=True)
        input()
"""
