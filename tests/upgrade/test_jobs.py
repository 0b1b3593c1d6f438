"""A job that starts with an older otel_ml than the one that has its run: as after a downgrade between two launches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from otel_ml_service.versions import RUN
from tests.integration.worker_process import environment, run
from tests.upgrade.test_upgrades import made_newer
from tests.waiting import eventually

pytestmark = pytest.mark.long

JOB = """
    import otel_ml

    with otel_ml.init("exp", id="one", exporters="jsonl"):
        for step in range({}):
            otel_ml.set_step(step)
            otel_ml.log({{"loss": step / 8}})
    print("trained")
"""


def recover(environ: dict[str, str], *runs: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "otel_ml_service", "recover"]
    return subprocess.run([*command, *runs], env=environ, capture_output=True, text=True, check=False, timeout=100)


def test_training_goes_on_the_run_is_left_as_it_is_by_name_and_the_newer_version_finishes_it(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    folder = tmp_path / "runs" / "exp" / "one"
    run(JOB.format("10"), environ, tmp_path)
    eventually(lambda: not (folder / "state" / "run.db-wal").exists(), timeout=60.0)  # its service has ended
    made_newer(folder / "state" / "run.db", RUN + 1)
    before = (folder / "state" / "run.db").read_bytes()

    output, errors = run(JOB.format("10, 30"), environ, tmp_path)
    refused = recover(environ)

    assert output == "trained\n"
    by_name = f"was written by otel_ml 9.1.0, in version {RUN + 1} of its form"
    assert by_name in errors
    assert "20 points of rank 0 are not acknowledged; they are kept on this host" in errors
    assert by_name in refused.stdout
    assert refused.returncode == 1
    assert (folder / "state" / "run.db").read_bytes() == before
    assert not list(folder.glob("state/*damaged*"))

    made_newer(folder / "state" / "run.db", RUN)
    done = recover(environ)

    assert "30 values" in done.stdout
    assert "0 lost" in done.stdout
    assert done.returncode == 0
    assert otel_ml.read(folder)["loss"] == ([*range(30)], [step / 8 for step in range(30)])


def test_what_a_newer_worker_left_is_named_and_stays_until_a_version_comes_that_reads_it(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    killed = """
        import os, signal, time, otel_ml
        from pathlib import Path
        from otel_ml.wire.spool_format import read_spool

        otel_ml.init("exp", id="one", exporters="jsonl")
        otel_ml.log({"loss": 0.5}, step=0)
        spools = lambda: Path(os.environ["XDG_RUNTIME_DIR"]).glob("*/*/spool/*.spool")
        while not any(b"loss" in frame.payload for path in spools() for frame in read_spool(path).frames):
            time.sleep(0.01)  # between two looks
        os.kill(os.getpid(), signal.SIGKILL)
    """
    nowhere = {**environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    run(killed, nowhere, tmp_path, code=-9)
    [spool] = tmp_path.glob("run/*/*/spool/*.spool")
    content = spool.read_bytes()
    newer = content.replace(b"otel_ml spool 1\n", b"otel_ml spool 2 9.1.0\n", 1)
    spool.write_bytes(newer)

    refused = recover(environ)

    assert "was written by otel_ml 9.1.0, in version 2 of its form" in refused.stdout
    assert "Nothing to recover" not in refused.stdout
    assert refused.returncode == 1
    assert spool.read_bytes() == newer

    spool.write_bytes(content)
    done = recover(environ, "one")

    assert done.returncode == 0
    assert otel_ml.read(tmp_path / "runs" / "exp" / "one")["loss"] == ([0], [0.5])
