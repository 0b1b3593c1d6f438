"""`otel-ml demo`."""

from __future__ import annotations

from pathlib import Path

import click

from otel_ml_service.cli.parameters import EXPORTERS, dir_option

__all__ = ["command"]


@click.command("demo", epilog="Example: otel-ml demo --to jsonl,tensorboard")
@dir_option
@click.option(
    "--to", "exporters", type=EXPORTERS, help="Exporters, comma-separated.", show_default="all that are installed"
)
@click.option("--steps", type=click.IntRange(120), default=240, show_default=True, help="Training steps.")
def command(base: Path, exporters: tuple[str, ...] | None, steps: int) -> None:
    """Train on real digits with 4 ranks and an evaluator, and look at what was recorded.

    One rank is slowed for a while, the evaluator is killed once. The summary at the end is computed from the recorded
    data. Needs scikit-learn (`pip install 'otel-ml[demo]'`), no network, less than a minute.
    """
    from otel_ml_service.demo.run import run_demo

    if not run_demo(base, exporters, steps):
        raise click.exceptions.Exit(1)
