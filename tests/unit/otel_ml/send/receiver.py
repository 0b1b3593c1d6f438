"""A receiver that answers as it is told, and a clock that goes when it is told."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as OtlpLogRecord
from opentelemetry.proto.logs.v1.logs_pb2 import ScopeLogs

from otel_ml._internal.transport.answer import Answer
from otel_ml.wire.protobuf import field


class Receiver:
    """Answers what it is told to, then yes."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.got: list[tuple[str, bytes]] = []

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        answer = self.answers.pop(0) if self.answers else Answer("ok")
        if answer.outcome == "ok":
            self.got.append((path, body))
        return answer

    def get(self, path: str, timeout: float) -> bytes | None:
        return None

    def close(self) -> None: ...

    def forget(self) -> None: ...


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def event_of(name: str, size: int) -> bytes:
    named = KeyValue(key="ml.name", value=AnyValue(string_value=name))
    record = OtlpLogRecord(event_name="ml.text", attributes=[named], body=AnyValue(string_value="x" * size))
    return field(2, ScopeLogs(log_records=[record]).SerializeToString())
