"""A service on free loopback ports, and what a sender needs to talk to it."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters import Exporter
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.config import ServiceConfig
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.service import Service
from tests.otlp_server import OtlpServer, otlp_server

PROTOBUF = "application/x-protobuf"


@dataclass
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Sender:
    """Speaks HTTP to a service, one connection."""

    port: int
    token: str = ""
    connection: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def request(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answered:
        given = {"authorization": f"Bearer {self.token}"} if self.token else {}
        self.connection.request(method, path, body, {**given, **(headers or {})})
        answer = self.connection.getresponse()
        return Answered(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())

    def send(self, signal: str, message: Any, headers: Mapping[str, str] | None = None) -> Answered:
        body = message if isinstance(message, bytes) else message.SerializeToString()
        return self.request("POST", f"/v1/{signal}", body, {"content-type": PROTOBUF, **(headers or {})})

    def run(self, experiment: str = "run-1", query: str = "") -> Any:
        answer = self.request("GET", f"/otel_ml/runs/{experiment}{query}")
        return answer.json if answer.status == 200 else None

    def close(self) -> None:
        self.connection.close()


class Bench:
    """Starts services in one folder, and stops them at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: list[Service] = []
        self.senders: list[Sender] = []

    def service(
        self,
        makers: Mapping[str, Callable[[], Exporter]] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        **settings: Any,
    ) -> Service:
        config = ServiceConfig(**{"dir": self.folder, "http": ("127.0.0.1", 0), **settings})
        service = Service(config, makers=makers, retry=RetryPolicy(0.01, 0.1), clock=clock)
        self.services.append(service)
        service.start()
        return service

    def sender(self, service: Service, token: str | None = None) -> Sender:
        found = Sender(int(service.endpoint.rpartition(":")[2]), service.token if token is None else token)
        self.senders.append(found)
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path / "runs")
    yield found
    for sender in found.senders:
        sender.close()
    for service in found.services:
        service.stop(1.0)


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with otlp_server() as running:
        yield running


@pytest.fixture
def recording() -> RecordingExporter:
    return RecordingExporter()
