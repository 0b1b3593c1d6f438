"""`otel-ml demo`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from otel_ml.env import DIR
from otel_ml_service.cli.parameters import EXPORTERS, dir_option
from otel_ml_service.cli.shipped_folders import shipped
from otel_ml_service.exit_status import exit_status

__all__ = ["command"]


@click.command("demo", epilog="Example: otel-ml demo --to jsonl,tensorboard")
@dir_option
@click.option(
    "--to", "exporters", type=EXPORTERS, help="Exporters, comma-separated.", show_default="all that are installed"
)
@click.option("--steps", type=click.IntRange(120), default=240, show_default=True, help="Training steps.")
@click.option("--diagnose", is_flag=True, help="Instead: a job of seconds, what is found in it, and why.")
def command(base: Path, exporters: tuple[str, ...] | None, steps: int, diagnose: bool) -> None:
    """Train on real digits with 4 ranks and an evaluator, and look at what was recorded.

    One rank is slowed for a while, the evaluator is killed once. The summary at the end is computed from the recorded
    data. Needs scikit-learn (`pip install 'otel-ml[demo]'`), no network, less than a minute.
    """
    if diagnose:
        _diagnose(base)
        return
    from otel_ml_service.demo.run import run_demo

    if not run_demo(base, exporters, steps):
        raise click.exceptions.Exit(1)


def _diagnose(base: Path) -> None:
    """Run the example that finds its own slow rank."""
    # `--steps` has a default, so its value does not say whether a person gave it.
    source = click.get_current_context().get_parameter_source
    if ParameterSource.COMMANDLINE in {source("exporters"), source("steps")}:
        raise click.UsageError("--diagnose goes with --dir alone: leave out --to and --steps.")
    program = shipped("examples") / "diagnose.py"
    done = subprocess.run([sys.executable, program], env={**os.environ, DIR.name: str(base)}, check=False)
    if done.returncode:
        raise click.exceptions.Exit(exit_status(done.returncode))
