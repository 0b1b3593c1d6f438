"""Killed at any boundary of a commit, and started again, the service stores what it would have stored undisturbed."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest

from otel_ml_service.aggregation.observation import Fragment
from otel_ml_service.live_runs.late_file import read_late
from otel_ml_service.receiver.decode import Decoder
from tests.chaos.boundary import serve_until
from tests.e2e.jobs import answer_of
from tests.integration.conftest import Sender
from tests.otlp import FakeWriter
from tests.waiting import eventually, whole_lines

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.chaos.boundary", "otel_ml_exporters.backends.tensorboard", "tests.otlp"])

STEPS, RANKS = 8, 2
LATE = [("loss", 100.0), ("loss", 200.0)]
"""Of a step that has closed with another `loss`."""
CONTENT = b"weights" * 1000


class Served:
    """Keeps a service alive: at each start it is told at which boundary to die, or to live."""

    def __init__(self, folder: Path, boundaries: Iterator[int | None], exporters: Sequence[str]) -> None:
        self.folder = folder
        self.exporters = exporters
        self.boundaries = boundaries
        self.deaths: list[int] = []
        self.sender: Sender | None = None
        self.start()

    def start(self) -> None:
        ours, theirs = CONTEXT.Pipe(duplex=False)
        self.kill_at = next(self.boundaries)
        arguments = (self.folder, self.exporters, self.kill_at, theirs)
        # No daemon: W&B's exporter has a process of its own.
        self.process = CONTEXT.Process(target=serve_until, args=arguments)
        self.process.start()
        theirs.close()
        self.close_sender()
        with suppress(EOFError):  # it died before it listened
            self.sender = Sender(ours.recv())

    def revive(self) -> None:
        """Start it again if it died."""
        self.process.join(10)
        assert self.process.exitcode == -9
        assert self.kill_at is not None
        self.deaths.append(self.kill_at)
        self.start()

    def send(self, signal: str, message: Any) -> None:
        """Send until it is acknowledged, as a worker does."""
        while True:
            try:
                if self.sender is not None and self.sender.send(signal, message).status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            self.revive()

    def has_closed(self, step: int) -> bool:
        """Whether a row of this step is in `metrics.jsonl`; the service is started again where it died."""
        if not self.process.is_alive():
            self.revive()
        path = self.folder / "default" / "run-1" / "metrics.jsonl"
        return path.exists() and any(line.get("step") == step for line in map(json.loads, whole_lines(path)))

    def has_ended(self) -> bool:
        """Whether the run's end is in both backends; the service is started again where it died."""
        if not self.process.is_alive():
            self.revive()
        try:
            run = self.sender.run() if self.sender is not None else None
        except (OSError, http.client.HTTPException):
            return False
        return run is not None and run["status"] == "finished" and run["pending"] == 0

    def stop(self) -> None:
        """Kill it after the end, too; the last one ends as a service does."""
        self.process.kill()
        self.process.join()
        self.boundaries = repeat(None)
        self.start()
        eventually(self.has_ended, timeout=60)
        self.process.terminate()
        self.process.join(60)

    def close_sender(self) -> None:
        if self.sender is not None:
            self.sender.close()
        self.sender = None

    def close(self) -> None:
        self.close_sender()
        self.process.kill()
        self.process.join()


def died_in(folder: Path, boundaries: Iterator[int | None], exporters: Sequence[str] = ("tensorboard",)) -> list[int]:
    """Run a small job, check that everything is stored once, and return where the service died."""
    served = Served(folder, boundaries, ("jsonl", *exporters))
    try:
        writers = [FakeWriter(rank=rank, world_size=RANKS) for rank in range(RANKS)]
        served.send("logs", writers[0].event("ml.text", "hello", {"ml.name": "note"}))
        for step in range(STEPS):
            for writer in writers:
                served.send("metrics", writer.step(step, {"loss": float(step + writer.rank)}, reduction="sum"))
            if step == STEPS // 2:
                served.send("logs", artifact(writers[0]))
        eventually(lambda: served.has_closed(0), timeout=60)
        for name, value in LATE:
            served.send("metrics", writers[1].step(0, {name: value}, reduction="sum"))
        for writer in writers:
            served.send("logs", writer.goodbye())
        eventually(served.has_ended, timeout=120)
        served.stop()
    finally:
        served.close()
    assert_stored_once(folder / "default" / "run-1", exporters)
    return served.deaths


def artifact(writer: FakeWriter) -> Any:
    facts = {"ml.name": "model", "ml.artifact.type": "model", "ml.artifact.path_in": "model.bin"}
    return writer.event("ml.artifact", CONTENT, {**facts, "ml.artifact.size": len(CONTENT)})


def assert_stored_once(run: Path, exporters: Sequence[str]) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seqs = [line["seq"] for line in lines]
    assert seqs == sorted(set(seqs))
    rows = [line for line in lines if "loss" in line.get("values", ())]
    losses = Counter((line["step"], line["values"]["loss"]) for line in rows)
    closed = Counter((line["step"], line["values"]["loss"]) for line in rows if "amendment" not in line)
    assert closed == Counter((step, float(2 * step + 1)) for step in range(STEPS))
    assert Counter(line.get("type") for line in lines)["artifact"] == 1
    assert [path.read_bytes() for path in (run / "artifacts").rglob("*") if path.is_file()] == [CONTENT]
    # A service that dies before it lets go of the step amends it; each value is in one of both places.
    amended = [line["values"]["loss"] - 1.0 for line in rows if "amendment" in line][-1:]
    too_late = sorted(late_values(run / "late.otlp"))
    assert set(too_late) <= set(LATE)
    assert sum(amended) + sum(value for _, value in too_late) == sum(value for _, value in LATE)
    for exporter in exporters:
        shown = answer_of(exporter, run)
        points = Counter((step, float(value)) for name, _, step, value, *_ in shown["scalars"] if name == "loss")
        assert points == losses, exporter


def late_values(path: Path) -> Iterator[tuple[str, float]]:
    found = read_late(path)
    assert found.torn == 0
    for body in found.bodies:
        for point in Decoder().protobuf("metrics", body).observations["run-1"]:
            assert isinstance(point, Fragment)
            yield point.partials.series[0].name, float(point.partials.stats[0, 1])


@pytest.mark.timeout(400)
def test_a_service_that_dies_at_boundary_after_boundary_stores_everything_once(tmp_path: Path) -> None:
    deaths = died_in(tmp_path, count(1, 3))

    assert deaths == list(range(1, 3 * len(deaths), 3))
    assert len(deaths) >= 10


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_a_service_that_dies_once_at_any_boundary_stores_everything_once(tmp_path: Path) -> None:
    for boundary in count(1):
        if not died_in(tmp_path / str(boundary), chain([boundary], repeat(None))):
            break
    assert boundary > 40


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("exporter", ["mlflow", "wandb"])
def test_the_trackers_resume_by_their_recipe_wherever_the_service_dies(tmp_path: Path, exporter: str) -> None:
    chosen = random.Random(7)
    boundaries = [chosen.randrange(5, 40) for _ in range(8)]

    deaths = died_in(tmp_path, chain(boundaries, repeat(None)), (exporter,))

    assert len(deaths) >= 4
