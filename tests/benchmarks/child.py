"""A fresh process for each measurement: nothing that ran before is in its memory, its threads or its caches.

`python -m tests.benchmarks.child MODULE:FUNCTION JSON [BLOCKED…]` calls the function with the JSON's fields and prints
its answer; modules that are blocked cannot be imported.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from tests.e2e.jobs import environment
from tests.surroundings import is_the_shells

__all__ = ["answer_of", "bare_environment", "sending_to"]

QUIET = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONWARNINGS": "ignore",
    "OMP_NUM_THREADS": "1",
}
"""What would be measured beside the measured, or would reach for the network."""


def bare_environment(**variables: object) -> dict[str, str]:
    """Return an environment that asks for no run: a variable of otel_ml or of OTLP may be such a wish."""
    inherited = {name: value for name, value in environment().items() if not is_the_shells(name)}
    return inherited | QUIET | {name: str(value) for name, value in variables.items()}


def sending_to(url: str, **more: str) -> dict[str, str]:
    """Return the variables of a worker that sends to `url` and says nothing."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_ML_CONSOLE": "off", "OTEL_ML_CAPTURE": "off", **more}


def command_of(function: Callable[..., Any], **arguments: object) -> list[str]:
    """Return the command that calls `function` in a process of its own."""
    where = f"{function.__module__}:{function.__name__}"
    return [sys.executable, "-m", "tests.benchmarks.child", where, json.dumps(arguments)]


def answer_of(
    function: Callable[..., Any], *, env: dict[str, str] | None = None, blocked: Sequence[str] = (), **arguments: object
) -> Any:
    """Return what `function` answers in a process of its own, in an empty folder, without the modules `blocked`."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder:
        done = subprocess.run(
            [*command_of(function, **arguments), *blocked],
            env=bare_environment(**(env or {})),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    if done.returncode:
        raise RuntimeError(f"{function.__module__}:{function.__name__} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    for blocked_module in sys.argv[3:]:
        sys.modules[blocked_module] = None  # type: ignore[assignment]
    module, _, name = sys.argv[1].partition(":")
    answer = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
    print("\n" + json.dumps(answer), flush=True)
