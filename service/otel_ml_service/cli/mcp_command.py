"""`otel-ml mcp`: the runs on this machine as read-only tools of the Model Context Protocol, over stdio."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from otel_ml.exceptions import MissingDependencyError, OtelMLError
from otel_ml.redaction import redacted
from otel_ml.wire.versions import own_version
from otel_ml_service.cli.mcp_tools import RunTools
from otel_ml_service.cli.parameters import dir_option
from otel_ml_service.cli.screen import screen

if TYPE_CHECKING:
    from mcp.server import MCPServer

__all__ = ["command", "server"]

P = ParamSpec("P")
T = TypeVar("T")

_INSTRUCTIONS = (
    "Training runs recorded by otel_ml. Start with runs(), then why(run). A verdict is 'caused' only where something "
    "leads there and 80 % of the effect goes with it; 'coincided' is not a cause. Nothing can be changed."
)


@click.command("mcp", epilog="Example: otel-ml mcp --dir otel-ml-runs")
@dir_option
def command(base: Path) -> None:
    """Serve the runs to an agent: tools runs, series, why, diff and spans of the Model Context Protocol, over stdio.

    It reads the folder of runs and writes nothing. It listens on no port: who starts it talks to it. Needs the extra
    `otel-ml[mcp]`.
    """
    found = server(base)
    if sys.stdin.isatty():
        screen(beside_json=True).note(
            "An agent starts this command itself: its settings name `otel-ml` with the argument `mcp`. "
            "Here it waits for what an agent says; Ctrl-C ends it."
        )
    # No port: whoever can start this may read the folder anyway, and nobody else is let in.
    found.run("stdio")


def server(base: Path) -> MCPServer[None]:
    """Return the server of the runs below a folder.

    Raises:
        MissingDependencyError: without the package `mcp`.
    """
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise MissingDependencyError("otel-ml mcp", package="mcp", extra="mcp") from error
    tools = RunTools(base)
    found: MCPServer[None] = MCPServer(
        "otel-ml", version=own_version(), instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    # Hints by which an agent may call the tools without asking.
    reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool in (tools.runs, tools.series, tools.why, tools.diff, tools.spans):
        found.add_tool(_answering(tool), annotations=reads)
    return found


def _answering(tool: Callable[P, T]) -> Callable[P, T]:
    """Return the tool with otel_ml's own errors as answers that say what to ask instead."""
    from mcp.server.mcpserver.exceptions import ToolError

    # The server makes name, description and arguments of a tool from its function: the wrapper has to look like it.
    @functools.wraps(tool)
    def answered(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return tool(*args, **kwargs)
        except OtelMLError as error:
            raise ToolError(redacted(str(error))) from error

    return answered
