"""`otel-ml new-exporter NAME`: a project with an exporter that passes the contract, to begin with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.abc import Traversable
from importlib.resources import files
from pathlib import Path

import click

from otel_ml_exporters.registry import is_registered
from otel_ml_service.cli.screen import screen

__all__ = ["command"]

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_ENDING = ".txt"
"""Templates are not modules: nobody checks, imports or tests them here."""


@click.command("new-exporter", epilog="Example: otel-ml new-exporter clickhouse; then: cd otel-ml-clickhouse")
@click.argument("name")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to write; by default otel-ml-NAME, here.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def command(name: str, out: Path | None, as_json: bool) -> None:
    """Write a project with the exporter NAME: it passes its tests at once, and you replace what stores."""
    if _NAME.fullmatch(name) is None:
        raise click.BadParameter(
            f"expected small letters, digits and single dashes, such as 'clickhouse', got {name!r}.", param_hint="NAME"
        )
    if is_registered(name):
        raise click.BadParameter(f"there is an exporter {name!r} here: choose another name.", param_hint="NAME")
    words = _words(name)
    folder = out or Path(words["@project@"])
    # An empty folder may have been made for this.
    if folder.exists() and any(folder.iterdir()):
        raise click.BadParameter(f"{str(folder)!r} is not empty: choose another folder with --out.", param_hint="--out")
    for path, text in _files(files("otel_ml_service.cli") / "new_exporter", Path(), words):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    output = screen()
    exporter = folder / words["@module@"] / "exporter.py"
    if as_json:
        click.echo(json.dumps({"name": name, "dir": str(folder), "exporter": str(exporter)}))
    else:
        output.line(f"{exporter}")
    output.note(f"cd {folder}; pip install -e '.[test]'; python -m pytest")


def _words(name: str) -> Mapping[str, str]:
    """Return what stands for each place in a template.

    Examples:
        >>> _words("click-house")["@module@"], _words("click-house")["@class@"]
        ('otel_ml_click_house', 'ClickHouseExporter')
    """
    parts = re.split("[-_]", name)
    return {
        "@name@": name,
        "@project@": f"otel-ml-{'-'.join(parts)}",
        "@module@": f"otel_ml_{'_'.join(parts)}",
        "@class@": f"{''.join(part.capitalize() for part in parts)}Exporter",
    }


def _files(template: Traversable, place: Path, words: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield path and text of each file of a project."""
    for entry in template.iterdir():
        if entry.is_dir():
            # The template's folder `package` stands for the module, whose name is not known before.
            folder = words["@module@"] if entry.name == "package" else entry.name
            yield from _files(entry, place / folder, words)
        elif entry.name.endswith(_ENDING):
            text = entry.read_text(encoding="utf-8")
            for mark, word in words.items():
                text = text.replace(mark, word)
            yield place / entry.name.removesuffix(_ENDING), text
