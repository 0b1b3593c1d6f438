"""`import otel_ml` is cheap, and loads nothing that a training program did not ask for."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.e2e.jobs import environment

HEAVY = {
    "torch",
    "wandb",
    "mlflow",
    "tensorboard",
    "tensorflow",
    "grpc",
    "pandas",
    "matplotlib",
    "PIL",
    "sklearn",
    "ray",
}

SEES_FORKS = ["otel_ml._internal", "otel_ml._internal.forks"]
"""Comes with `otel_ml`: later nobody can tell."""


def python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_otel_ml_loads_no_backend_no_framework_and_no_service() -> None:
    loaded = json.loads(python("import otel_ml, sys, json; print(json.dumps(sorted(sys.modules)))"))

    packages = {name.partition(".")[0] for name in loaded}
    assert packages & (HEAVY | {"otel_ml_exporters", "otel_ml_service", "click", "rich", "yaml"}) == set()


def test_importing_otel_ml_loads_nothing_that_records_until_it_is_used() -> None:
    program = """
import otel_ml, sys, json
before = sorted(sys.modules)
otel_ml.log  # used, not called: the test's variables ask for a run, which the first record starts
print(json.dumps([before, sorted(sys.modules)]))
"""
    before, after = json.loads(python(program))

    assert [name for name in before if name.startswith("otel_ml.")] == [
        *SEES_FORKS,
        "otel_ml.exceptions",
        "otel_ml.explanation",
    ]
    assert {"typing", "dataclasses", "inspect"} & set(before) == set()
    assert "otel_ml._internal.recording" in after
    assert "otel_ml._internal.lifecycle.runtime" not in after


def test_the_service_loads_nothing_that_records_and_nothing_that_draws() -> None:
    """A job of a second waits for its service to start: what that imports is what the job waits for.

    The compiled part, which reads and writes spans, is half a millisecond of it.
    """
    program = "import otel_ml_service.cli.serve_command, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(python(program))

    packages = {name.partition(".")[0] for name in loaded}
    assert packages & (HEAVY | {"rich", "yaml"}) == set()
    assert [name for name in loaded if name.startswith("otel_ml._internal")] == [
        *SEES_FORKS,
        "otel_ml._internal.native",
    ]


def test_importing_otel_ml_takes_less_than_150_ms() -> None:
    """CPU time, the best of five: what the neighbors on the machine do is not otel_ml's cost."""
    program = "import time; a = time.process_time(); import otel_ml; print(time.process_time() - a)"

    assert min(float(python(program)) for _ in range(5)) < 0.150


def test_importing_otel_ml_starts_no_thread_and_opens_no_file() -> None:
    program = """
import threading, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "socket.connect" else None)
import otel_ml
print(threading.active_count(), opened)
"""
    assert python(program) == "1 []\n"
