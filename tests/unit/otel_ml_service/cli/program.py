"""`otel-ml` as a process of its own, with an environment that holds nothing of the machine's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["PROGRAM", "environment", "otel_ml"]

PROGRAM = [sys.executable, "-m", "otel_ml_service"]


def environment(base: Path, **settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**kept, "PYTHONPATH": path, "OTEL_ML_DIR": str(base), "XDG_RUNTIME_DIR": str(base), **settings}


def otel_ml(base: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], env=environment(base, **settings), capture_output=True, text=True, check=False
    )
