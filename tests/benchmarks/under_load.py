"""The service under a load: start both, watch what it uses, wait until everything is delivered, and count."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.child import bare_environment
from tests.benchmarks.payload import FIRST, expected_mean, metric_name
from tests.collector.pipeline import Program, Service

__all__ = [
    "DELIVERED_WITHIN_S",
    "EXPERIMENT",
    "Load",
    "Outcome",
    "Watch",
    "answers",
    "ready",
    "received",
    "senders",
    "sent_by",
    "served",
    "service",
    "settled",
    "tell",
    "watched",
]

EXPERIMENT = "bench"
DELIVERED_WITHIN_S = 120.0
"""How long what was acknowledged may take to be in every backend, before the measurement is given up."""

SAMPLE_S = 0.5
LOOK_S = 0.02

STILL_S = 0.2
"""How long nothing may have moved in a run that nobody ends."""


@dataclass(frozen=True)
class Load:
    """What is sent, see `sources`.

    Attributes:
        kind: `own`, `foreign`, `spans`.
        connections: of each of the processes that send.
    """

    kind: str
    ranks: int
    seconds: float
    options: Mapping[str, Any]
    experiment: str = EXPERIMENT
    connections: int = 16
    processes: int = 2


@dataclass
class Watch:
    """What a process used, sampled twice a second: (seconds since the start, CPU seconds, bytes resident)."""

    samples: list[tuple[float, float, int]] = field(default_factory=list)

    def cores(self, *, after_s: float = 0.0) -> float:
        """Return CPU seconds a second, over the samples from `after_s` on."""
        kept = [sample for sample in self.samples if sample[0] >= after_s] or self.samples
        return (kept[-1][1] - kept[0][1]) / max(1e-9, kept[-1][0] - kept[0][0])

    @property
    def cpu_s(self) -> float:
        """CPU seconds from the first sample to the last."""
        return self.samples[-1][1] - self.samples[0][1]

    def memory(self) -> Sequence[tuple[float, float]]:
        """Return MiB over time, at most a hundred samples of it."""
        every = len(self.samples) // 100 + 1
        return [(at, resident / 2**20) for at, _, resident in [*self.samples[:-1:every], self.samples[-1]]]


@dataclass(frozen=True)
class Outcome:
    """What came of a load.

    Attributes:
        items: points or spans sent.
        seconds: from the first request until the last backend had everything.
        lost: items that were sent and are not counted as recorded by the run, plus what it says it lost.
        exact: whether the first and the last row hold the mean over all ranks, and no row is missing.
    """

    items: int
    seconds: float
    lost: int
    exact: bool
    watch: Watch
    account: Mapping[str, Any]

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.items / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of the service an item, in µs."""
        return self.watch.cpu_s / self.items * 1e6


@contextmanager
def service(exporters: str = "jsonl,tensorboard", **env: object) -> Iterator[Service]:
    """Run the service in a folder of its own."""
    quiet = {"OTEL_LOG_LEVEL": "error", "OTEL_ML_CONSOLE": "off", **env}
    with (
        tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder,
        Service(Path(folder), exporters, **quiet) as one,
    ):
        yield one


def served(load: Load, on: Service, *, endpoint: str = "") -> Outcome:
    """Put a load on a running service, through `endpoint` where it is not its own."""
    with ready(load, endpoint or on.endpoint) as sending, watched(on) as watch:
        began = time.monotonic()
        sent = sent_by(sending)
        items = sum(one["items"] for one in sent)
        account = settled(on, load, items)
        seconds = time.monotonic() - began
    arrived = spans_in(on, load.experiment) if load.kind == "spans" else received(on, load.experiment)
    lost = sum(account["lost"].values()) + max(0, items - arrived)
    return Outcome(items, seconds, lost, is_exact(on, load, sent[0]["steps"]), watch, account)


@contextmanager
def ready(load: Load, endpoint: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the processes of a load; they are connected, and wait to be told to begin."""
    spec = {
        "kind": load.kind,
        "experiment": load.experiment,
        "endpoint": endpoint,
        "seconds": load.seconds,
        "connections": load.connections,
        "options": dict(load.options),
    }
    with senders("tests.benchmarks.load", load.ranks, min(load.processes, load.ranks), spec) as sending:
        yield sending


def sent_by(sending: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Let them send all of it, and return what each has sent, acknowledged."""
    tell(sending, "go")
    tell(sending, str(max(answer["begun"] for answer in answers(sending))))
    return answers(sending)


@contextmanager
def senders(module: str, ranks: int, processes: int, spec: Mapping[str, Any]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes that each play their share of the ranks; they are connected, and wait to be told to begin."""
    bounds = [ranks * part // processes for part in range(processes + 1)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", module, json.dumps({**spec, "world": ranks, "ranks": share})],
            env=bare_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in itertools.pairwise(bounds)
    ]
    try:
        for process in started:
            assert line_of(process) == "ready"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def tell(sending: Sequence[subprocess.Popen[str]], line: str) -> None:
    for process in sending:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()


def answers(sending: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    return [json.loads(line_of(process)) for process in sending]


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError("A process that sends ended by itself; what it said is above.")
    return line


@contextmanager
def watched(one: Program) -> Iterator[Watch]:
    """Sample what its process uses, in a thread."""
    assert one.process is not None
    process, watch, done = psutil.Process(one.process.pid), Watch(), threading.Event()
    began = time.monotonic()

    def sample() -> None:
        used = process.cpu_times()
        watch.samples.append((time.monotonic() - began, used.user + used.system, process.memory_info().rss))

    def look() -> None:
        sample()
        while not done.wait(SAMPLE_S):
            sample()
        sample()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        done.set()
        thread.join()


def settled(on: Service, load: Load, items: int) -> Mapping[str, Any]:
    """Wait until everything is delivered, or for too long; return the run's account as it is then."""
    deadline = time.monotonic() + DELIVERED_WITHIN_S
    while not is_complete(on, load, items) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return on.account(load.experiment)


def is_complete(on: Service, load: Load, items: int) -> bool:
    """Whether the run has ended and every exporter has everything.

    Foreign writers never say goodbye: their last step closes with the end of the run, and is not waited for.
    """
    if load.kind != "foreign":
        return bool(on.ended(load.experiment))
    return received(on, load.experiment) >= items and is_still(on, load.experiment)


def is_still(on: Service, experiment: str) -> bool:
    """Whether all records there are have been delivered, and no more come."""
    before = on.account(experiment)
    time.sleep(STILL_S)
    after = on.account(experiment)
    return before["last_seq"] == after["last_seq"] and all(
        one["delivered_seq"] == after["last_seq"] for one in after["exporters"].values()
    )


def received(on: Service, experiment: str) -> int:
    """Return the points of a run that arrived, those that came twice once."""
    with urllib.request.urlopen(f"{on.endpoint}/metrics", timeout=10) as answer:
        lines = [line for line in answer.read().decode().splitlines() if f'run="{experiment}"' in line]
    counted = {
        name: sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(f"otel_ml_{name}_total{{"))
        for name in ("received", "duplicate")
    }
    return counted["received"] - counted["duplicate"]


def spans_in(on: Service, experiment: str) -> int:
    """Return how many spans are in the run's file."""
    return sum(1 for _ in _lines(on, experiment, "spans.jsonl"))


def is_exact(on: Service, load: Load, steps: int) -> bool:
    """Whether every step has its row, and the first and the last of them are the means of what was sent.

    An amendment counts: on a machine that is short of time a rank may come too late for the first step to wait for it.
    """
    if load.kind == "spans" or load.options.keys() & {"reduction", "late"}:
        return True
    ends: dict[int, dict[str, float]] = {FIRST: {}, FIRST + steps - 1: {}}
    count = 0
    for line in _lines(on, load.experiment, "metrics.jsonl"):
        if b'"axis":"step"' in line:
            count += b'"amendment":true' not in line
            number = int(line[line.index(b'"step":') + 7 :].partition(b",")[0])
            if number in ends:
                ends[number] |= json.loads(line)["values"]
    if load.kind == "foreign" or load.options.get("attributes"):  # the names have the attributes in them
        return count >= steps - 1
    wanted = {metric_name(index): expected_mean(load.ranks, index) for index in range(load.options["metrics"])}
    return count == steps and all(wanted.items() <= found.items() for found in ends.values())


def _lines(on: Service, experiment: str, name: str) -> Iterator[bytes]:
    found = list(on.runs.glob(f"*/{experiment}/{name}"))
    if found:
        with found[0].open("rb") as file:
            yield from file
