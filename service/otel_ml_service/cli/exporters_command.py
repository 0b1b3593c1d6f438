"""`otel-ml exporters`: where a run can go."""

from __future__ import annotations

import json
import re
import sys

import click

from otel_ml.exceptions import MissingDependencyError
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.registry import BUILT_IN, exporter_class, registered, shown_failure
from otel_ml_service.cli.packages import installed_version
from otel_ml_service.cli.screen import screen

__all__ = ["command", "guarantee"]

# From `Guarantee:` to the next line that begins with a capitalized word and a colon (`Ordering:`), or to the end.
_GUARANTEE = re.compile(
    r"^\s*(?:\*\*)?Guarantee(?:\*\*)?:\s*(.+?)(?=\n\s*(?:\*\*)?[A-Z][a-z]+(?:\*\*)?:|\Z)", re.DOTALL | re.MULTILINE
)
"""One of the four fixed lines at the end of a backend's docstring."""


@click.command("exporters", epilog="Example: otel-ml exporters; then: OTEL_ML_EXPORTERS=tensorboard,wandb")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
def command(as_json: bool) -> None:
    """List the exporters: installed or what to install, and what each guarantees."""
    rows = [(name, *_state(name)) for name in sorted(registered())]
    if as_json:
        for name, state, promise in rows:
            click.echo(json.dumps({"name": name, "state": state, "guarantee": promise}))
        return
    screen().table(["exporter", "state", "guarantee"], [list(row) for row in rows])


def _state(name: str) -> tuple[str, str]:
    """Return (installed or the line to type, guarantee)."""
    package = BUILT_IN[name].package if name in BUILT_IN else None
    try:
        # The class is loaded, and with it a plug-in's own code; the library of a backend is not.
        promise = guarantee(exporter_class(name))
    except MissingDependencyError as error:
        return f"pip install 'otel-ml[{error.extra}]'", ""
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a plug-in's own code; the others are listed)
        return f"broken: {shown_failure(error)}", ""
    if package is None:
        return "installed", promise
    version = installed_version(package)
    state = f"{package} {version}" if version is not None else f"pip install 'otel-ml[{name}]'"
    return state, promise


def guarantee(exporter: type[Exporter]) -> str:
    """Return the first clause of an exporter's guarantee, from the docstring of its class or of its module."""
    module = sys.modules[exporter.__module__]
    for docstring in (exporter.__doc__, module.__doc__):
        match = _GUARANTEE.search(docstring or "")
        if match:
            # `exactly once, after a kill too: a torn last line …` → `Exactly once, after a kill too`.
            first = " ".join(match[1].split()).partition(". ")[0].partition(":")[0].rstrip(".")
            return first[:1].upper() + first[1:]
    return ""
