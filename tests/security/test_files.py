"""Who else is on the machine: what they can read of a run, and what they can plant."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from otel_ml._internal.transport import multi_host
from otel_ml._internal.transport.embedded import EmbeddedLink
from otel_ml.config import Config
from otel_ml.wire import rendezvous as places
from otel_ml.wire.folder_ownership import read_ours
from otel_ml.wire.rendezvous import Rendezvous, Service, publish, rendezvous_of, write_private
from otel_ml_service.live_runs.run_log import OutputLog, RunLog
from tests.fakes.greedy_service import greedy_service
from tests.integration.worker_process import environment, run, start
from tests.waiting import eventually

PLANTED = Service("http://127.0.0.1:9", "of somebody else", 1, "/nowhere")
EMBEDDED = """
import os, sys
os.umask(0)
import otel_ml
with otel_ml.init("exp", id="secure", exporters="jsonl"):
    otel_ml.log({"loss": 1.0}, step=0)
    print("ready", flush=True)
    sys.stdin.readline()
    otel_ml.log({"loss": 2.0}, step=1)
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def be_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this user owns belongs to another one from here on."""
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: stranger)


# What others can read


def test_under_umask_0_nobody_else_can_read_or_write_what_a_run_has_of_secrets_and_data(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    environ = environment(tmp_path, {"XDG_RUNTIME_DIR": str(runtime)})
    with subprocess.Popen(
        [sys.executable, "-c", EMBEDDED], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        [announced] = eventually(lambda: list(runtime.rglob("service.json")))
        [database] = eventually(lambda: list(tmp_path.rglob("run.db")))
        journal = database.with_name("journal.db")
        spools = list(runtime.rglob("*.spool"))

        requests = eventually(lambda: list(database.parent.glob("journal-*.log")))
        files = [announced, announced.with_name("lock"), *spools, database, journal, *requests]
        files += database.parent.glob("*-wal")
        modes = {path.name: mode(path) for path in files}
        folders = {path: mode(path) for path in (announced.parent.parent, announced.parent, database.parent)}
        folders |= {path.parent: mode(path.parent) for path in spools}
        log = database.parent.parent / "service.log"
        job.communicate("go\n", timeout=60)

    assert set(modes.values()) == {0o600}, modes
    assert set(folders.values()) == {0o700}, folders
    assert mode(log) == 0o600
    assert job.returncode == 0


def test_a_link_planted_in_place_of_a_deleted_log_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)  # a handler says on stderr that it could not write
    path, victim = tmp_path / "service.log", tmp_path / "of the victim"
    victim.write_text("precious\n")
    with path.open("a") as stream:
        output = OutputLog(stream)
        run = RunLog("one", tmp_path / "run.log")
        with run.speaking():
            warn(output, "before")
            path.unlink()
            path.symlink_to(victim)
            (tmp_path / "run.log").unlink()
            (tmp_path / "run.log").symlink_to(victim)

            warn(output, "after")
        run.close()

        assert victim.read_text() == "precious\n"

        path.unlink()
        warn(output, "without the link")
        assert path.read_text() == "without the link\n"


def warn(output: OutputLog, message: str) -> None:
    """Log a line of the process and one of the run."""
    output.emit(logging.LogRecord("x", logging.WARNING, "", 0, message, None, None))
    logging.getLogger("otel_ml_service").warning(message)


def test_what_announces_a_service_to_other_hosts_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        publish(tmp_path / "meeting.json", PLANTED)
    finally:
        os.umask(old)

    assert mode(tmp_path / "meeting.json") == 0o600


def test_the_service_of_a_job_has_a_token_of_its_own_whatever_the_job_was_given_for_another(tmp_path: Path) -> None:
    (tmp_path / "otel-ml.yaml").write_text("token: in-the-file\ntokens: [in-the-file-too]\n")
    environ = environment(tmp_path, {"OTEL_ML_TOKEN": "of-another-service"})
    known = ["of-another-service", "in-the-file", "in-the-file-too"]

    with start(EMBEDDED, environ, tmp_path) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        [announced] = eventually(lambda: list(tmp_path.rglob("service.json")))
        service = Service.from_json(announced.read_text())
        answers = [status_of(f"{service.endpoint}/healthz", token) for token in (*known, service.token)]
        job.communicate("go\n", timeout=60)

    assert job.returncode == 0
    assert len(service.token) >= 43  # 256 bits of base64
    assert answers == [401, 401, 401, 200]


def status_of(url: str, token: str) -> int:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


# What others can plant


def test_a_rendezvous_folder_of_somebody_else_is_passed_and_its_service_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    planted = rendezvous_of("exp", environ)
    planted.create()
    planted.publish(PLANTED)
    assert planted.read_service() == PLANTED

    be_somebody_else(monkeypatch)

    assert planted.read_service() is None
    with pytest.raises(PermissionError, match="not a private folder"):
        planted.create()


@pytest.mark.parametrize("how", ["link", "open to all", "file"])
def test_a_rendezvous_folder_that_others_could_fill_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    taken = runtime / f"otel-ml-{os.getuid()}"
    if how == "link":
        elsewhere = Rendezvous(tmp_path / "elsewhere" / "x")
        elsewhere.create()
        taken.symlink_to(tmp_path / "elsewhere")
    elif how == "file":
        taken.touch()
    else:
        taken.mkdir()
        taken.chmod(0o777)

    found = rendezvous_of("exp", {"XDG_RUNTIME_DIR": str(runtime)})
    found.create()

    assert found.folder.parent == tmp_path / "home" / ".cache" / f"otel-ml-{os.getuid()}"
    assert Rendezvous(taken / found.folder.name).read_service() is None


def test_a_job_gives_nothing_to_a_service_that_somebody_else_planted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Planted where every process of the job looks: the folder's name holds nothing that others do not know."""
    with greedy_service() as greedy:
        planted = Rendezvous(tmp_path / "planted" / "run")
        planted.create()
        planted.publish(Service(greedy.endpoint, "t", 1, str(tmp_path)))
        monkeypatch.setattr("otel_ml._internal.transport.embedded.rendezvous_of", lambda _run: planted)
        said: list[str] = []
        link = EmbeddedLink(Config(dir=tmp_path), "run", say=lambda _slug, sentence: said.append(sentence))
        be_somebody_else(monkeypatch)

        assert link.reach(0.0, failing_s=0.0) is None

    assert greedy.requests == []
    assert "not a private folder" in said[0]


@pytest.mark.parametrize("how", ["another owner", "open to all", "link"])
def test_hosts_do_not_join_a_service_that_somebody_else_announced_in_the_shared_folder(
    tmp_path: Path, how: str
) -> None:
    with greedy_service() as greedy:
        config = Config(dir=tmp_path)
        path = multi_host.meeting_file(config, "run")
        path.parent.mkdir()
        publish(path, Service(greedy.endpoint, "t", 1, str(tmp_path)))
        link = multi_host.OtherHostLink(config, "run", say=lambda _slug, _sentence: None)
        plant(path, how)

        assert link.reach(0.0, failing_s=0.0) is None

    assert greedy.requests == []


@pytest.mark.parametrize("how", ["another owner", "open to all", "link"])
def test_ranks_do_not_go_where_somebody_else_says_that_rank_0_began_the_run(tmp_path: Path, how: str) -> None:
    with greedy_service() as greedy:
        path = announced_launch(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=greedy.endpoint)
        plant(path, how)

        second_host(tmp_path)

    assert greedy.requests == []
    assert not is_in_announced_run(tmp_path)


def test_what_rank_0_announces_says_which_run_and_not_where_to_send(tmp_path: Path) -> None:
    with greedy_service() as greedy:
        announced_launch(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=greedy.endpoint, OTEL_ML_ON_EXPERIMENT_END="detach")

        second_host(tmp_path)

    assert greedy.requests == []
    assert is_in_announced_run(tmp_path)


LATE_RANK = """
import otel_ml
otel_ml.log({"loss": 1.0}, step=0)
"""
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_NNODES": "2",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
}


def announced_launch(tmp_path: Path, **further: str) -> Path:
    """Announce the run of a launch on two hosts, as its rank 0 does on the other one."""
    path = multi_host.meeting_file(Config(dir=tmp_path / "runs"), "slurm-7.0").with_suffix(".launch.json")
    path.parent.mkdir(parents=True)
    run = {"OTEL_ML_EXPERIMENT_ID": "planted", "OTEL_ML_EXPERIMENT_NAME": "exp", "OTEL_ML_EXPORTERS": "jsonl"}
    write_private(path, json.dumps({"started_by": [1, 1], "variables": {**run, **further}}))
    return path


def second_host(tmp_path: Path) -> None:
    """Record on the host that waits for rank 0."""
    environ = environment(tmp_path, {**STEP, "OTEL_ML_EXIT_WAIT": "1"})
    subprocess.run([sys.executable, "-c", LATE_RANK], env=environ, check=True, timeout=60)


def is_in_announced_run(tmp_path: Path) -> bool:
    """Whether what was recorded, and nobody has taken yet, names the run that was announced."""
    [spool] = tmp_path.glob("run/otel-ml-*/*/spool/*.spool")
    return b"planted" in spool.read_bytes()


def plant(path: Path, how: str) -> None:
    """Make a file one that others may have put there."""
    if how == "open to all":
        path.chmod(0o666)
    elif how == "link":
        real = path.rename(path.with_name("real.json"))
        path.symlink_to(real)
    elif os.getuid():
        pytest.skip("only root gives files away")
    else:
        os.chown(path, 12_345, 12_345)


def test_a_file_of_whom_the_network_file_system_takes_us_for_is_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(tmp_path / "meeting.json", PLANTED)

    be_somebody_else(monkeypatch)

    assert read_ours(tmp_path / "meeting.json")


def test_what_service_json_holds_is_in_no_message() -> None:
    with pytest.raises(places.WireError) as caught:
        Service.from_json('{"token": "hush-hush", "pid": "no number"}')

    assert "hush" not in str(caught.value)
    assert "hush" not in repr(Service("e", "hush-hush", 1, "d"))
    assert json.loads(PLANTED.to_json())["token"] == "of somebody else"


SHORT = """
    import otel_ml
    with otel_ml.init("exp", id="one", exporters="jsonl"):
        otel_ml.log({"loss": 1.0}, step=0)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_volume_that_belongs_to_its_group_is_passed_and_the_job_says_so_and_what_to_do(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    volume = tmp_path / "run"
    volume.chmod(0o2775)
    os.chown(volume, 12_345, 0)

    _, said = run(SHORT, {**environ, "HOME": str(tmp_path), "OTEL_ML_EXPERIMENT_ID": "of-a-volume"}, tmp_path)

    assert said.count(f"{volume} belongs to user 12345") == 1
    assert f"mkdir -m 700 {volume / '0'}" in said
    assert not list(volume.iterdir())


def test_where_no_folder_of_the_host_can_be_used_the_job_says_where_it_keeps_what_is_not_sent(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    (tmp_path / "run" / f"otel-ml-{os.getuid()}").write_text("no folder")
    (tmp_path / ".cache").write_text("no folder")
    unreached = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    _, said = run(
        SHORT.replace(', exporters="jsonl"', ""), {**environ, **unreached, "OTEL_ML_EXIT_WAIT": "1"}, tmp_path
    )

    [spool] = tmp_path.glob("otel-ml-*/*.spool")
    assert f"kept in {spool.parent}" in said
    assert "`otel-ml recover` does not look there" in said
