"""The service beside the Collector that writes the same load to a file, in turns on the same cores.

The Collector decodes every point and writes it as JSON; nothing of it survives `kill -9`, and nothing is reduced. The
service keeps every point in its journal, reduces it, and writes rows to TensorBoard and JSONL.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.figures import Figure, absent, middle
from tests.benchmarks.sizes import Size
from tests.benchmarks.under_load import Load, ready, sent_by, served, service, watched
from tests.collector.pipeline import OTELCOL, Program
from tests.e2e.jobs import environment
from tests.ports import free_port

__all__ = ["measure"]

CONFIG = Path(__file__).with_name("collector_to_file.yaml")


class Turn(NamedTuple):
    """What one of both took."""

    rate: float
    cores: float


def measure(name: str, load: Load, size: Size) -> Mapping[str, Figure]:
    """Return how many points a second each takes, and the ratio turn by turn."""
    names = {"ratio": "×", "service": "points/s", "collector": "points/s"}
    if not OTELCOL.exists():
        return {f"beside.{name}.{key}": absent(unit, "no Collector (make collector)") for key, unit in names.items()}
    load = replace(load, seconds=size.beside_s)
    turns = [(service_turn(load), collector_turn(load)) for _ in range(size.beside_pairs)]
    ours, theirs = zip(*turns, strict=True)
    figures = {
        "ratio": middle([one.rate / other.rate for one, other in turns], names["ratio"], better="more"),
        "service": middle([one.rate for one in ours], names["service"], better="more"),
        "collector": middle([one.rate for one in theirs], names["collector"], better="neither"),
        "service.cores": Figure(statistics.median(one.cores for one in ours), "cores", better="neither"),
        "collector.cores": Figure(statistics.median(one.cores for one in theirs), "cores", better="neither"),
    }
    return {f"beside.{name}.{key}": figure for key, figure in figures.items()}


def service_turn(load: Load) -> Turn:
    """Put the load on the service; the last row is in the backends when the clock stops."""
    with service() as one:
        outcome = served(load, one)
    assert outcome.exact, "A row is missing, or is not the mean of what was sent."
    assert not outcome.lost, f"{outcome.lost} points are lost."
    return Turn(outcome.rate, outcome.watch.cores())


def collector_turn(load: Load) -> Turn:
    """Put it on the Collector; the last point is in its file when the clock stops."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder, ToFile(Path(folder)) as collector:
        with ready(load, collector.endpoint) as sending:
            began = time.monotonic()
            with watched(collector) as watch:
                items = sum(one["items"] for one in sent_by(sending))
            collector.stop()
            seconds = time.monotonic() - began
        written = collector.points()
    assert written >= items, f"The Collector wrote {written} of {items} points."
    return Turn(items / seconds, watch.cores())


class ToFile(Program):
    """A Collector that writes what arrives to a file in `folder`."""

    def __init__(self, folder: Path) -> None:
        http, health = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.endpoint = f"http://{http}"
        self.file = folder / "points.json"
        env = environment(HTTP=http, HEALTH=health, FILE=self.file)
        super().__init__("to-file", [OTELCOL, "--config", CONFIG], env, folder, f"http://{health}/")

    def points(self) -> int:
        """Return how many points are in the file: each has one time at which it was taken."""
        with self.file.open("rb") as file:
            return sum(line.count(b'"timeUnixNano"') for line in file)
