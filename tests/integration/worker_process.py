"""Runs worker programs as real processes, as users do."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from tests.otlp_server import OtlpServer
from tests.surroundings import SOURCES

ROOT = Path(__file__).resolve().parents[2]


def environment(
    folder: Path, variables: Mapping[str, str] | None = None, *, path: Path | None = None
) -> dict[str, str]:
    """A clean environment: none of this process' variables of otel_ml, OTel or launchers; folders of the test."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if name in os.environ}
    runtime_dir = folder / "run"
    runtime_dir.mkdir(exist_ok=True)
    search = [str(path)] if path else []
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([*search, SOURCES]),
        "XDG_RUNTIME_DIR": str(runtime_dir),
        "OTEL_ML_DIR": str(folder / "runs"),
        "OTEL_ML_CAPTURE": "off",
        **(variables or {}),
    }


def variables(server: OtlpServer, **more: str) -> dict[str, str]:
    """The variables of a process that sends to `server`."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, **more}


def start(program: str, environ: Mapping[str, str], folder: Path) -> subprocess.Popen[str]:
    """Start `program` (source text) in `folder`; it talks on its pipes."""
    source = folder / f"program_{len(list(folder.glob('program_*')))}.py"
    source.write_text(textwrap.dedent(program))
    return subprocess.Popen(
        [sys.executable, str(source)],
        env=dict(environ),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(program: str, environ: Mapping[str, str], folder: Path, *, code: int = 0) -> tuple[str, str]:
    """Run `program` to its end, which must be exit `code`; return (stdout, stderr)."""
    process = start(program, environ, folder)
    output, errors = process.communicate(timeout=100)  # a busy machine is slow, not wrong
    assert process.returncode == code, errors
    return output, errors


def status(server: OtlpServer) -> list[str]:
    """Return how each process said that it ended."""
    return [event.attributes["ml.status"] for event in server.events("ml.writer.end")]
