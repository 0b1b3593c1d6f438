"""`otel-ml recover`."""

from __future__ import annotations

from pathlib import Path

import click

from otel_ml_exporters.cli.figures import plural
from otel_ml_exporters.cli.parameters import dir_option
from otel_ml_exporters.cli.screen import screen
from otel_ml_exporters.runs.recover import recover, unfinished

__all__ = ["command"]


@click.command("recover", epilog="Example: otel-ml recover --timeout 120")
@dir_option
@click.option("--dry-run", is_flag=True, help="Only say which runs are not finished.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds a run may take at most."
)
def command(base: Path, dry_run: bool, timeout: float) -> None:
    """Deliver what was recorded on this host and is in no backend yet: after a crash, a full disk, a power cut.

    Runs that are being recorded are left alone. Running it again does no harm: nothing is written twice.
    """
    output = screen()
    found = unfinished(base.absolute())
    if not found:
        output.line("Nothing to recover: every run on this host is delivered.")
        return
    left = 0
    for run in found:
        spools = f", {plural(run.spools, 'spool')} of workers" if run.spools else ""
        output.line(f"{run.experiment}/{run.id}: not finished{spools}")
        if dry_run:
            continue
        if recover(run, base.absolute(), timeout):
            output.line("  delivered")
        else:
            left += 1
            output.line(f"  not done within {timeout:.0f} s; see {base / run.experiment / run.id}, and run it again")
    if left:
        raise click.exceptions.Exit(1)
