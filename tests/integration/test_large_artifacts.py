"""Files above 4 MiB do not travel: they are in the run all the same, whatever becomes of their names."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run, start
from tests.otlp_server import OtlpServer, eventually

PROGRAM = """
    import os, time
    from pathlib import Path
    import otel_ml
    from otel_ml.wire.spool_format import read_spool

    def wait_until_spooled(name):
        paths = lambda: Path(os.environ["XDG_RUNTIME_DIR"]).glob("*/*/spool/*.spool")
        while not any(name in frame.payload for path in paths() for frame in read_spool(path).frames):
            time.sleep(0.005)  # between two looks

    path = Path({folder!r}) / "model.bin"
    with otel_ml.init("exp", id="one", exporters="jsonl"):
        for content in (b"first", b"other"):
            path.write_bytes(content * 2**20)
            otel_ml.log_artifact(path, name=content.decode())
            {then}
"""

REMOVED = "path.unlink()"
REPLACED = "(path.with_suffix('.new').write_bytes(b'x' * path.stat().st_size), path.with_suffix('.new').replace(path))"
REMOVED_WHEN_SPOOLED = "wait_until_spooled(content); path.unlink()"


def artifacts(folder: Path) -> dict[str, bytes]:
    eventually(lambda: not list(folder.glob("run/*/*")), within=60)  # the service has left
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/exp/one/artifacts/*/model.bin")}


@pytest.mark.parametrize("then", [REMOVED, REPLACED, REMOVED_WHEN_SPOOLED], ids=["removed", "replaced", "later"])
def test_a_large_file_is_in_the_run_though_its_name_is_gone(tmp_path: Path, then: str) -> None:
    run(PROGRAM.format(folder=str(tmp_path), then=then), environment(tmp_path), tmp_path)

    assert artifacts(tmp_path) == {"first": b"first" * 2**20, "other": b"other" * 2**20}
    rows = map(json.loads, (tmp_path / "runs" / "exp" / "one" / "metrics.jsonl").read_text().splitlines())
    uris = [row["uri"] for row in rows if row.get("type") == "artifact"]
    assert uris == [(tmp_path / "model.bin").as_uri()] * 2  # where it was, not where it was kept meanwhile


def test_a_large_file_of_another_disk_is_in_the_run_though_it_was_removed_at_once(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        assert Path(elsewhere).stat().st_dev != tmp_path.stat().st_dev

        run(PROGRAM.format(folder=elsewhere, then=REMOVED), environment(tmp_path), tmp_path)

    assert artifacts(tmp_path) == {"first": b"first" * 2**20, "other": b"other" * 2**20}


def test_of_two_runs_in_a_process_each_has_its_large_file_though_its_name_is_gone(tmp_path: Path) -> None:
    program = f"""
        from pathlib import Path
        import otel_ml

        runs = [otel_ml.init("exp", id=name, exporters="jsonl") for name in ("first", "other")]
        for run in runs:
            path = Path({str(tmp_path)!r}) / f"{{run.id}}.bin"
            path.write_bytes(run.id.encode() * 2**20)
            run.log_artifact(path, name="model")
            path.unlink()
        for run in runs:
            run.shutdown()
    """

    run(program, environment(tmp_path), tmp_path)

    eventually(lambda: not list(tmp_path.glob("run/*/*")), within=60)
    for name in ("first", "other"):
        kept = tmp_path / "runs" / "exp" / name / "artifacts" / "model" / f"{name}.bin"
        assert kept.read_bytes() == name.encode() * 2**20


def test_of_a_large_file_no_second_copy_stays(tmp_path: Path) -> None:
    run(PROGRAM.format(folder=str(tmp_path), then=REMOVED), environment(tmp_path), tmp_path)
    assert len(artifacts(tmp_path)) == 2

    large = [path for path in (tmp_path / "runs").rglob("*") if path.is_file() and path.stat().st_size > 4 * 2**20]
    assert sorted(path.parent.name for path in large) == ["first", "other"]


def test_a_large_file_of_a_job_whose_service_is_elsewhere_is_kept_nowhere(tmp_path: Path) -> None:
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}

    run(PROGRAM.format(folder=str(tmp_path), then=REMOVED), environment(tmp_path, there), tmp_path)

    assert not (tmp_path / "runs").exists()


HUGE = """
    import otel_ml, time

    with open("huge.ckpt", "wb") as file:
        file.truncate(2**40)  # takes an hour to hash, and no room
    with otel_ml.init("exp", id="one", exporters="jsonl"):
        for step in range(20):
            otel_ml.set_step(step)
            otel_ml.log({{"loss": 1.0}})
            if step == 10:
                otel_ml.log_checkpoint("huge.ckpt")
        {then}
"""


def test_metrics_and_the_goodbye_arrive_while_a_huge_file_is_hashed_and_the_run_has_where_it_is(
    server: OtlpServer, tmp_path: Path
) -> None:
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})
    with start(HUGE.format(then="input()"), environ, tmp_path) as process:
        eventually(lambda: len(server.points("loss")) >= 19, within=20)
        _, errors = process.communicate("leave", timeout=60)

    assert len(server.points("loss")) == 20
    [goodbye] = server.events("ml.writer.end")
    assert goodbye.attributes["ml.status"] == "finished"
    [artifact] = server.events("ml.artifact")
    assert artifact.attributes["ml.artifact.size"] == 2**40
    assert artifact.attributes["ml.artifact.uri"] == (tmp_path / "huge.ckpt").as_uri()
    assert "ml.artifact.sha256" not in artifact.attributes
    assert "huge.ckpt' was not read before the process ended" in errors


def test_a_huge_file_delays_no_step_of_the_jobs_own_service_and_a_kill_does_not_lose_it(tmp_path: Path) -> None:
    then = """
        for step in range(20, 40):
            otel_ml.set_step(step)
            otel_ml.log({"loss": 1.0})
        def loss():
            try:
                return otel_ml.read("runs/exp/one").get("loss", ((), ()))[0]
            except otel_ml.OtelMLError:  # there is nothing yet
                return ()

        while len(loss()) < 39:
            time.sleep(0.05)  # between two looks
        os.kill(os.getpid(), 9)
    """
    program = HUGE.replace("import otel_ml", "import os, otel_ml").format(then=then)
    run(program, environment(tmp_path), tmp_path, code=-9)

    [service] = [json.loads(path.read_text()) for path in tmp_path.glob("run/*/*/service.json")]
    os.kill(service["pid"], signal.SIGTERM)
    eventually(lambda: not list(tmp_path.glob("run/*/*/service.json")), within=30)
    folder = tmp_path / "runs" / "exp" / "one" / "state"
    [files] = eventually(lambda: facts(folder / "run.db", "files"), within=30)
    [[kind, record, kept, _]] = json.loads(files)
    assert (kind, json.loads(record)["uri"]) == ("artifact", (tmp_path / "huge.ckpt").as_uri())
    assert (folder / "kept" / kept).samefile(tmp_path / "huge.ckpt")
    assert (folder / "open").exists()  # `otel-ml recover` goes on with it


def facts(database: Path, name: str) -> list[str]:
    """Return a fact of a run whose service has left."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            return [value for (value,) in connection.execute("SELECT value FROM facts WHERE name = ?", (name,))]
    except sqlite3.OperationalError:  # it holds the file still
        return []


MANY = """
    import otel_ml
    from pathlib import Path

    with open("huge.ckpt", "wb") as file:
        file.truncate(2**40)  # takes an hour to hash, and no room
    many = Path("many")
    many.mkdir()
    for number in range(4000):
        (many / str(number)).write_bytes(b"x")
    with otel_ml.init("exp", id="one"):
        otel_ml.log_artifact("huge.ckpt")
        for number in range(12):
            otel_ml.log_artifact(many, name=f"many {number}")
"""


def test_each_file_for_which_the_end_of_a_process_has_no_time_is_in_the_run_or_counted(
    server: OtlpServer, tmp_path: Path
) -> None:
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})

    _, errors = run(MANY, environ, tmp_path)

    [goodbye] = server.events("ml.writer.end")
    missing = goodbye.attributes["otel_ml.dropped"]["missing_artifact"]
    assert missing > 0
    assert len(server.events("ml.artifact")) + missing == 1 + 12 * 4000
    assert errors.count("(otel-ml explain missing-artifact)") == 1
    assert errors.count("(otel-ml explain missing-content)") == 1


HANGING = """
    import threading
    import otel_ml
    from otel_ml._internal.events.event_queue import EVENTS

    with otel_ml.init("exp", id="one"):
        EVENTS.put_file("log_artifact()", lambda pace: threading.Event().wait())  # as a disk that does not answer
        otel_ml.log_artifact(__file__)
"""


def test_artifacts_behind_a_disk_that_does_not_answer_are_counted(server: OtlpServer, tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})

    _, errors = run(HANGING, environ, tmp_path)

    [goodbye] = server.events("ml.writer.end")
    assert goodbye.attributes["otel_ml.dropped"] == {"missing_artifact": 2}
    assert "2 calls could not be served before the process ended" in errors
