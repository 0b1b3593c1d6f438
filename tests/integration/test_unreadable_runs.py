"""A folder of runs in which some cannot be read, are damaged, or are none: commands name them and go on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import environment
from tests.integration.worker_process import environment as job_environment
from tests.recorded_run import digits_records, write_run
from tests.waiting import eventually

JOB = """
import otel_ml
with otel_ml.init("exp", id="good", exporters="jsonl", params={"lr": 0.1}):
    for step in range(3):
        otel_ml.log({"loss": float(step)}, step=step)
"""
# Who may read everything is asked without that: root's capability.
AS_ANYBODY = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


OTHER_JSON = [
    {"seq": 1, "role": 3, "axis": 4, "step": "a", "attempt": None, "time": "b", "values": {"a": "b"}},
    [1], None, {"seq": "x"}, {"seq": 1, "type": "text"}, {"seq": 1, "values": [1]},
]  # fmt: skip


def with_content(run: Path, database: bytes, lines: bytes) -> None:
    (run / "state" / "run.db").write_bytes(database)
    (run / "metrics.jsonl").write_bytes(lines)


def cut(run: Path) -> None:
    for path in (run / "state" / "run.db", run / "metrics.jsonl"):
        os.truncate(path, path.stat().st_size // 2)


def exchanged(run: Path, make: Callable[[Path], object]) -> None:
    for path in (run / "state" / "run.db", run / "metrics.jsonl"):
        path.unlink()
        make(path)


def other_json(run: Path) -> None:
    (run / "state" / "run.db").unlink()
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in OTHER_JSON))


def unreadable_mark(run: Path) -> None:
    (run / "state" / "open").write_text("x")
    (run / "state" / "open").chmod(0)


def other_files(run: Path) -> None:
    (run / "late.otlp").write_bytes(os.urandom(100))
    (run / "spans.jsonl").write_bytes(b"\xff{}\n")
    (run / "state" / "served.json").write_text("[1")


SPOIL: dict[str, Callable[[Path], object]] = {
    "folder": lambda run: run.chmod(0),
    "state": lambda run: (run / "state").chmod(0),
    "database": lambda run: (run / "state" / "run.db").chmod(0),
    "lines": lambda run: (run / "metrics.jsonl").chmod(0),
    "random": lambda run: with_content(run, os.urandom(9000), os.urandom(5000)),
    "cut": cut,
    "zeros": lambda run: with_content(run, bytes(9000), bytes(9000)),
    "folders": lambda run: exchanged(run, Path.mkdir),
    "pipes": lambda run: exchanged(run, os.mkfifo),
    "other-json": other_json,
    "strange-mark": lambda run: (run / "state" / "open").write_bytes(b"\xff\xfe\x00"),
    "unreadable-mark": unreadable_mark,
    "other-files": other_files,
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    environ = job_environment(tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)})
    subprocess.run([sys.executable, "-c", JOB], env=environ, check=True, timeout=100, cwd=tmp_path)
    base, good = tmp_path / "runs", tmp_path / "runs" / "exp" / "good"
    eventually(lambda: not list((good / "state").glob("*-wal")))  # its service has closed all
    for how, spoil in SPOIL.items():
        shutil.copytree(good, base / "spoiled" / how)
        spoil(base / "spoiled" / how)
    (base / "spoiled" / "a loop").symlink_to(base / "spoiled" / "a loop")
    (base / "spoiled" / "a file").touch()
    os.mkdir(os.fsencode(base / "spoiled") + b"/\xff\xfe")  # noqa: PTH102
    shutil.copytree(good, base / "closed" / "run")
    (base / "closed").chmod(0)
    return base


@pytest.mark.timeout(240)
def test_no_command_ends_in_a_traceback_and_what_cannot_be_read_is_named(base: Path, tmp_path: Path) -> None:
    command = [*AS_ANYBODY, sys.executable, "-m", "tests.integration.every_command", str(base)]
    environ = environment(OTEL_ML_DIR=base, XDG_RUNTIME_DIR=tmp_path)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=200)
    found: list[tuple[list[str], int, str]] = [(each[0], each[1], each[2]) for each in json.loads(done.stdout)]

    assert [each for each in found if each[1] not in {0, 1} or "Traceback" in each[2]] == []
    assert len(found) > 90

    listed = said(found, ["runs"])
    assert "good" in listed
    assert f"may not look into them: {base / 'closed'}, {base / 'spoiled' / 'folder'}" in listed
    ids = {row["id"] for row in rows(said(found, ["runs", "--json"]))}
    assert ids >= {"good", "state", "random", "other-json"}
    assert "loss,2,2.0" in said(found, ["show", "--csv", str(base / "exp" / "good")])
    assert "loss,2,2.0" in said(found, ["show", "--csv", str(base / "spoiled" / "state")])
    assert "cannot be read" in said(found, ["show", str(base / "closed")])
    assert "is left alone: Permission denied" in said(found, ["recover", "--dry-run"])
    closed = base / "spoiled" / "state"
    assert f"{closed} is not removed: Permission denied" in said(found, ["gc", "--keep", "0", "--yes"])
    assert (closed / "metrics.jsonl").exists()
    assert not (base / "exp" / "good").exists()


def test_a_run_whose_state_is_closed_to_this_user_is_not_called_delivered(tmp_path: Path) -> None:
    state = write_run(tmp_path, "01abc", digits_records(steps=3)).database.parent
    state.chmod(0)

    done = subprocess.run(
        [*AS_ANYBODY, sys.executable, "-m", "otel_ml_service", "recover", "01abc"],
        env=environment(OTEL_ML_DIR=tmp_path, XDG_RUNTIME_DIR=tmp_path), cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    state.chmod(0o700)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"Whether run '01abc' is delivered cannot be told: {str(state)!r} is closed to this user." in done.stderr


def test_doctor_goes_on_where_the_folder_of_runs_is_below_one_that_is_closed_to_this_user(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)

    done = subprocess.run(
        [*AS_ANYBODY, sys.executable, "-m", "otel_ml_service", "doctor"],
        env=environment(OTEL_ML_DIR=closed / "runs", XDG_RUNTIME_DIR=tmp_path), cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    closed.chmod(0o700)

    assert done.returncode == 1
    assert f"{str(closed / 'runs')!r} cannot be used: Permission denied" in done.stdout
    assert "OTEL_ML_LISTEN_HTTP" in done.stdout  # what is looked at after the folder


def said(found: list[tuple[list[str], int, str]], arguments: list[str]) -> str:
    return next(text for given, _, text in found if given == arguments)


def rows(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
