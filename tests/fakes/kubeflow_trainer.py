"""Kubeflow Trainer's status server, from its published contract (pkg/statusserver, v2.2).

What it takes is what the resource TrainJob allows; what it took is its `status`.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.certificates import certificates

__all__ = ["StatusServer"]

_PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/{}/status"
_MOST_BYTES = 2**16
_INT32 = range(2**31)


class StatusServer:
    """Takes the status of one TrainJob.

    Args:
        folder: where certificate and token are, as in the volume of a pod.

    Attributes:
        status: the last that was taken.
        taken: how many were.
        answers: what to answer instead, before anything is looked at.
    """

    def __init__(self, folder: Path, namespace: str = "team", name: str = "digits") -> None:
        made = certificates(folder)
        self.authority, self.token = made.authority, folder / "token"
        self.path = _PATH.format(namespace, name)
        self.status: Mapping[str, Any] = {}
        self.taken = 0
        self.answers: list[int] = []
        self.accepted = "first"
        self.token.write_text("first\n")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.server, made.server_key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Return what the controller puts into the environment of each pod."""
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": f"https://127.0.0.1:{self._server.server_port}{self.path}",
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.authority),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.token),
        }

    def exchange_token(self) -> None:
        """Put another token into the volume; the one before is no longer taken."""
        self.accepted = "second"
        self.token.write_text("second\n")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, path: str, authorization: str, body: bytes) -> tuple[int, object]:
        if self.answers:
            return self.answers.pop(0), _failure("Internal error")
        if len(body) > _MOST_BYTES:
            return 413, _failure("Payload too large")
        if path != self.path:
            return 404, _failure("Not found")
        if authorization.split() != ["Bearer", self.accepted]:
            return 403, _failure("Forbidden")
        try:
            request = json.loads(body)
        except ValueError:
            return 422, _failure("Invalid payload")
        if problem := _problem(request["trainerStatus"]):
            return 422, _failure(problem)
        self.status = request["trainerStatus"]
        self.taken += 1
        return 200, request


def _problem(status: Mapping[str, Any]) -> str:
    if not set(status) <= {"progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime"}:
        return f"unknown fields: {sorted(status)}"
    if type(status.get("progressPercentage", 0)) is not int or status.get("progressPercentage", 0) not in range(101):
        return "progressPercentage: Invalid value"
    if status.get("estimatedRemainingSeconds", 0) not in _INT32:
        return "estimatedRemainingSeconds: Invalid value"
    if len(status.get("metrics", [])) > 256:
        return "metrics: Too many: must have at most 256 items"
    for metric in status.get("metrics", []):
        texts = [metric.get("name"), metric.get("value")]
        if not all(isinstance(text, str) and 0 < len(text) <= 64 for text in texts):
            return f"metrics: Invalid value: {metric}"
    if datetime.fromisoformat(status["lastUpdatedTime"]).tzinfo is None:
        return "lastUpdatedTime is not RFC 3339"
    return ""


def _failure(message: str) -> object:
    return {"status": "Failure", "message": message}


def _handler(server: StatusServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            code, content = server.answer(self.path, self.headers.get("authorization", ""), body)
            said = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as its base has it)
            pass

    return Handler
