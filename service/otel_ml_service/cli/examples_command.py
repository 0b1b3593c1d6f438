"""`otel-ml examples`: the programs that the pages run, for who has only the package."""

from __future__ import annotations

from pathlib import Path

import click

from otel_ml_service.cli.shipped_folders import write

__all__ = ["FOLDERS", "command"]

FOLDERS = ("examples",)


@click.command("examples", epilog="Example: otel-ml examples; then: python examples/diagnose.py")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def command(folder: Path, as_json: bool) -> None:
    """Write the programs that the pages run as `examples` into FOLDER (by default here)."""
    write(FOLDERS, folder, as_json)
