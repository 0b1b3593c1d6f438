"""What is fed with foreign bytes: each target takes any input, or refuses it in the one way that is documented.

Anything else that leaves a target is a finding.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import socket
import string
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from otel_ml._internal.transport.http import HttpTransport
from otel_ml._internal.transport.own_socket import OwnSocket
from otel_ml.config import Config, Endpoint
from otel_ml.exceptions import ConfigError, VersionError, WireError
from otel_ml.wire.published_name import MAX_LENGTH, sanitized
from otel_ml.wire.reduction import Reduction
from otel_ml.wire.rendezvous import Service, path_part
from otel_ml.wire.safe_names import as_path, unique_path
from otel_ml.wire.split_request import records_in, split_request
from otel_ml.wire.spool_format import read_spool
from otel_ml_exporters.records import StepRecord
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.config import ServiceConfig
from otel_ml_service.live_runs.late_requests import as_request
from otel_ml_service.live_runs.leftover_spools import requests_of
from otel_ml_service.receiver.admission import Admission, Stored
from otel_ml_service.receiver.compression import decompressed
from otel_ml_service.receiver.decode import Decoded, Decoder, Signal, response
from otel_ml_service.receiver.http_message import BadRequestError, Head, RequestParser, Response
from otel_ml_service.receiver.partial_success import UndecodableError
from otel_ml_service.receiver.routes import Routes, signal_of
from otel_ml_service.receiver.tokens import Tokens
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.journal import Journal
from otel_ml_service.storage.record_codec import decode, encode
from otel_ml_service.stored_runs.collector_recording import NoRecordingError, is_recording, read_recording
from otel_ml_service.stored_runs.extra_reductions import ExtraReductions
from otel_ml_service.stored_runs.follow_jsonl import Follower, UnreadableLineError
from otel_ml_service.telemetry import Telemetry

__all__ = ["TARGETS"]

Target = Callable[[bytes], None]

_IN_PATHS = frozenset(string.ascii_letters + string.digits + "_.-")
_ESCAPED = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOW = 1_700_000_000.0
_ANSWER_BYTES = 64 * 1024
"""An answer that names what was wrong must not be a copy of it."""


def request(signal: Signal, *, is_json: bool = False) -> Target:
    """Return the way of a request through the service: decoder, engine, records, restart."""

    def target(data: bytes) -> None:
        decoder = Decoder()
        with suppress(UndecodableError):
            decoded = decoder.json(signal, data) if is_json else decoder.protobuf(signal, data)
            _check_answer(signal, decoded)
            for experiment, observations in decoded.observations.items():
                path_part(experiment).encode()
                _reduced(experiment, observations)

    return target


def _check_answer(signal: Signal, decoded: Decoded) -> None:
    answer = response(signal, decoded.rejections).SerializeToString()
    assert len(answer) < _ANSWER_BYTES, f"an answer of {len(answer)} bytes"


def _reduced(experiment: str, observations: list[Any]) -> None:
    engine = Engine(experiment)
    for observation in observations:
        engine.observe(observation, _NOW)
    state: dict[str, bytes] = {}
    for now in (_NOW, _NOW + 100, _NOW + 1000):
        engine.advance(now)
        outcome = engine.take()
        for record in outcome.records:
            assert decode(encode(record)).seq == record.seq
            if isinstance(record, StepRecord):
                assert all(_is_published(name) for name in record.values), record.values
        for late in outcome.too_late:
            as_request(late).SerializeToString()
        for key, value in outcome.changes.items():
            state.pop(key, None) if value is None else state.update({key: value})
    json.dumps([engine.status, engine.facts], default=str)
    Engine(experiment, state=state).advance(_NOW + 2000)


def _is_published(name: str) -> bool:
    return 0 < len(name) <= MAX_LENGTH and not _ESCAPED.search(name)


def compression(data: bytes) -> None:
    """Unpack with a small limit, by every name of an encoding."""
    for encoding in ("gzip", "deflate", "", "br"):
        with suppress(BadRequestError):
            assert len(decompressed(data, encoding, 2**20)) <= max(2**20, len(data))


class _NoRuns:
    is_settled = True

    def runs(self) -> list[Mapping[str, Any]]:
        return []

    def run(self, experiment: str, writer: str | None, *, speaker: str | None) -> Mapping[str, Any] | None:
        return {"id": experiment, "writer": writer}

    def console(self, experiment: str, taken: int) -> None:
        return None

    def measures(self) -> list[Any]:
        return []

    def notices(self, experiments: Any) -> int:
        return len(list(experiments))


def http(data: bytes) -> None:
    """Parse a stream of requests, whole and cut, and answer each; the pieces must not matter."""
    assert _answers([data]) == _answers([data[i : i + 7] for i in range(0, len(data), 7)])


def _answers(pieces: list[bytes]) -> list[int]:
    telemetry = Telemetry()
    admission = Admission(_not_stored, telemetry, 2**20)
    routes = Routes(admission, _NoRuns(), telemetry, tokens=Tokens(), version="0", any_host=True)
    parser = RequestParser(2**20)
    found: list[int] = []
    head: Head | None = None
    try:
        for piece in pieces:
            parser.feed(piece)
            while True:
                head = head or parser.head()
                refusal = routes.refusal(head) if head is not None else None
                if refusal is not None:
                    return [*found, refusal.status]
                body = parser.body() if head is not None else None
                if head is None or body is None:
                    break
                answer = _answer(routes, head, body)
                answer.encode(keep_alive=head.keep_alive)
                found.append(answer.status)
                head = None
    except BadRequestError as error:
        found.append(error.status)
    finally:
        routes.close()
    return found


def _answer(routes: Routes, head: Head, body: bytes) -> Response:
    signal = signal_of(head)
    if signal is None:
        return asyncio.run(routes.look(head))
    answered: queue.SimpleQueue[Callable[[], Response]] = queue.SimpleQueue()
    routes.export(head, signal, body, answered.put)
    return answered.get(timeout=10)()


def _not_stored(decoded: Decoded, stored: Stored) -> None:
    stored(decoded, None)


def answer(data: bytes) -> None:
    """Let the worker read an answer, of whatever kind it waits for."""
    _asked(data, lambda transport: transport.get("/healthz", 1.0))
    _asked(data, lambda transport: transport.post("/v1/metrics", b"", 1.0))


def _asked(data: bytes, ask: Callable[[HttpTransport], object]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[:60_000])
        theirs.shutdown(socket.SHUT_WR)
        transport = HttpTransport(Endpoint(url="http://127.0.0.1:9"))
        transport._connect = lambda _target, _proxy, _deadline: OwnSocket(ours)  # type: ignore[method-assign]
        ask(transport)


def spool(data: bytes) -> None:
    """Take in what a dead writer has left, and cut it as for a receiver that takes little."""
    decoder = Decoder()
    with _file(data) as path:
        try:
            left = read_spool(path)
        except (VersionError, WireError):
            return  # it stays where it is, and is said
    for signal, body in requests_of(left):
        with suppress(UndecodableError):
            decoder.protobuf(signal, body)
    for frame in left.frames:
        with suppress(WireError):
            parts = split_request(frame.kind, frame.payload, 50)
            assert sum(records_in(frame.kind, part) for part in parts) == records_in(frame.kind, frame.payload)


def journal(name: str) -> Target:
    """Return what opens a journal of which the disk has changed this file, the only one, and reads what is left."""

    def take(data: bytes) -> None:
        with _file(data, name) as path, suppress(StorageError, VersionError):
            opened: Journal[None] = Journal(path.with_name("journal.db"), lambda _entries: None)
            try:
                for entry in opened.leftover():
                    assert isinstance(entry.signal, str), entry
                    assert isinstance(entry.body, bytes), entry
            finally:
                opened.close()

    return take


def rows(data: bytes) -> None:
    """Read a `metrics.jsonl`."""
    with _file(data) as path, suppress(UnreadableLineError):
        Follower(path).new_records()


def recording(data: bytes) -> None:
    """Replay a recording of the Collector."""
    with _file(data) as path, suppress(NoRecordingError, ConfigError):
        is_recording(path)
        for run in read_recording(path, ExtraReductions(())).runs:
            for record in run.records:
                encode(record)


def rendezvous(data: bytes) -> None:
    """Read `service.json`."""
    with suppress(VersionError, WireError, UnicodeDecodeError):  # a newer one is left as it is, and said
        Service.from_json(data.decode()).to_json()


def yaml(data: bytes) -> None:
    """Read `otel-ml.yaml`."""
    with _file(data) as path, suppress(ConfigError):
        ServiceConfig.load(file=path, environ={"HOME": "x"})


def settings(data: bytes) -> None:
    """Read an environment."""
    with suppress(ValueError):
        found = json.loads(data)
        if isinstance(found, dict):
            environ = {key: str(value) for key, value in found.items()}
            with suppress(ConfigError):
                Config.from_env(environ)
            with suppress(ConfigError):
                ServiceConfig.load(environ=environ)


def text(data: bytes) -> None:
    """Make names of any text: metrics, folders, reductions."""
    name = data.decode("utf-8", "surrogatepass" if _is_wtf8(data) else "replace")
    assert _is_published(sanitized(name)), name
    for path in (as_path(name), unique_path(name)):
        assert not {"", ".", ".."} & set(path.split("/")), path
        assert max(len(part.encode()) for part in path.split("/")) < 200, path
        assert len(path.encode()) < 1100, path
        assert "\x00" not in path
    part = path_part(name)
    assert part not in {"", ".", ".."}
    assert not set(part) - _IN_PATHS, part
    assert len(part) < 255, part
    with suppress(WireError):
        assert str(Reduction.parse(str(Reduction.parse(name)))) == str(Reduction.parse(name))


def _is_wtf8(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def _file(data: bytes, name: str = "input") -> Iterator[Path]:
    """Yield a file that holds `data`, in memory where the machine has such a folder."""
    with tempfile.TemporaryDirectory(dir=_fast()) as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


@cache
def _fast() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


TARGETS: Mapping[str, Target] = {
    "metrics": request("metrics"),
    "logs": request("logs"),
    "traces": request("traces"),
    "metrics_json": request("metrics", is_json=True),
    "logs_json": request("logs", is_json=True),
    "traces_json": request("traces", is_json=True),
    "compression": compression,
    "http": http,
    "answer": answer,
    "spool": spool,
    "journal": journal("journal.db"),
    "journal_file": journal("journal-1.log"),
    "rows": rows,
    "recording": recording,
    "rendezvous": rendezvous,
    "yaml": yaml,
    "settings": settings,
    "text": text,
}
"""Name → what takes any bytes."""
