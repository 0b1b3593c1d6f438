"""A click group whose commands are imported when they are used, so that `otel-ml` answers at once."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping

import click

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """Find the command `a-b` as the function `command` of the module `<package>.a_b_command`.

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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say the nearest command where the name is unknown."""
        if args and args[0] not in self._help_of and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self._help_of, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"Unknown command {args[0]!r}.{hint} Known: {', '.join(self._help_of)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._help_of.items()))
