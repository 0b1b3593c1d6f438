"""The command line `otel-ml`: one file per command, loaded when it is used."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from typing import Any, TextIO

import click

from otel_ml.exceptions import OtelMLError
from otel_ml.explanation import explained
from otel_ml.printable import printable
from otel_ml.redaction import redacted

__all__ = ["cli", "main"]


class ReaderHasLeftError(Exception):
    """Whoever read what a command prints, such as `head`, has enough."""


class CommandGroup(click.Group):
    """Find the command `a-b` as the function `command` of the module `<package>.a_b_command`, when it is used.

    The list of commands and their one-line help are known without importing them.
    """

    def __init__(self, *, commands_of: str, help_of: Mapping[str, str], **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._package = commands_of
        self._help_of = help_of

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of a first visit, not of the alphabet."""
        return list(self._help_of)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self._help_of:
            return None
        module = importlib.import_module(f"{self._package}.{cmd_name.replace('-', '_')}_command")
        command = module.command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module.__name__}.command is not a click command.")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; where a pipe is closed click and rich would leave with an error, and without a word."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderHasLeftError from error
        # rich's console turns a closed pipe into `SystemExit(1)`; what it was handling then is the context of that.
        except SystemExit as left:
            if isinstance(left.__context__, BrokenPipeError):
                raise ReaderHasLeftError from left
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say the nearest command where the name is unknown."""
        # An option that is not known is left to click, which names the nearest one.
        if args and args[0] not in self._help_of and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self._help_of, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"Unknown command {args[0]!r}.{hint} Known: {', '.join(self._help_of)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._help_of.items()))


COMMANDS = {
    "demo": "Train on real digits with 4 ranks; see what is recorded.",
    "serve": "Run the service: OTLP in, one run a backend out.",
    "replay": "Write a recorded run again, to other exporters.",
    "recover": "Deliver what a crash left undelivered.",
    "runs": "List the runs on this machine.",
    "show": "Plot metrics of a run in the terminal.",
    "ui": "Show the runs in a browser, also while they train.",
    "why": "Tell why steps were slow, or a metric changed.",
    "diff": "Compare two runs, and tell why one is slower.",
    "open": "Open a run in TensorBoard or MLflow.",
    "report": "Write a run, or several, as one HTML file.",
    "trace": "Write steps of a run for ui.perfetto.dev.",
    "top": "Watch a run live: progress, last values, slow ranks.",
    "tail": "Follow a run: a line for every closed step.",
    "gc": "Remove old runs.",
    "mcp": "Let an agent look at runs (read-only).",
    "env": "Print every setting and where it came from.",
    "explain": "Explain a message: what it means, what to do.",
    "doctor": "Check this machine, and say what to do.",
    "exporters": "List the exporters and what each guarantees.",
    "new-exporter": "Write an exporter to begin with, and its test.",
    "examples": "Write the programs that the pages run.",
    "deployment-files": "Write the Collector's files, the chart, the alerts.",
    "completion": "Print the shell completion script.",
}


@click.group(
    cls=CommandGroup,
    commands_of="otel_ml_service.cli",
    help_of=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with `otel-ml demo`. A RUN is an id (or its beginning), a name, a folder, or `latest`.",
)
@click.version_option(package_name="otel-ml", message="otel-ml %(version)s")
def cli() -> None:
    """Every rank records, one run comes out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 (it failed), 2 (wrong use), 130 (interrupted)."""
    _open_standard_streams()
    _take_any_character(sys.stdout)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        # Not standalone, click raises what it would print itself, and returns the code of an `Exit`; of a command that
        # ends as it should, what its function returns: None.
        status = cli.main(arguments, prog_name="otel-ml", standalone_mode=False)
        sys.stdout.flush()  # here, and not as the interpreter ends, where nobody can catch what it raises
    except click.ClickException as error:
        # Click's own form: where it is wrong usage, how the command is used stands before it.
        error.show()
        if "unexpected extra argument" in error.message:
            click.echo("A name with spaces is written in quotes: 'my run'.", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("otel-ml: interrupted.", err=True)
        return 130
    except OtelMLError as error:
        return _failed(str(error))
    except (BrokenPipeError, ReaderHasLeftError):
        return _reader_has_left(given)
    except OSError as error:  # of a folder that others use too: whatever the system refuses
        where = f" {error.filename!r}" if error.filename else ""
        return _failed(explained(f"Cannot use{where}: {error.strerror or error}.", "run-unreadable"))
    return status if isinstance(status, int) else 0


_READS = frozenset({
    "runs", "show", "why", "diff", "top", "tail", "env", "explain", "exporters", "completion",
})  # fmt: skip
"""Commands of which nothing is left undone where nobody reads the rest of what they print."""


def _reader_has_left(arguments: Sequence[str]) -> int:
    """Return the status of a command that was left alone; what Python flushes at exit must not fail again."""
    # Python flushes standard output once more as it ends, and would complain about the pipe again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # The first word is the command: the group has no option that takes a value.
    command = next((one for one in arguments if not one.startswith("-")), "")
    return 0 if command in _READS else 1


def _open_standard_streams() -> None:
    """Open what the starter has closed (`>&-`): the next file would get its number, and what is printed with it."""
    # Upwards, as `os.open()` takes the lowest number that is free: with the ones below it open, that is this one.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.dup(2), "w", encoding="utf-8")


def _take_any_character(stream: TextIO) -> None:
    """Write out what the encoding of the terminal, or of a file, does not have, such as a curve in Latin-1."""
    # A handler that PYTHONIOENCODING names stays, as does that of the C locale, which is not `strict`.
    if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="backslashreplace")


def _failed(sentence: str) -> int:
    for line in redacted(f"otel-ml: {sentence}").splitlines():
        click.echo(printable(line), err=True)
    return 1
