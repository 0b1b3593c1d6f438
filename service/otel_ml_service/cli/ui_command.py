"""`otel-ml ui`: the runs of this machine in a browser, also while they train."""

from __future__ import annotations

import html
import json
import secrets
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from otel_ml.exceptions import OtelMLError
from otel_ml_service.cli.parameters import dir_option
from otel_ml_service.ui.known_runs import KnownRuns
from otel_ml_service.ui.server import address_of, server

__all__ = ["UiError", "command"]


class UiError(OtelMLError):
    """The page cannot be served."""

    slug = "viewer-failed"


@click.command("ui", epilog="Examples: otel-ml ui · otel-ml ui --port 8000 --no-browser")
@dir_option
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port on 127.0.0.1.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--json", "as_json", is_flag=True, help="The address as a JSON object, for programs.")
def command(base: Path, port: int, no_browser: bool, as_json: bool) -> None:
    """Show the runs of this machine in a browser, also while they train, until Ctrl-C.

    The address is the first line on standard output. It holds a token: who has it can read the runs.
    """
    # New each time: an address that was shared once is of no use after this program has ended.
    token = secrets.token_urlsafe(32)
    try:
        serving = server(KnownRuns(base), token, port)
    except OSError as error:
        raise UiError(f"Port {port} on 127.0.0.1 cannot be used: {error.strerror}. Try another --port.") from error
    address = address_of(serving, token)
    click.echo(json.dumps({"url": address}) if as_json else address)
    with serving, _opened(None if no_browser else address):
        serving.serve_forever()


@contextmanager
def _opened(address: str | None) -> Iterator[None]:
    """Open a browser by a file that only this user can read: others see the command line of a browser."""
    if address is None:
        yield
        return
    # Nobody tells when the browser has read the file, so it stays for as long as the pages are served.
    with tempfile.TemporaryDirectory(prefix="otel-ml-ui-") as folder:
        file = Path(folder) / "open.html"
        # Before the token is in it.
        file.touch(mode=0o600)
        file.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">', encoding="utf-8")
        webbrowser.open(file.as_uri())
        yield
