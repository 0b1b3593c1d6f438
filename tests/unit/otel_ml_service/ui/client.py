"""Asks the server of `otel-ml ui`."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

__all__ = ["TOKEN", "Client", "Said"]

TOKEN = "a-token-that-nobody-guesses"


class Said(NamedTuple):
    status: int
    body: str
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks the server; `token` and headers as a test wants them."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, *, token: str = TOKEN, method: str = "GET", **headers: str) -> Said:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, f"/{token}/{path}", headers=headers)
        answer = connection.getresponse()
        said = Said(answer.status, answer.read().decode(), dict(answer.getheaders()))
        connection.close()
        return said

    def rows(self) -> list[dict[str, Any]]:
        """Ask for the list of runs."""
        found: list[dict[str, Any]] = self.get("runs.json").json["runs"]
        return found

    def run(self, name: str) -> Said:
        """Ask for the page of a run, as a row of the list links to it."""
        return self.get(f"run/{'/'.join(quote(part, safe='') for part in name.split('/'))}/")
