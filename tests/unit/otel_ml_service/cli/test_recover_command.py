"""`otel-ml recover`: what dead jobs left, and what it leaves alone."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_ml.wire.rendezvous import Service as Announcement
from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml_service.cli.recover_command import _account
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.recover import Recovered
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import history
from tests.otlp import FakeWriter, write_spool
from tests.otlp_server import otlp_server
from tests.ports import free_port
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import otel_ml
from tests.waiting import eventually

pytestmark = pytest.mark.long


def test_recover_finds_nothing_where_nothing_is_left(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=2))

    done = otel_ml(tmp_path, "recover")

    assert done.returncode == 0, done.stderr
    assert "Nothing to recover" in done.stdout


def test_recover_of_a_folder_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = otel_ml(tmp_path, "recover", "--dir", str(tmp_path / "typo"))

    assert done.returncode == 2
    assert f"there is no folder {str(tmp_path / 'typo')!r}" in done.stderr
    assert not (tmp_path / "typo").exists()


def test_recover_that_has_no_time_for_a_step_that_is_open_does_not_call_its_values_delivered() -> None:
    done = Recovered(is_done=False, values=10, delivered=7, spools=1, exporters=("jsonl",))

    assert _account(done).startswith("7 of 10 values of 1 spool and the journal delivered to jsonl")
    assert _account(replace(done, is_done=True, delivered=10)).startswith("10 values of 1 spool")


def test_recover_of_a_run_that_another_process_recovers_says_so(tmp_path: Path) -> None:
    folder = left_by_a_dead_service(tmp_path, "01dead")
    lock = rendezvous_of("01dead", {"XDG_RUNTIME_DIR": str(tmp_path)}).acquire()
    assert lock is not None
    try:
        done = otel_ml(tmp_path, "recover", "01dead")
    finally:
        os.close(lock)

    assert done.returncode == 1
    assert "not done: another process has run '01dead', or recovers it" in done.stdout
    assert "not done within" not in done.stdout
    assert not folder.database.exists()


def test_recover_of_a_run_that_has_a_service_which_is_not_done_does_not_call_it_delivered(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=2))
    run.database.with_name("open").write_text("01abc")
    rendezvous = rendezvous_of("01abc", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    service = rendezvous.publish(Announcement("http://127.0.0.1:9", "", os.getpid(), str(run.path), ("jsonl",)))

    done = otel_ml(tmp_path, "recover", "01abc")
    os.close(service)

    assert done.returncode == 0, done.stderr
    assert "is delivered" not in done.stdout
    assert "Nothing to recover now: the service of 01abc is at work" in done.stdout


def test_recover_delivers_the_spools_of_a_dead_job_and_says_what_it_did(tmp_path: Path) -> None:
    rendezvous = rendezvous_of("01dead", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    for rank in range(2):
        writer = FakeWriter(experiment="01dead", rank=rank, world_size=2, extra={"ml.experiment.name": "digits"})
        write_spool(rendezvous.spool / f"rank{rank}-000000.spool", writer, range(10))

    listed = otel_ml(tmp_path, "recover", "--dry-run")
    done = otel_ml(tmp_path, "recover", OTEL_ML_EXPORTERS="jsonl", OTEL_ML_END_SILENCE="1000")
    again = otel_ml(tmp_path, "recover")

    assert "digits/01dead: not finished, 2 spools of workers" in listed.stdout
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT is not set, so it goes into {tmp_path / 'digits' / '01dead'}" in listed.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 values of 2 spools and the journal delivered to jsonl" in done.stdout
    found = history(records(RunFolder(tmp_path / "digits" / "01dead"))).get("loss")
    assert found == dict.fromkeys(range(10), 0.25)
    assert "Nothing to recover" in again.stdout
    assert not rendezvous.folder.exists()


def test_recover_says_which_spool_cannot_be_read_and_delivers_the_others(tmp_path: Path) -> None:
    rendezvous = rendezvous_of("01dead", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    (rendezvous.spool / "a-000000.spool").mkdir()
    writer = FakeWriter(experiment="01dead", extra={"ml.experiment.name": "digits"})
    write_spool(rendezvous.spool / "rank0-000000.spool", writer, range(10))

    done = otel_ml(tmp_path, "recover", OTEL_ML_EXPORTERS="jsonl", OTEL_ML_END_SILENCE="1000")

    assert f"The spool {rendezvous.spool / 'a-000000.spool'} cannot be read: Is a directory" in done.stdout
    found = history(records(RunFolder(tmp_path / "digits" / "01dead"))).get("loss")
    assert found == dict.fromkeys(range(10), 0.25)
    assert done.returncode == 1, done.stdout + done.stderr
    assert (rendezvous.spool / "a-000000.spool").is_dir()


def left_by_a_dead_service(base: Path, run_id: str) -> RunFolder:
    """Leave what is there after `kill -9` of a job in another folder and of its service."""
    folder = RunFolder(base / "elsewhere" / "digits" / run_id)
    folder.path.mkdir(parents=True)
    rendezvous = rendezvous_of(run_id, {"XDG_RUNTIME_DIR": str(base)})
    rendezvous.create()
    writer = FakeWriter(experiment=run_id, extra={"ml.experiment.name": "digits"})
    write_spool(rendezvous.spool / "rank0-000000.spool", writer, range(10))
    # Its pid is that of a process that lives: it may have been given out again, or count in another namespace.
    os.close(rendezvous.publish(Announcement("http://127.0.0.1:9", "", os.getpid(), str(folder.path), ("jsonl",))))
    return folder


@pytest.mark.parametrize("is_withdrawn", [False, True], ids=["killed", "stopped"])
def test_recover_finishes_a_run_in_its_own_folder_with_its_own_exporters(tmp_path: Path, is_withdrawn: bool) -> None:
    folder = left_by_a_dead_service(tmp_path, "01dead")
    rendezvous = rendezvous_of("01dead", {"XDG_RUNTIME_DIR": str(tmp_path)})
    if is_withdrawn:
        rendezvous.service_file.unlink()
    here = {"OTEL_ML_DIR": str(tmp_path / "here"), "OTEL_ML_EXPORTERS": "tensorboard", "OTEL_ML_END_SILENCE": "1000"}

    done = otel_ml(tmp_path, "recover", "--all", **here)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"it belongs to {folder.path}" in done.stdout
    assert "10 values of 1 spool and the journal delivered to jsonl, 0 lost" in done.stdout
    assert history(records(folder)).get("loss") == dict.fromkeys(range(10), 0.25)
    assert not (tmp_path / "here").exists()
    assert not list(folder.path.glob("tensorboard"))
    assert not rendezvous.folder.exists()


ANNOUNCE = """
import sys
from pathlib import Path
from otel_ml.wire.rendezvous import Rendezvous, Service
service = Service("http://127.0.0.1:9", "", int(sys.argv[2]), sys.argv[3], ("jsonl",))
held = Rendezvous(Path(sys.argv[1])).publish(service)
print("announced", flush=True)
input()
"""


@pytest.mark.parametrize("pid", [1, 2**22 + 1], ids=["of another process", "of none that is seen here"])
def test_recover_takes_a_service_for_alive_as_long_as_it_holds_its_lock_whatever_its_pid_is(
    tmp_path: Path, pid: int
) -> None:
    folder = left_by_a_dead_service(tmp_path, "01dead")
    rendezvous = rendezvous_of("01dead", {"XDG_RUNTIME_DIR": str(tmp_path)})
    command = [sys.executable, "-c", ANNOUNCE, str(rendezvous.folder), str(pid), str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        service.stdout.readline()
        alive = otel_ml(tmp_path, "recover", "--dry-run", "--all")
        service.kill()
        os.waitid(os.P_PID, service.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        dead = otel_ml(tmp_path, "recover", "--dry-run", "--all")

    assert "Nothing to recover" in alive.stdout
    assert "digits/01dead: not finished" in dead.stdout


def test_recover_adopts_no_run_whose_folder_cannot_be_used_and_goes_on_with_the_others(tmp_path: Path) -> None:
    folder = left_by_a_dead_service(tmp_path, "01dead")
    (folder.path / "state").write_text("a file where a folder has to be")
    other = left_by_a_dead_service(tmp_path, "02dead")

    done = otel_ml(tmp_path, "recover", "--all", OTEL_ML_DIR=str(tmp_path / "here"), OTEL_ML_END_SILENCE="1000")

    [spool] = rendezvous_of("01dead", {"XDG_RUNTIME_DIR": str(tmp_path)}).spool.glob("*.spool")
    assert done.returncode == 1, done.stdout + done.stderr
    assert str(folder.path / "state") in done.stdout
    assert spool.stat().st_size
    assert len(history(records(other)).get("loss")) == 10
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("named", [["03dead"], []])
def test_recover_has_one_line_for_all_runs_of_other_folders_that_it_leaves_alone(
    tmp_path: Path, named: list[str]
) -> None:
    for number in range(8):
        left_by_a_dead_service(tmp_path, f"0{number}dead")
    here = {"OTEL_ML_DIR": str(tmp_path / "here"), "OTEL_ML_END_SILENCE": "1000"}

    listed = otel_ml(tmp_path, "recover", *named, "--dry-run", **here).stdout.splitlines()

    meant = [line for line in listed if line.startswith("digits/")]
    assert [line.partition(":")[0] for line in meant] == [f"digits/{run_id}" for run_id in named]
    left = f"{8 - len(named)} unfinished runs of {tmp_path / 'elsewhere'} are left alone"
    assert [line for line in listed if "left alone" in line] == [f"{left}: otel-ml recover --all --dry-run lists them"]


def test_recover_leaves_runs_of_other_folders_alone_unless_they_are_named(tmp_path: Path) -> None:
    first, second = (left_by_a_dead_service(tmp_path, run_id) for run_id in ("01dead", "02dead"))
    here = {"OTEL_ML_DIR": str(tmp_path / "here"), "OTEL_ML_END_SILENCE": "1000"}

    unnamed = otel_ml(tmp_path, "recover", **here)
    unknown = otel_ml(tmp_path, "recover", "03dead", **here)
    untouched = [folder.database.exists() for folder in (first, second)]
    named = otel_ml(tmp_path, "recover", "01dead", **here)
    by_folder = otel_ml(tmp_path, "recover", "--dir", str(tmp_path / "elsewhere"), **here)

    assert (unnamed.returncode, unknown.returncode, named.returncode, by_folder.returncode) == (0, 1, 0, 0)
    assert f"2 unfinished runs of {first.path.parents[1]} are left alone: otel-ml recover --all" in unnamed.stdout
    assert "There is no run in" in unknown.stderr
    assert untouched == [False, False]
    assert f"1 unfinished run of {first.path.parents[1]} is left alone: otel-ml recover 02dead" in named.stdout
    assert not named.stdout.count("02dead: 10 values")
    assert [len(history(records(folder)).get("loss")) for folder in (first, second)] == [10, 10]


def test_recover_takes_a_run_whose_folder_is_gone_into_the_folder_of_all_runs(tmp_path: Path) -> None:
    left_by_a_dead_service(tmp_path, "01dead").path.rmdir()
    here = {"OTEL_ML_DIR": str(tmp_path / "here"), "OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_END_SILENCE": "1000"}

    done = otel_ml(tmp_path, "recover", "--all", **here)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(history(records(RunFolder(tmp_path / "here" / "digits" / "01dead"))).get("loss")) == 10


def test_recover_sends_what_a_job_with_a_service_elsewhere_left_to_its_endpoint(tmp_path: Path) -> None:
    rendezvous = rendezvous_of("01away", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    write_spool(rendezvous.spool / "rank0-000000.spool", FakeWriter(experiment="01away"), range(10))
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"

    away = otel_ml(tmp_path, "recover", "--timeout", "2", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    with otlp_server(port=port) as server:
        done = otel_ml(tmp_path, "recover", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)

    assert away.returncode == 1
    assert "not done within 2 s" in away.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"1 spool sent to {endpoint}" in done.stdout
    assert [point.step for point in server.points("loss")] == list(range(10))
    assert not rendezvous.folder.exists()
    assert not list(tmp_path.glob("*/01away"))


def test_recover_leaves_a_live_rank_alone_whose_service_is_elsewhere(tmp_path: Path) -> None:
    rendezvous = rendezvous_of("01alive", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    spool = rendezvous.spool / "rank0-000000.spool"
    write_spool(spool, FakeWriter(experiment="01alive"), range(2))
    with otlp_server() as server, spool.open("rb") as rank:
        fcntl.flock(rank, fcntl.LOCK_EX)
        done = otel_ml(tmp_path, "recover", OTEL_EXPORTER_OTLP_ENDPOINT=server.url)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "its processes are alive, and send it themselves" in done.stdout
    assert spool.exists()
    assert server.requests == []


def test_recover_counts_only_the_spools_that_it_has_sent_itself(tmp_path: Path) -> None:
    rendezvous = rendezvous_of("01both", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    for rank in range(2):
        write_spool(rendezvous.spool / f"rank{rank}-000000.spool", FakeWriter(experiment="01both", rank=rank), range(2))
    live = rendezvous.spool / "rank1-000000.spool"
    with otlp_server() as server, live.open("rb") as rank1, ThreadPoolExecutor() as pool:
        fcntl.flock(rank1, fcntl.LOCK_EX)
        server.pause = 1.0
        done = pool.submit(otel_ml, tmp_path, "recover", OTEL_EXPORTER_OTLP_ENDPOINT=server.url)
        eventually(lambda: server.connections)
        live.unlink()  # as a process that had it acknowledged
        output = done.result().stdout

    assert f"01both: 1 spool sent to {server.url}" in output


def test_recover_leaves_a_job_alone_that_has_a_service(tmp_path: Path) -> None:
    rendezvous = rendezvous_of("01live", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    write_spool(rendezvous.spool / "rank0-000000.spool", FakeWriter(experiment="01live"), range(2))
    held = rendezvous.publish(Announcement("http://127.0.0.1:9", "", os.getpid(), "elsewhere"))
    try:
        assert "Nothing to recover" in otel_ml(tmp_path, "recover", "--all").stdout
    finally:
        os.close(held)


@pytest.mark.parametrize("command", ["show", "tail", "open", "replay"])
def test_a_run_that_does_not_exist_is_said_with_what_there_is(tmp_path: Path, command: str) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=2))
    arguments = ["--to", "jsonl"] if command == "replay" else []

    done = otel_ml(tmp_path, command, "02xyz", *arguments)

    assert done.returncode == 1
    assert "01abc" in done.stderr


def objects(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_recover_has_an_object_for_what_is_left_and_for_what_it_did(tmp_path: Path) -> None:
    mine, other = (left_by_a_dead_service(tmp_path, run_id) for run_id in ("01dead", "02dead"))
    here = {"OTEL_ML_DIR": str(tmp_path / "here"), "OTEL_ML_END_SILENCE": "1000"}

    planned = objects(otel_ml(tmp_path, "recover", "01dead", "--dry-run", "--json", **here))
    done = otel_ml(tmp_path, "recover", "01dead", "--json", **here)
    again = otel_ml(tmp_path, "recover", "--json", **here | {"OTEL_ML_DIR": str(tmp_path)})

    assert [(row["id"], row["result"], row["spools"]) for row in planned] == [
        ("02dead", "left_alone", 1),
        ("01dead", "unfinished", 1),
    ]
    alone, delivered = objects(done)
    assert done.returncode == 0, done.stderr
    assert (alone["id"], alone["result"], alone["dir"]) == ("02dead", "left_alone", str(other.path))
    assert delivered == {
        "id": "01dead", "experiment": "digits", "dir": str(mine.path), "job_dir": str(mine.path), "spools": 1,
        "sent_to": [], "result": "delivered", "endpoint": None, "spools_delivered": 1, "values": 10, "delivered": 10,
        "exporters": ["jsonl"], "lacking": [], "lost": {}, "problems": [], "notices": [],
    }  # fmt: skip
    assert "10 values of 1 spool" in done.stderr
    assert [row["id"] for row in objects(again)] == ["02dead"]


def test_recover_has_an_object_for_a_run_that_could_not_be_delivered(tmp_path: Path) -> None:
    folder = left_by_a_dead_service(tmp_path, "01dead")
    (folder.path / "state").write_text("a file where a folder has to be")

    done = otel_ml(tmp_path, "recover", "01dead", "--json")

    [row] = objects(done)
    assert (done.returncode, row["result"], row["exporters"]) == (1, "left", [])
    assert str(folder.path / "state") in row["problems"][0]


def test_recover_has_an_object_for_what_it_sent_to_an_endpoint(tmp_path: Path) -> None:
    rendezvous = rendezvous_of("01away", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    write_spool(rendezvous.spool / "rank0-000000.spool", FakeWriter(experiment="01away"), range(10))
    with otlp_server() as server:
        done = otel_ml(tmp_path, "recover", "--json", OTEL_EXPORTER_OTLP_ENDPOINT=server.url)

    [row] = objects(done)
    assert done.returncode == 0, done.stderr
    assert (row["result"], row["endpoint"], row["spools_delivered"]) == ("delivered", server.url, 1)


def test_recover_has_an_object_for_a_spool_that_it_cannot_read(tmp_path: Path) -> None:
    rendezvous = rendezvous_of("01dead", {"XDG_RUNTIME_DIR": str(tmp_path)})
    rendezvous.create()
    (rendezvous.spool / "rank0-000000.spool").write_bytes(b"not a spool, and long enough to be one" * 10)

    done = otel_ml(tmp_path, "recover", "--json")

    [row] = objects(done)
    assert done.returncode == 1
    assert "rank0-000000.spool" in row["unread_spool"]
