"""Killed at any boundary of a commit, and started again, the service stores what it would have stored undisturbed."""

from __future__ import annotations

import http.client
import json
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.boundary import serve_until
from tests.e2e.jobs import answer_of
from tests.integration.conftest import Sender
from tests.otlp import FakeWriter
from tests.waiting import eventually

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.chaos.boundary", "otel_ml_exporters.backends.tensorboard", "tests.otlp"])

STEPS, RANKS = 8, 2


class Served:
    """Keeps a service alive: at each start it is told at which boundary to die, or to live."""

    def __init__(self, folder: Path, boundaries: Iterator[int | None]) -> None:
        self.folder = folder
        self.boundaries = boundaries
        self.deaths: list[int] = []
        self.sender: Sender | None = None
        self.start()

    def start(self) -> None:
        ours, theirs = CONTEXT.Pipe(duplex=False)
        self.kill_at = next(self.boundaries)
        self.process = CONTEXT.Process(target=serve_until, args=(self.folder, self.kill_at, theirs), daemon=True)
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

    def has_ended(self) -> bool:
        """Whether the run's end is in both backends; the service is started again where it died."""
        if not self.process.is_alive():
            self.revive()
        try:
            run = self.sender.run() if self.sender is not None else None
        except (OSError, http.client.HTTPException):
            return False
        return run is not None and run["status"] == "finished" and run["pending"] == 0

    def close_sender(self) -> None:
        if self.sender is not None:
            self.sender.close()
        self.sender = None

    def close(self) -> None:
        self.close_sender()
        self.process.kill()
        self.process.join()


def stored_after(folder: Path, boundaries: Iterator[int | None]) -> tuple[list[int], dict[str, Any], Counter[str]]:
    """Run a small job; return where the service died, and what the two backends hold."""
    served = Served(folder, boundaries)
    try:
        writers = [FakeWriter(rank=rank, world_size=RANKS) for rank in range(RANKS)]
        served.send("logs", writers[0].event("ml.text", "hello", {"ml.name": "note"}))
        for step in range(STEPS):
            for writer in writers:
                served.send("metrics", writer.step(step, {"loss": float(step + writer.rank)}, reduction="sum"))
        for writer in writers:
            served.send("logs", writer.goodbye())
        eventually(served.has_ended, timeout=60)
    finally:
        served.close()
    run = folder / "default" / "run-1"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = {line["step"]: line["values"]["loss"] for line in lines if "loss" in line.get("values", ())}
    seqs = [line["seq"] for line in lines]
    assert seqs == sorted(set(seqs))
    assert Counter(line["step"] for line in lines if "loss" in line.get("values", ())) == Counter(range(STEPS))
    shown = answer_of("tensorboard", run)
    points = Counter(f"{name} {step} {value}" for name, _, step, value, *_ in shown["scalars"] if name == "loss")
    return served.deaths, rows, points


EXPECTED = {step: float(2 * step + 1) for step in range(STEPS)}
POINTS = Counter(f"loss {step} {value}" for step, value in EXPECTED.items())


@pytest.mark.timeout(240)
def test_a_service_that_dies_at_boundary_after_boundary_stores_everything_once(tmp_path: Path) -> None:
    deaths, rows, points = stored_after(tmp_path, count(1))

    assert deaths == list(range(1, len(deaths) + 1))
    assert len(deaths) >= 10
    assert rows == EXPECTED
    assert points == POINTS


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_service_that_dies_once_at_any_boundary_stores_everything_once(tmp_path: Path) -> None:
    for boundary in count(1):
        deaths, rows, points = stored_after(tmp_path / str(boundary), chain([boundary], repeat(None)))
        assert (boundary, rows, points) == (boundary, EXPECTED, POINTS)
        if not deaths:
            break
    assert boundary > 20
