"""What was imported from `otel_ml_exporters` before the service had a package of its own is found there still."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("findings.detector", "findings.detector"),
        ("receiver.http_message", "receiver.http_message"),
        ("experiments.run_log", "live_runs.run_log"),
        ("runs.recover", "stored_runs.recover"),
        ("cli", "cli"),
        ("env", "env"),
    ],
)
@pytest.mark.parametrize("first", ["former", "now"])
def test_a_module_of_the_service_has_its_former_name_too(former: str, now: str, first: str) -> None:
    names = [f"otel_ml_exporters.{former}", f"otel_ml_service.{now}"]
    program = (
        "import importlib, sys\n"
        "one, other = map(importlib.import_module, sys.argv[1:])\n"
        "assert one is other and 'otel_ml_service' in one.__name__ and one.__spec__.name == one.__name__\n"
    )
    order = names if first == "former" else names[::-1]
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *order], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_former_name_says_where_the_module_is_now() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", "-c", "import otel_ml_exporters.runs"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "otel_ml_exporters.runs is otel_ml_service.stored_runs now" in done.stderr


def test_what_never_was_there_is_not_found() -> None:
    done = subprocess.run([sys.executable, "-c", "import otel_ml_exporters.nothing"], capture_output=True, check=False)
    assert b"ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("package", ["otel_ml_exporters", "otel_ml_service"])
def test_both_packages_are_the_command_line(package: str) -> None:
    done = subprocess.run([sys.executable, "-m", package, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("otel-ml ")
