"""Embedded mode, against a stand-in service that the worker starts by the real command line."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from otel_ml.wire.rendezvous import Service
from tests.integration.worker_process import environment, run, start
from tests.otlp_server import eventually

STAND_IN = Path(__file__).parent / "stand_in"
RANK = """
    import otel_ml, sys
    run = otel_ml.init("digits", id="one", rank=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    otel_ml.set_step(0)
    otel_ml.log({"loss": 1})
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path, path=STAND_IN)


def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "digits" / "one"


def points(tmp_path: Path) -> list[Any]:
    return [point for path in folder(tmp_path).glob("points-*.json") for point in json.loads(path.read_text())]


def starts(tmp_path: Path) -> list[int]:
    path = folder(tmp_path) / "starts"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def service(tmp_path: Path) -> Service | None:
    for path in tmp_path.glob("run/*/*/service.json"):
        return Service.from_json(path.read_text())
    return None


def test_a_program_starts_the_service_and_says_where_the_run_is_and_how_it_ended(
    environ: dict[str, str], tmp_path: Path
) -> None:
    _, errors = run(RANK, environ, tmp_path)

    lines = errors.splitlines()
    assert lines[0] == "otel_ml: run digits/one → ./runs/digits/one  (jsonl)"
    assert "otel_ml: Rank 1 is slow." in lines
    assert lines[-1].startswith("otel_ml: run digits/one finished. 1 process, 1 value recorded, 1 delivered, 0 lost. ")
    assert lines[-1].endswith(". Look: otel-ml ui")
    assert [point[:3] for point in eventually(lambda: points(tmp_path))] == [["loss", 0, 1.0]]


def test_the_console_can_be_silent(environ: dict[str, str], tmp_path: Path) -> None:
    _, errors = run(RANK, {**environ, "OTEL_ML_CONSOLE": "off"}, tmp_path)

    assert errors == ""


def test_many_processes_at_once_start_one_service(environ: dict[str, str], tmp_path: Path) -> None:
    program = """
        import otel_ml, sys
        rank = int(sys.stdin.readline())
        otel_ml.init("digits", id="one", rank=rank, world_size=8)
        otel_ml.log({"loss": rank}, step=0)
        print(otel_ml.flush(30), flush=True)
        sys.stdin.readline()
    """
    processes = [start(program, environ, tmp_path) for _ in range(8)]
    for rank, process in enumerate(processes):
        assert process.stdin is not None
        process.stdin.write(f"{rank}\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
    for process in processes:
        process.communicate("go\n", timeout=30)

    assert len(starts(tmp_path)) == 1
    assert sorted(point[3] for point in eventually(lambda: len(points(tmp_path)) == 8 and points(tmp_path))) == [
        *range(8)
    ]


def test_a_killed_service_is_started_again_and_nothing_is_lost(environ: dict[str, str], tmp_path: Path) -> None:
    program = """
        import otel_ml, sys
        otel_ml.init("digits", id="one")
        for i, line in enumerate(sys.stdin):
            otel_ml.set_step(i)
            otel_ml.log({"loss": i})
            print(otel_ml.flush(30) if line == "flush\\n" else "", flush=True)
    """
    process = start(program, environ, tmp_path)
    assert process.stdin is not None
    assert process.stdout is not None

    def tell(line: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    assert tell("flush") == "True"
    eventually(lambda: len(points(tmp_path)) == 1)
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    tell("record")
    assert tell("flush") == "True"
    process.communicate(timeout=30)

    assert len(starts(tmp_path)) == 2
    assert sorted(point[1] for point in eventually(lambda: len(points(tmp_path)) == 3 and points(tmp_path))) == [
        0,
        1,
        2,
    ]


def test_address_and_spool_are_readable_by_this_user_only(environ: dict[str, str], tmp_path: Path) -> None:
    program = RANK + "\n    print(otel_ml.flush(30), flush=True); sys.stdin.readline()\n"
    process = start(program, environ, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"

    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for pattern in ("run/*", "run/*/*", "run/*/*/*", "run/*/*/spool/*")
        for path in tmp_path.glob(pattern)
    }
    process.communicate("go\n", timeout=30)

    assert modes["service.json"] == 0o600
    assert {mode & 0o077 for mode in modes.values()} == {0}
    assert any(name.endswith(".spool") for name in modes)


def test_a_service_that_cannot_start_is_said_and_training_goes_on(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "otel_ml_service"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    (broken / "__main__.py").write_text("raise SystemExit('no disk')")

    _, errors = run(RANK, environment(tmp_path, path=broken.parent), tmp_path)

    assert "The service did not start (exit code 1)" in errors
    assert "no disk" in (folder(tmp_path) / "service.log").read_text()
    assert "1 point of rank 0 is not acknowledged" in errors


def test_what_a_dead_process_left_is_sent_by_the_next_start(environ: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "otel_ml_service"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    (broken / "__main__.py").write_text("raise SystemExit('no disk')")
    run(RANK, environment(tmp_path, path=broken.parent), tmp_path)

    run(RANK.replace('"loss"', '"again"'), environ, tmp_path)

    names = sorted(point[0] for point in eventually(lambda: len(points(tmp_path)) == 2 and points(tmp_path)))
    assert names == ["again", "loss"]


def test_a_file_of_a_dead_service_is_not_waited_for_long(environ: dict[str, str], tmp_path: Path) -> None:
    process = start(
        RANK + "\n    otel_ml.flush(30); print('ready', flush=True); sys.stdin.readline()\n", environ, tmp_path
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    assert service(tmp_path) is not None

    run(RANK + "\n    assert otel_ml.flush(30)\n", environ, tmp_path)

    assert len(starts(tmp_path)) == 2


def test_urls_come_from_the_service(environ: dict[str, str], tmp_path: Path) -> None:
    program = RANK + "\n    otel_ml.flush(30); print(run.dir, run.urls['jsonl'], 'jsonl' in run._repr_html_())\n"

    output, _ = run(program, environ, tmp_path)

    assert output.split() == [str(folder(tmp_path)), str(folder(tmp_path) / "metrics.jsonl"), "True"]


def test_hosts_that_share_the_folder_meet_in_one_run(environ: dict[str, str], tmp_path: Path) -> None:
    launched = {**environ, "MASTER_ADDR": "127.0.0.1", "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "2"}
    launched |= {"TORCHELASTIC_RUN_ID": "one", "OTEL_ML_EXPERIMENT_ID": "one"}
    program = """
        import otel_ml
        otel_ml.init("digits")
        otel_ml.log({"loss": 1}, step=0)
        print(otel_ml.flush(30), flush=True)
        input()
    """
    processes = []
    for host in range(2):
        (tmp_path / f"host{host}").mkdir()
        place = {"RANK": f"{host}", "GROUP_RANK": f"{host}", "XDG_RUNTIME_DIR": str(tmp_path / f"host{host}")}
        processes.append(start(program, {**launched, **place}, tmp_path))
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
    for process in processes:
        process.communicate("go\n", timeout=30)

    assert len(starts(tmp_path)) == 1
    found = eventually(lambda: len(points(tmp_path)) == 2 and points(tmp_path))
    assert sorted(point[3] for point in found) == [0, 1]
    assert list((tmp_path / "host1").glob("*/*/service.json")) == []
