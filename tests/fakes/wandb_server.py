"""A W&B server for tests: as much GraphQL and file stream as the real client needs to open, resume, log and finish.

It keeps what the client sends: history lines by offset (a resent chunk overwrites itself, as on W&B's server), summary,
config, exit code. `FakeWandb` is a context manager; its `address` is `WANDB_BASE_URL`.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

__all__ = ["API_KEY", "FakeRun", "FakeWandb"]

API_KEY = "0123456789" * 4
"""Has the form of a key; the server takes any."""

HISTORY = "wandb-history.jsonl"


@dataclass
class FakeRun:
    """What the server holds of a run."""

    project: str
    name: str
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    exit_code: int | None = None
    opened: int = 0


class FakeWandb:
    """Serves on a free loopback port while its block runs.

    Attributes:
        runs: by name (W&B's run id).
        broken: every request is answered with 503 while this is set.
        rate: requests a second of a run's file stream; more are answered with 429, as W&B's server does.
        sent: when requests of the file stream came.
        refused: how many of them were too many.
    """

    def __init__(self) -> None:
        self.runs: dict[str, FakeRun] = {}
        self.broken = threading.Event()
        self.rate: float | None = None
        self.sent: list[float] = []
        self.refused = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakeWandb:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def admits(self, path: str) -> bool:
        """Whether a request is within the rate limit of the last second."""
        if not path.endswith("/file_stream"):
            return True
        with self._lock:
            now = time.monotonic()
            self.sent.append(now)
            is_within = self.rate is None or sum(moment > now - 1.0 for moment in self.sent) <= self.rate
            self.refused += not is_within
            return is_within

    def answer(self, path: str, body: bytes) -> Mapping[str, Any]:
        """Return the JSON answer to a POST."""
        with self._lock:
            if path == "/graphql":
                request = json.loads(body)
                return {"data": self._graphql(request.get("operationName"), request.get("variables") or {})}
            if path.endswith("/file_stream"):
                return self._file_stream(path.split("/")[-2], json.loads(body))
            return {}

    def _graphql(self, operation: str | None, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        match operation:
            case "RunResumeStatus":
                return {"model": {"id": "P", "name": variables["project"], **ENTITY, "bucket": self._resume(variables)}}
            case "UpsertBucket":
                return {"upsertBucket": self._upsert(variables)}
            case "CreateRunFiles":
                files = [{"name": name, "uploadUrl": f"{self.address}/upload/{name}"} for name in variables["files"]]
                return {"createRunFiles": {"runID": "R", "uploadHeaders": [], "files": files}}
        return {}

    def _resume(self, variables: Mapping[str, Any]) -> Mapping[str, Any] | None:
        run = self.runs.get(variables["name"])
        if run is None:
            return None
        return {
            "id": "R",
            "name": run.name,
            "summaryMetrics": json.dumps(run.summary),
            "displayName": run.name,
            "logLineCount": 0,
            "historyLineCount": len(run.history),
            "eventsLineCount": 0,
            "historyTail": json.dumps([json.dumps(row) for row in run.history[-1:]]),
            "eventsTail": "[]",
            "config": json.dumps(run.config),
            "tags": run.tags,
            "notes": None,
            "wandbConfig": json.dumps({"t": 1}),
        }

    def _upsert(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        name = variables["name"]
        inserted = name not in self.runs
        run = self.runs.setdefault(name, FakeRun(variables["project"], name))
        run.opened += variables.get("entity") is None
        run.tags = variables.get("tags") or run.tags
        run.config.update(json.loads(variables.get("config") or "{}"))
        project = {"id": "P", "name": run.project, **ENTITY}
        bucket = {"id": "R", "name": name, "displayName": name, "sweepName": None, "project": project}
        return {"bucket": {**bucket, "historyLineCount": len(run.history)}, "inserted": inserted}

    def _file_stream(self, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        run = self.runs[name]
        for file, chunk in (body.get("files") or {}).items():
            if file == HISTORY:
                rows = [json.loads(line) for line in chunk["content"]]
                run.history[chunk["offset"] : chunk["offset"] + len(rows)] = rows
            elif file == "wandb-summary.json":
                run.summary = json.loads(chunk["content"][-1])
        if body.get("complete"):
            run.exit_code = body.get("exitcode")
        return {}


ENTITY = {"entity": {"id": "E", "name": "team"}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients are killed in the middle of a request on purpose."""


def _handler(server: FakeWandb) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if server.broken.is_set():
                self._send(503, {"error": "out of order"})
                return
            if not server.admits(self.path):
                self._send(429, {"error": "rate limit exceeded"})
                return
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            self._send(200, server.answer(self.path, body))

        do_PUT = do_POST  # noqa: N815

        def do_GET(self) -> None:
            self._send(404, {})

        def _send(self, status: int, answer: Mapping[str, Any]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    return Handler
