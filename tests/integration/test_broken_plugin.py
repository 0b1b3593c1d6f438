"""An exporter of somebody else that cannot be loaded takes nothing from the others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import environment, finished, the_run_in
from tests.plugin_package import install

MODULE = """
from otel_ml_exporters import Exporter

class Broken(Exporter):
    def __init__(self):
        raise ValueError("no key")
    def start(self, run):
        pass
    def position(self):
        return None
    def export(self, records):
        pass
    def shutdown(self, timeout, status):
        pass
"""

BROKEN = ["constructor", "class", "module", "leaves"]

JOB = """
import otel_ml, sys
with otel_ml.init("exp", exporters=sys.argv[1]):
    for step in range(3):
        otel_ml.log({"loss": 1.0}, step=step)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process in which a package with broken exporters is installed."""
    modules = {
        "acme": MODULE,
        "acme_raises": "raise RuntimeError('not on this machine')",
        "acme_leaves": "raise SystemExit('set ACME_KEY')",
    }
    exporters = "constructor = acme:Broken\nclass = acme:Nobody\nmodule = acme_raises:X\nleaves = acme_leaves:X"
    package = install(tmp_path / "site", modules, exporters)
    found = environment()
    return {**found, "PYTHONPATH": os.pathsep.join([str(package), found["PYTHONPATH"]])}


def otel_ml_command(*arguments: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "otel_ml_service", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_the_list_of_exporters_says_which_are_broken(environ: dict[str, str], tmp_path: Path) -> None:
    listed = otel_ml_command("exporters", "--json", env=environ, cwd=tmp_path)

    assert listed.returncode == 0, listed.stderr
    assert '"name": "jsonl", "state": "installed"' in listed.stdout
    assert "RuntimeError: not on this machine" in listed.stdout
    assert "AttributeError" in listed.stdout
    assert "SystemExit: set ACME_KEY" in listed.stdout


def test_a_service_says_everything_that_is_broken_at_once(environ: dict[str, str], tmp_path: Path) -> None:
    served = otel_ml_command("serve", "--to", ",".join([*BROKEN, "nosuch"]), env=environ, cwd=tmp_path)

    assert served.returncode != 0
    assert "Traceback" not in served.stderr
    said = " ".join(served.stderr.split())
    for what in (
        "ValueError: no key",
        "AttributeError",
        "RuntimeError: not on this machine",
        "set ACME_KEY",
        "'nosuch'",
    ):
        assert what in said


def test_a_run_goes_on_with_the_exporters_that_can_be_loaded(environ: dict[str, str], tmp_path: Path) -> None:
    finished([sys.executable, "-c", JOB, ",".join(["jsonl", *BROKEN])], environ, tmp_path)

    assert otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["loss"] == ([0, 1, 2], [1.0] * 3)
