"""`otel-ml env`: the settings of both programs, as they are in effect."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence

import click

from otel_ml import env as worker
from otel_ml.variable import AnyVariable, Setting
from otel_ml_exporters import env as service
from otel_ml_exporters.cli.screen import Screen, screen

__all__ = ["command", "markdown"]


@click.command("env", epilog="Example: otel-ml env --set")
@click.option("--set", "only_set", is_flag=True, help="Only what the environment sets.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The table of the documentation, without values.")
def command(only_set: bool, as_markdown: bool) -> None:
    """Print every setting, its effective value and where it came from; secrets are masked.

    A value that cannot be read is said, and the default is in effect. The command fails then.
    """
    if as_markdown:
        click.echo(markdown())
        return
    output = screen()
    settings = [variable.read() for variable in _ours()]
    standard = [variable.read() for variable in worker.STANDARD]
    _print(output, settings, only_set)
    output.line()
    output.line("OpenTelemetry's own", style="bold")
    _print(output, standard, only_set)
    problems = [setting.problem for setting in (*settings, *standard) if setting.problem]
    unknown = [f"{name}: there is no such setting.{_near(name)}" for name in _unknown()]
    for sentence in (*problems, *unknown):
        output.err.print(sentence, markup=False, style="yellow")
    if problems or unknown:
        raise click.exceptions.Exit(1)


def _ours() -> Sequence[AnyVariable]:
    """Return the variables of both programs; those they share, once."""
    return list({variable.name: variable for variable in (*worker.VARIABLES, *service.VARIABLES)}.values())


def _print(output: Screen, settings: Iterable[Setting[object]], only_set: bool) -> None:
    output.table(
        ["variable", "value", "from"],
        [
            [setting.variable.name, _value(setting), setting.source]
            for setting in settings
            if not only_set or setting.source != "default"
        ],
    )


def _value(setting: Setting[object]) -> str:
    variable = setting.variable
    if setting.source == "default" and variable.shown_default is not None:
        return variable.shown_default
    shown = setting.shown
    if isinstance(setting.value, tuple) and not variable.secret:
        shown = ",".join(map(str, setting.value))
    return f"{shown} {variable.unit}".rstrip()


def _unknown() -> list[str]:
    known = {variable.name for variable in _ours()}
    return sorted(name for name in os.environ if name.startswith("OTEL_ML_") and name not in known)


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, [variable.name for variable in _ours()], n=1)
    return f" Did you mean {near[0]}?" if near else ""


def markdown() -> str:
    """Return the documentation's table of all variables.

    Examples:
        >>> markdown().splitlines()[0]
        '| variable | default | meaning |'
    """
    rows = (f"| `{row.name}` | {_default(row)} | {row.doc} |" for row in (*_ours(), *worker.STANDARD))
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows])


def _default(variable: AnyVariable) -> str:
    if variable.shown_default is not None:
        return variable.shown_default
    if variable.default in ("", (), None) or variable.default == {}:
        return "–"
    default = str(variable.default).lower() if isinstance(variable.default, bool) else str(variable.default)
    return f"`{default}`" + (f" {variable.unit}" if variable.unit else "")
