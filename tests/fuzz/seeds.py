"""Valid input of every decoder, made by our own encoders: what a mutation starts from."""

from __future__ import annotations

import gzip
import json
import queue
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from otel_ml.wire.rendezvous import Service
from otel_ml_exporters import StepRecord, Summary
from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.records import RunInfo
from otel_ml_service.receiver.decode import response
from otel_ml_service.receiver.partial_success import Rejections
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.journal import Journal
from tests.journals import first_form
from tests.otlp import FakeWriter, third_party_request, write_spool

__all__ = ["SEEDS"]

YAML = b"""\
exporters:
  jsonl: {every: 2}
  wandb: {mode: offline, project: "${env:HOME}"}
dir: runs
dir_max: 10 GiB
allowed_lateness: 5000
listen: {http: "127.0.0.1:4318", grpc: "[::1]:4317", tls: {certificate: a.pem, key: b.pem}}
scraped: {allow: ["vllm/*"], deny: ["scrape_*"], max_series: 100}
"""


def metrics() -> Sequence[bytes]:
    writer = FakeWriter(world_size=2, extra={"ml.topology.dp": 0, "ml.topology.dp.size": 2, "ml.tags": ["a", "b"]})
    requests = [
        writer.step(1, {"loss": 0.5, "reward": float("nan")}),
        writer.step(2, {"loss": 0.25}, axis="rollout", reduction="sum>max,mean"),
        third_party_request([{"name": "loss", "value": 1.0, "ml.step": 3, "ml.reduction": "p50", "task": "math"}]),
        third_party_request([{"name": "gpu:power", "value": 300.0}]),
        _buckets(),
    ]
    return [request.SerializeToString() for request in requests]


def logs() -> Sequence[bytes]:
    writer = FakeWriter()
    artifact = {
        "ml.name": "model",
        "ml.artifact.path_in": "a/b.pt",
        "ml.artifact.uri": "file:///x",
        "ml.artifact.size": 3,
    }
    events = [
        ("ml.params", {"lr": 0.1, "model": {"layers": [1, 2, {"a": None}]}}, {}),
        ("ml.text", "hello", {"ml.name": "sample", "ml.step": 3}),
        ("ml.table", {"columns": ["a", "b"], "rows": [[1, "x"], [2.5, None]]}, {"ml.name": "table"}),
        ("ml.image", b"\x89PNG\r\n\x1a\n", {"ml.name": "image", "ml.width": 2, "ml.height": 2, "ml.caption": "c"}),
        ("ml.audio", b"RIFF", {"ml.name": "audio", "ml.sample_rate": 8000}),
        ("ml.histogram", {"edges": [0.0, 1.0], "counts": [3]}, {"ml.name": "h"}),
        ("ml.artifact", b"abc", artifact),
        ("ml.summary", {"accuracy": 0.5}, {}),
        ("ml.notice", "something is wrong", {}),
        ("my.event", {"key": "value"}, {"count": 2}),
    ]
    requests = [writer.event(*event) for event in events]
    requests.append(writer.goodbye(dropped={"buffer_full": 3}))
    return [request.SerializeToString() for request in requests]


def traces() -> Sequence[bytes]:
    return [FakeWriter().span("forward", 1).SerializeToString()]


def as_json(signal: str) -> Callable[[], Sequence[bytes]]:
    """Return the seeds of a signal in OTLP/JSON."""
    from otel_ml_service.receiver.decode import _REQUESTS

    def made() -> Sequence[bytes]:
        messages = [_REQUESTS[signal].FromString(seed) for seed in SEEDS[signal]()]  # type: ignore[index]
        return [json_format.MessageToJson(message, indent=None).encode() for message in messages]

    return made


def compressed() -> Sequence[bytes]:
    plain = metrics()[0]
    return [gzip.compress(plain, mtime=0), gzip.compress(plain, mtime=0) * 2, zlib.compress(plain)]


def http() -> Sequence[bytes]:
    body = metrics()[0]
    head = b"POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\n"
    return [
        head + b"content-length: %d\r\n\r\n" % len(body) + body,
        head + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: 1\r\n\r\n",
        b"GET /otel_ml/runs/a%20?writer=x&y HTTP/1.1\r\nhost: a\r\nauthorization: a\r\nexpect: 100-continue\r\n\r\n",
        b"HEAD /metrics HTTP/1.0\r\nconnection: keep-alive\r\n\r\nGET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
    ]


def answers() -> Sequence[bytes]:
    rejections = Rejections()
    rejections.add("no name", 3)
    body = response("metrics", rejections).SerializeToString()
    length = b"content-length: %d\r\notel-ml-notices: 3\r\nretry-after: 2\r\n\r\n" % len(body)
    return [
        b"HTTP/1.1 200 OK\r\n" + length + body,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\n" + length + body,
        b"HTTP/1.1 429 Too Many\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.0 404 None\r\nretry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\n\r\nwhat",
    ]


def spools() -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.spool"
        write_spool(path, FakeWriter(), range(3))
        return [path.read_bytes()]


def journals() -> Sequence[bytes]:
    """Databases of journals: of today, and with requests in it, as the first form was."""
    with tempfile.TemporaryDirectory() as folder:
        today, former = Path(folder, "journal.db"), Path(folder, "former.db")
        Journal(today, lambda _: None).close()
        first_form(former, [*metrics(), bytes(5000)])
        for path in (today, former):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA journal_mode=DELETE")
        return [today.read_bytes(), former.read_bytes()]


def journal_files() -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        journal: Journal[None] = Journal(path, lambda _: None)
        stored: queue.SimpleQueue[int | StorageError] = queue.SimpleQueue()
        journal.start()
        for body in (*metrics(), bytes(5000)):
            journal.append("metrics", body, None, stored.put)
            number = stored.get(timeout=10)
            assert isinstance(number, int)
            journal.drop(number - 3)
        journal.close()
        return [path.with_name("journal-1.log").read_bytes()]


def rows() -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        exporter = JsonlExporter()
        exporter.start(RunInfo(id="i", experiment="e", name="n", dir=Path(folder), started_at=0.0))
        step = StepRecord(1, "trainer", "step", 3, 0, 0.5, {"loss": 0.25, "x": float("nan")})
        exporter.export([step, Summary(2, 0.5, {"accuracy": 0.5})])
        exporter.shutdown(1.0, "finished")
        return [(Path(folder) / "metrics.jsonl").read_bytes()]


def recordings() -> Sequence[bytes]:
    lines = [as_json(signal)() for signal in ("metrics", "logs", "traces")]
    return [b"\n".join(line for group in lines for line in group) + b"\n"]


def rendezvous() -> Sequence[bytes]:
    return [Service("http://127.0.0.1:1", "token", 7, "/runs/a", ("jsonl",)).to_json().encode()]


def texts() -> Sequence[bytes]:
    names = [
        "loss",
        "a/../b",
        "../../etc/passwd",
        "\x1b[31mred",
        "\u202eabc",
        "a" * 300,
        "x\ny",
        "C:\\x",
        "sum>max,mean@dp",
    ]
    return [name.encode() for name in names]


def settings() -> Sequence[bytes]:
    pairs = {"OTEL_ML_LISTEN_HTTP": "[::1]:4318", "OTEL_ML_DIR_MAX": "10 GiB", "OTEL_ML_RANK": "3"}
    pairs |= {
        "OTEL_RESOURCE_ATTRIBUTES": "team=rl,note=two%20words",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://a:b@c:1/x",
    }
    return [json.dumps(pairs).encode()]


SEEDS: Mapping[str, Callable[[], Sequence[bytes]]] = {
    "metrics": metrics,
    "logs": logs,
    "traces": traces,
    "metrics_json": as_json("metrics"),
    "logs_json": as_json("logs"),
    "traces_json": as_json("traces"),
    "compression": compressed,
    "http": http,
    "answer": answers,
    "spool": spools,
    "journal": journals,
    "journal_file": journal_files,
    "rows": rows,
    "recording": recordings,
    "rendezvous": rendezvous,
    "yaml": lambda: [YAML],
    "settings": settings,
    "text": texts,
}
"""Target → its seeds."""


def _buckets() -> Any:
    request = third_party_request([{"name": "latency", "value": 1.0, "ml.step": 3}])
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="h", unit="s")
    metric.histogram.aggregation_temporality = 2
    metric.histogram.data_points.add(
        count=3, sum=6, explicit_bounds=[1.0, 2.0], bucket_counts=[1, 1, 1], time_unix_nano=7
    )
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="e")
    metric.exponential_histogram.aggregation_temporality = 1
    point = metric.exponential_histogram.data_points.add(count=3, sum=6, scale=6, zero_count=1, time_unix_nano=9)
    point.positive.offset, point.negative.offset = 3, -4
    point.positive.bucket_counts.extend([1])
    point.negative.bucket_counts.extend([1])
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="q")
    metric.summary.data_points.add(count=3, sum=6, time_unix_nano=9)
    metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="c")
    metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, 2
    metric.sum.data_points.add(as_int=3, time_unix_nano=9, start_time_unix_nano=1)
    return request
