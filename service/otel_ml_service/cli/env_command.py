"""`otel-ml env`: the settings of both programs, as they are in effect."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence

import click

from otel_ml import env as worker
from otel_ml._internal.lifecycle.unknown_settings import unknown_settings
from otel_ml.redaction import redacted
from otel_ml.variable import AnyVariable, Setting
from otel_ml_service import env as service
from otel_ml_service.cli.screen import Screen, screen

__all__ = ["command", "markdown"]

_NOTHING = ("", (), None)
"""Values that stand for: not set."""


@click.command("env", epilog="Example: otel-ml env --set")
@click.option("--set", "only_set", is_flag=True, help="Only what the environment sets.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The table of the documentation, without values.")
def command(only_set: bool, as_json: bool, as_markdown: bool) -> None:
    """Print every setting, its effective value and where it came from; secrets are masked.

    A value that cannot be read is reported, and the default is in effect. The command fails then.
    """
    if as_markdown:
        click.echo(markdown())
        return
    output = screen()
    settings = [variable.read() for variable in _ours()]
    standard = [variable.read() for variable in worker.STANDARD]
    # Problems are told of these alone, too: a variable that is not set has none.
    if only_set:
        settings, standard = _set(settings), _set(standard)
    if as_json:
        _print_json([*settings, *standard])
    else:
        _print_tables(output, settings, standard)
    problems = [setting.problem for setting in (*settings, *standard) if setting.problem]
    unknown = [
        f"{name}: there is no such setting.{f' Did you mean {meant}?' if meant else ''}"
        for name, meant in unknown_settings(os.environ).items()
    ]
    for sentence in (*problems, *unknown):
        output.err.print(sentence, markup=False, style="yellow")
    if problems or unknown:
        raise click.exceptions.Exit(1)


def _print_json(settings: Iterable[Setting[object]]) -> None:
    for setting in settings:
        click.echo(json.dumps({"name": setting.variable.name, "value": _value(setting), "from": setting.source}))


def _print_tables(output: Screen, ours: Sequence[Setting[object]], standard: Sequence[Setting[object]]) -> None:
    # `--set` may leave nothing of either: then the note that nothing is set is printed once.
    if ours or not standard:
        _print(output, ours)
    if standard:
        output.line()
        output.line("OpenTelemetry's own", style="bold")
        _print(output, standard)


def _ours() -> Sequence[AnyVariable]:
    """Return the variables of both programs; those they share, once."""
    # Both programs read `OTEL_ML_DIR` and others: in two rows one would look like two settings.
    shared = {variable.name for variable in worker.VARIABLES}
    return [*worker.VARIABLES, *(variable for variable in service.VARIABLES if variable.name not in shared)]


def _set(settings: Iterable[Setting[object]]) -> list[Setting[object]]:
    """Return those that the environment sets."""
    return [setting for setting in settings if setting.source != "default"]


def _print(output: Screen, settings: Sequence[Setting[object]]) -> None:
    if not settings:
        output.note("The environment sets none: each setting has its default.")
        return
    output.table(
        ["variable", "value", "from"],
        [[setting.variable.name, _value(setting), setting.source] for setting in settings],
    )


def _value(setting: Setting[object]) -> str:
    variable = setting.variable
    # Some defaults depend on the host, or on other settings: their text says how they are found.
    if setting.source == "default" and variable.shown_default is not None:
        return variable.shown_default.replace("`", "")
    if setting.value in _NOTHING or setting.value == {}:
        return ""
    if variable.secret:
        return setting.shown
    return redacted(f"{_text(setting.value)} {variable.unit}".rstrip())


def _text(value: object) -> str:
    """Return a value as a person would write it into the environment."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        # A tuple with a number is an address, of host and port; all others are lists of texts.
        return (":" if any(isinstance(part, int) for part in value) else ",").join(map(str, value))
    if isinstance(value, Mapping):
        return ",".join(f"{key}={part}" for key, part in value.items())
    return str(value)


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
    if variable.default in _NOTHING or variable.default == {}:
        return "–"
    return f"`{_text(variable.default)}` {variable.unit}".rstrip()
