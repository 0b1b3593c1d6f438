"""The end of W&B's own process."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

from otel_ml_exporters.backends.wandb.exporter import kill_core


def test_that_wandb_exits_with_the_code_of_its_killed_process_ends_nothing() -> None:
    torn_down: list[bool] = []

    def teardown() -> None:
        torn_down.append(True)
        sys.exit(-9)  # as `wandb.teardown()` of 0.31 does

    kill_core(SimpleNamespace(teardown=teardown))

    assert torn_down == [True]


def test_what_wandb_imports_at_the_first_image_is_there_before_other_threads_may_want_it() -> None:
    program = """
import sys
from pathlib import Path
from otel_ml_exporters.backends.wandb.open_run import load_wandb
load_wandb(Path("."))
print(type(sys.modules["PIL.Image"]).__name__, callable(sys.modules["PIL.Image"].open))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["module", "True"]
