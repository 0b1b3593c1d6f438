"""Run an example as its docstring says, and find the run it made."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.e2e.jobs import ROOT, environment, finished, the_run_in

EXAMPLES = ROOT / "examples"


def run_of(example: str, cwd: Path, *arguments: object, exporters: str = "jsonl,tensorboard") -> Path:
    """Run `python examples/<example>` in `cwd`; return the folder of the one run there is then."""
    command = [sys.executable, EXAMPLES / example, *arguments]
    finished(command, environment(OTEL_ML_EXPORTERS=exporters), cwd)
    return the_run_in(cwd / "otel-ml-runs")
