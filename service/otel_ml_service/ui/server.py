"""HTTP on loopback for one person: whoever shows the token reads, and nobody writes."""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from otel_ml.exceptions import OtelMLError
from otel_ml_service.report.markup import Markup, joined, script_data, tag
from otel_ml_service.report.page import document
from otel_ml_service.report.style import list_script
from otel_ml_service.ui.compared_runs import ComparedRuns
from otel_ml_service.ui.followed_run import ChartRequest, FollowedRun
from otel_ml_service.ui.known_runs import KnownRuns

__all__ = ["address_of", "server", "server_at"]

_log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
_COMPARED = 8
"""Runs of a comparison; `runs.js` has the same number, and says so."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_IDLE_S = 60.0
"""A connection that says nothing for so long is closed."""


class Answer(NamedTuple):
    """What is said to a request; `kind` is a media type."""

    body: str
    kind: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


Query = dict[str, list[str]]


def server(runs: KnownRuns, token: str, port: int) -> ThreadingHTTPServer:
    """Return a server on loopback that is bound and does not serve yet.

    Raises:
        OSError: the port is taken.
    """
    return server_at(runs, token, socket.create_server((_HOST, port)))


def server_at(runs: KnownRuns, token: str, listener: socket.socket) -> ThreadingHTTPServer:
    """Return a server on a socket that listens on loopback; it does not serve yet."""
    found = _Server(listener.getsockname(), partial(_Handler, runs, token), bind_and_activate=False)
    # Of its own making, and bound to nothing.
    found.socket.close()
    found.socket = listener
    found.server_port = listener.getsockname()[1]
    # A browser keeps connections open, which the end of the program does not wait for.
    found.daemon_threads = True
    return found


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers close connections as they like; nothing of a request is printed."""


def address_of(found: ThreadingHTTPServer, token: str) -> str:
    """Return the address of the list of runs, which holds the token."""
    return f"http://{_HOST}:{found.server_port}/{token}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "otel-ml", ""
    timeout = _IDLE_S

    def __init__(self, runs: KnownRuns, token: str, *arguments: Any) -> None:
        self._runs = runs
        self._token = token
        super().__init__(*arguments)

    def log_message(self, *_: object) -> None:
        """Nothing is logged: the path holds the token."""

    def do_GET(self) -> None:
        """Answer."""
        answer = self._answer()
        content = answer.body.encode("utf-8", "replace")
        self.send_response(answer.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if answer.kind.startswith("text/html"):
            # What the page allows itself is in the page: it is the same in a file.
            self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.send_header("Content-Type", answer.kind)
        if answer.status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if answer.status != HTTPStatus.NO_CONTENT:
            self.wfile.write(content)

    def _answer(self) -> Answer:
        if not self._is_for_us():
            return Answer(
                "Open the address that `otel-ml ui`, or the job, printed.", "text/plain", HTTPStatus.FORBIDDEN
            )
        path, _, query = self.path.partition("?")
        token, *rest = path.split("/")[1:] or [""]
        # Compared in constant time; a path may be no ASCII.
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
            return Answer(
                "Open the address that `otel-ml ui`, or the job, printed.", "text/plain", HTTPStatus.FORBIDDEN
            )
        try:
            return _routed(self._runs, [unquote(part) for part in rest], parse_qs(query))
        except OtelMLError as error:
            return _complaint(str(error))
        except Exception:  # noqa: BLE001 # one run that cannot be shown must not end the others
            _log.exception("A page of otel-ml ui was not made.")
            return _complaint(
                "This page could not be made. The terminal of otel-ml ui, or service.log of the run, says why."
            )

    def _is_for_us(self) -> bool:
        """Whether the request names us, and no name that a web page let point here (DNS rebinding)."""
        host = self.headers.get("Host", "")
        is_ours = host.partition(":")[0] in {_HOST, "localhost"}  # whatever the port: `ssh -L` has another one
        return is_ours and self.headers.get("Origin", f"http://{host}") == f"http://{host}"


def _routed(runs: KnownRuns, path: Sequence[str], query: Query) -> Answer:
    if list(path) == [""]:
        return Answer(_list_page(runs.base))
    if list(path) == ["runs.json"]:
        rows, older = runs.rows()
        return _json({"runs": rows, "older": older})
    if list(path) in (["compare"], ["news"]):
        # One run twice would wait for itself.
        names = dict.fromkeys(query.get("run", []))
        several = [run for name in list(names)[:_COMPARED] if (run := runs.find(name)) is not None]
        return _compared(ComparedRuns(several), path[0], query) if len(several) > 1 else _missing()
    if len(path) == 4 and path[0] == "run" and path[3] in _OF_A_RUN:
        found = runs.find(f"{path[1]}/{path[2]}")
        return _missing() if found is None else _OF_A_RUN[path[3]](found, query)
    return _missing()


def _page(run: FollowedRun, _: Query) -> Answer:
    return Answer(run.page())


def _news(run: FollowedRun, query: Query) -> Answer:
    asked = [_chart_request(one) for one in _one(query, "charts").split(",") if one]
    news = run.news(_one(query, "version"), frozenset(_one(query, "seen").split(",")), asked)
    return Answer("", status=HTTPStatus.NO_CONTENT) if news is None else _json(news)


def _chart_request(text: str) -> ChartRequest:
    key, _, had = text.partition(":")
    generation, _, last = had.partition(":")
    is_new = not (_is_whole(generation) and _is_whole(last))
    return ChartRequest(key, None, None) if is_new else ChartRequest(key, int(generation), int(last))


def _is_whole(text: str) -> bool:
    # `isdigit` alone takes ² and ٣; 20 digits are more than 64 bits.
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 20


def _step(run: FollowedRun, query: Query) -> Answer:
    step = _one(query, "step")
    if not _is_whole(step):
        return _json(run.step(None))
    return _json(run.step((_one(query, "role"), _one(query, "axis"), int(step))))


_OF_A_RUN: dict[str, Callable[[FollowedRun, Query], Answer]] = {"": _page, "news": _news, "step": _step}


def _compared(compared: ComparedRuns, what: str, query: Query) -> Answer:
    if what == "compare":
        return Answer(compared.page())
    news = compared.news(_one(query, "version"), frozenset(_one(query, "seen").split(",")))
    return Answer("", status=HTTPStatus.NO_CONTENT) if news is None else _json(news)


def _one(query: Query, name: str) -> str:
    return query.get(name, [""])[0]


def _json(found: object) -> Answer:
    return Answer(script_data(found), "application/json")


def _missing() -> Answer:
    return Answer(
        document("Nothing here", tag("p", "There is no such run, or page, here."), ""), status=HTTPStatus.NOT_FOUND
    )


def _complaint(said: str) -> Answer:
    again = Markup('<meta http-equiv="refresh" content="2">')
    return Answer(
        document("Not to be shown", joined([again, tag("p", said)]), ""), status=HTTPStatus.INTERNAL_SERVER_ERROR
    )


def _list_page(base: Path) -> str:
    """Return the page of all runs in a folder."""
    body = joined(
        [
            tag("h1", "Runs"),
            tag("p", str(base), class_="quiet"),
            Markup(
                '<div class="tools"><input type="search" id="filter" placeholder="filter: words in any column"'
                ' aria-label="filter" autofocus> <button type="button" id="compare" disabled>Compare</button>'
                ' <span id="said" class="quiet" aria-live="polite"></span></div>'
            ),
            tag("section", tag("div", id="runs", class_="wide")),
        ]
    )
    return document("Runs", body, list_script())
