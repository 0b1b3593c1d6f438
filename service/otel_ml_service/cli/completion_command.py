"""`otel-ml completion`: the script that makes a shell complete commands, runs and metrics."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from otel_ml.exceptions import ConfigError

__all__ = ["command"]

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog='Example, in ~/.bashrc: eval "$(otel-ml completion bash)"',
)
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
def command(shell: str | None) -> None:
    """Print the script for SHELL (the shell you use, if left out). Evaluate it in your shell's start-up file."""
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    completion = get_completion_class(chosen) if chosen in _SHELLS else None
    if completion is None:
        raise ConfigError(f"SHELL is {chosen!r}; expected one of {', '.join(_SHELLS)}. Write: otel-ml completion bash")
    # Of the whole program: of this command alone the script would complete nothing else.
    root = click.get_current_context().find_root().command
    click.echo(completion(root, {}, "otel-ml", "_OTEL_ML_COMPLETE").source())
