"""More comes than the service may hold: senders are told to come back, and once it ends everything is there, once."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import defaultdict
from pathlib import Path

import pytest

from otel_ml_service.config import Limits
from otel_ml_service.live_runs import run_registry
from otel_ml_service.service import Service
from otel_ml_service.storage.outbox import Outbox
from tests.e2e.jobs import environment
from tests.integration.conftest import PROTOBUF, Bench, Sender
from tests.otlp import FakeWriter
from tests.waiting import eventually

RANK = """
import otel_ml
with otel_ml.init(role="trainer") as run:
    for step in range(60):
        otel_ml.set_step(step)
        otel_ml.log({f"m{n}": float(step * n + run.rank) for n in range(100)}, reduce="sum")
        otel_ml.flush(timeout=0.01)
    otel_ml.flush(timeout=60)
"""


def hold(service: Service, sender: Sender) -> Outbox:
    """Let the run find no room for a commit: what is acknowledged from here on cannot be decided."""
    writer = FakeWriter(rank=99)
    sender.send("metrics", writer.step(0, {"loss": 0.0}))
    outbox = eventually(lambda: service._runs.get("run-1")).outbox
    eventually(lambda: measure(sender, "otel_ml_journal_bytes") == 0)
    outbox._connection.execute("PRAGMA max_page_count=20")
    sender.send("metrics", writer.step(1, {f"m{n}": 0.0 for n in range(1000)}))
    return outbox


def measure(sender: Sender, line: str) -> float:
    text = sender.request("GET", "/metrics").body.decode()
    return sum(float(found.rpartition(" ")[2]) for found in text.splitlines() if found.startswith(line))


@pytest.mark.full
@pytest.mark.timeout(240)
def test_real_workers_lose_nothing_to_an_overloaded_service(bench: Bench, tmp_path: Path) -> None:
    service = bench.service(exporters={"jsonl": {}}, grpc=("127.0.0.1", 0), limits=Limits(queue=60_000))
    sender = bench.sender(service)
    held = hold(service, sender)
    assert service.grpc_address is not None
    ways = {"http/protobuf": service.endpoint, "grpc": f"http://127.0.0.1:{service.grpc_address[1]}"}
    ranks = []
    for rank, protocol in enumerate(["http/protobuf", "http/protobuf", "grpc"]):
        env = environment(
            OTEL_EXPORTER_OTLP_ENDPOINT=ways[protocol], OTEL_EXPORTER_OTLP_PROTOCOL=protocol, OTEL_ML_RANK=rank,
            OTEL_ML_WORLD_SIZE=3, OTEL_ML_EXPERIMENT_ID="overloaded", OTEL_ML_FLUSH_INTERVAL=20,
        )  # fmt: skip
        ranks.append(subprocess.Popen([sys.executable, "-c", RANK], env=env, cwd=tmp_path, stderr=subprocess.PIPE))
    # However quick the service is, and slow the ranks: it has room again only when one of them was refused.
    eventually(lambda: measure(sender, 'otel_ml_refused_total{reason="overloaded"}') > 0, timeout=60)
    held._connection.execute("PRAGMA max_page_count=100000")
    said = [process.communicate(timeout=200)[1].decode() for process in ranks]

    assert [process.returncode for process in ranks] == [0, 0, 0], said

    def is_over() -> bool:
        run = sender.run("overloaded")
        return run is not None and run["status"] == "finished" and run["pending"] == 0

    eventually(is_over, timeout=60)
    [run] = bench.folder.glob("*/overloaded")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shown: dict[int, dict[str, float]] = defaultdict(dict)
    for line in lines:  # a rank that was refused for longer than others wait for it amends their rows
        shown[line.get("step", -1)].update({name: x for name, x in line.get("values", {}).items() if name[0] == "m"})
    expected = {step: {f"m{n}": float(3 * step * n + 3) for n in range(100)} for step in range(60)}
    assert {step: values for step, values in shown.items() if values} == expected
    assert sender.run("overloaded")["lost"] == {}


def test_an_overloaded_service_says_when_to_come_back_on_both_transports(bench: Bench) -> None:
    import grpc

    service = bench.service(grpc=("127.0.0.1", 0), limits=Limits(queue=100))
    sender = bench.sender(service)
    hold(service, sender)
    body = FakeWriter(rank=1).step(0, {f"m{n}": 1.0 for n in range(100)})
    assert service.grpc_address is not None

    answer = sender.send("metrics", body)
    with grpc.insecure_channel(f"127.0.0.1:{service.grpc_address[1]}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
        with pytest.raises(grpc.RpcError) as refused:
            export(body.SerializeToString(), timeout=10)

    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_bodies_under_way_are_bounded_over_all_connections(bench: Bench) -> None:
    service = bench.service(limits=Limits(queue=2_000_000))
    port = int(service.endpoint.rpartition(":")[2])
    head = f"POST /v1/metrics HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {PROTOBUF}\r\n"
    head += "content-length: 2500000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(head.encode() + b"\x00" * 1_900_000)
        eventually(lambda: service._http._intake.held == 1_900_000)  # else it might be the slow one that is refused
        sender = bench.sender(service)

        refused = eventually(lambda: (answer := sender.send("metrics", b"\x00" * 1_500_000)).status == 503 and answer)
        small = sender.send("metrics", FakeWriter().step(0, {"loss": 1.0}))

    assert refused.headers["retry-after"] == "1"
    assert b"under way" in refused.body
    assert small.status == 200
    eventually(lambda: bench.sender(service).send("metrics", b"\x00" * 1_500_000).status == 400)  # the slow one is gone


def test_further_runs_wait_until_one_has_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_registry, "MAX_RUNS", 2)
    sender = bench.sender(bench.service())
    for name in ("one", "two"):
        assert sender.send("metrics", FakeWriter(experiment=name).step(0, {"loss": 1.0})).status == 200
        eventually(lambda name=name: sender.run(name))

    refused = sender.send("metrics", FakeWriter(experiment="three").step(0, {"loss": 1.0}))
    known = sender.send("metrics", FakeWriter(experiment="one", rank=1).step(1, {"loss": 1.0}))

    assert (refused.status, refused.headers["retry-after"], known.status) == (503, "1", 200)
    assert b"as many open runs as it may" in refused.body
    assert measure(sender, 'otel_ml_refused_total{reason="too many runs"}') == 1


def test_what_is_acknowledged_and_cannot_be_decided_is_bounded_in_the_journal(bench: Bench) -> None:
    """A run that cannot be stored holds the queue, not the disk: the journal grows to its limit and no further."""
    service = bench.service(limits=Limits(queue=200_000))
    sender = bench.sender(service)
    outbox = hold(service, sender)
    writer = FakeWriter()

    statuses = [sender.send("metrics", writer.step(n, {f"m{i}": 1.0 for i in range(100)})).status for n in range(1, 80)]

    assert {200, 503} == set(statuses)
    journal = list((bench.folder / ".service").glob("journal*"))
    assert {path.name for path in journal} == {"journal.db", "journal.db-wal", "journal-1.log"}
    assert sum(path.stat().st_size for path in journal) < 1_000_000
    assert measure(sender, "otel_ml_journal_bytes") <= 200_000
    outbox._connection.execute("PRAGMA max_page_count=100000")
    eventually(lambda: measure(sender, "otel_ml_journal_bytes") == 0)


def test_what_waits_for_the_engine_takes_the_memory_that_it_counts_for(bench: Bench) -> None:
    at_work = threading.Event()
    at_work.set()

    def clock() -> float:  # the engine's thread asks it for every round
        at_work.wait(60)
        return time.time()

    service = bench.service(exporters={"jsonl": {}}, clock=clock)
    sender, writer = bench.sender(service), FakeWriter()
    requests = [writer.step(step, {f"m{n}": float(n) for n in range(2_000)}) for step in range(70)]
    bodies = [request.SerializeToString() for request in requests]
    for body in bodies[:10]:
        sender.send("metrics", body)
    eventually(lambda: service._admission.held == 0)
    at_work.clear()
    gc.collect()
    tracemalloc.start()
    for body in bodies[10:]:
        assert sender.send("metrics", body).status == 200
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = service._admission.held
    at_work.set()

    assert counted > sum(map(len, bodies[15:]))
    assert taken < 1.4 * counted
