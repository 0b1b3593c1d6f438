"""A service that answers everything with 200, and remembers who asked: what somebody else would plant."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Greedy", "greedy_service"]


@dataclass
class Greedy:
    """What it heard."""

    endpoint: str = ""
    requests: list[str] = field(default_factory=list)


@contextmanager
def greedy_service() -> Iterator[Greedy]:
    """Yield a running one."""
    heard = Greedy()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.requests.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815 (the library's name)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        heard.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown()
            thread.join()
