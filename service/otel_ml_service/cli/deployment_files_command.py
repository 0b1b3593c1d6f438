"""`otel-ml deployment-files FOLDER`: what the pages on deployment speak of, for who has only the package."""

from __future__ import annotations

from pathlib import Path

import click

from otel_ml_service.cli.shipped_folders import write

__all__ = ["FOLDERS", "command"]

FOLDERS = ("collector-config", "deploy", "monitoring")


@click.command("deployment-files", epilog="Example: otel-ml deployment-files here; then: cd here")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def command(folder: Path, as_json: bool) -> None:
    """Write the Collector's configuration, the Helm chart, and the alert rules into a FOLDER."""
    write(FOLDERS, folder, as_json)
