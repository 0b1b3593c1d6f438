"""`otel-ml deployment-files FOLDER`: what the pages on deployment speak of, for who has only the package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click

from otel_ml_service.cli.screen import screen

__all__ = ["FOLDERS", "command"]

FOLDERS = ("collector-config", "deploy", "monitoring")

_INSTALLED = Path(__file__).with_name("deployment")
_CHECKOUT = Path(__file__).parents[3]


@click.command("deployment-files", epilog="Example: otel-ml deployment-files here; then: cd here")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def command(folder: Path, as_json: bool) -> None:
    """Write the Collector's configuration, the Helm chart, and the alert rules into a FOLDER."""
    taken = [name for name in FOLDERS if (folder / name).exists()]
    if taken:
        raise click.BadParameter(f"{str(folder / taken[0])!r} is there: choose another folder.", param_hint="FOLDER")
    source = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
    for name in FOLDERS:
        shutil.copytree(source / name, folder / name)
    written = [str(folder / name) for name in FOLDERS]
    if as_json:
        click.echo(json.dumps({"dirs": written}))
    else:
        for path in written:
            screen().line(path)
