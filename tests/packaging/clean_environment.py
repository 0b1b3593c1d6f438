"""Commands that do not see this repository, and environments in which only a wheel is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["environment_with", "run", "succeeded"]


def run(command: list[object], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that sees neither this repository nor this environment."""
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=float(variables.get("TIMEOUT_S", "60")),
    )


def succeeded(command: list[object], cwd: Path, **variables: str) -> str:
    done = run(command, cwd, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def environment_with(requirement: str, folder: Path, **variables: str) -> Path:
    """Install it into an environment of its own, and return that one's `bin`.

    The pip is that of this environment: to give each its own, and to compile what nobody imports, took 14 seconds.
    """
    succeeded([sys.executable, "-m", "venv", "--without-pip", "venv"], folder)
    pip = [sys.executable, "-m", "pip", "--python", "venv/bin/python"]
    succeeded([*pip, "install", "--quiet", "--no-compile", requirement], folder, **variables)
    return folder / "venv" / "bin"
