"""Folders of the repository that the pages speak of, for who has only the package."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from otel_ml_service.cli.screen import screen

__all__ = ["shipped", "write"]

_INSTALLED = Path(__file__).with_name("shipped")
_CHECKOUT = Path(__file__).parents[3]


def shipped(name: str) -> Path:
    """Return where a folder of the repository is in what is installed."""
    return (_INSTALLED if _INSTALLED.is_dir() else _CHECKOUT) / name


def write(names: Sequence[str], folder: Path, as_json: bool) -> None:
    """Write the folders below `folder`, and print where they are; nothing that is there is written over.

    Raises:
        click.BadParameter: one of them is there.
    """
    # All are looked at before the first is written: half a set helps nobody.
    taken = [name for name in names if (folder / name).exists()]
    if taken:
        raise click.BadParameter(f"{str(folder / taken[0])!r} is there: choose another folder.", param_hint="FOLDER")
    for name in names:
        shutil.copytree(shipped(name), folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    written = [str(folder / name) for name in names]
    if as_json:
        click.echo(json.dumps({"dirs": written}))
    else:
        for path in written:
            screen().line(path)
