"""What a request costs in the journal: `python -m tests.benchmarks.journal`.

CPU time of the process, a request, where groups of requests are appended, made durable and dropped; and how long a lone
request waits.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.journal import Journal

CASES = ((600, 127_000, 8), (5_000, 2_000, 64))
"""Requests, their bytes, and how many come at once."""

LONE = 300
ROUNDS = 5


class Sender:
    """Appends requests of one size, and waits for each group."""

    def __init__(self, folder: Path, size: int) -> None:
        self.journal: Journal[None] = Journal(folder / "journal.db", lambda _: None)
        self.journal.start()
        self.body = os.urandom(size)
        self.stored = threading.Semaphore(0)
        self.last = 0

    def done(self, result: int | StorageError) -> None:
        assert isinstance(result, int), result
        self.last = result
        self.stored.release()

    def send(self, count: int) -> None:
        for _ in range(count):
            self.journal.append("metrics", self.body, None, self.done)
        for _ in range(count):
            self.stored.acquire()
        self.journal.drop(self.last - count)


def cpu_us(count: int, size: int, at_once: int) -> float:
    """Return microseconds of CPU time a request, with its part of the journal's end."""
    with tempfile.TemporaryDirectory() as folder:
        sender = Sender(Path(folder), size)
        sender.send(at_once)
        begin = time.process_time()
        for _ in range(count // at_once):
            sender.send(at_once)
        sender.journal.drop(sender.last)
        sender.journal.close()
        return (time.process_time() - begin) / (count // at_once * at_once) * 1e6


def lone_us() -> float:
    """Return how many microseconds a lone request of 2 kB waits, at the median."""
    with tempfile.TemporaryDirectory() as folder:
        sender = Sender(Path(folder), 2_000)
        took = []
        for _ in range(LONE):
            begin = time.perf_counter()
            sender.send(1)
            took.append(time.perf_counter() - begin)
        sender.journal.close()
        return median(took) * 1e6


def main() -> None:
    for count, size, at_once in CASES:
        best = min(cpu_us(count, size, at_once) for _ in range(ROUNDS))
        print(f"{count:,} requests of {size:,} bytes, {at_once} at once: {best:.1f} µs of CPU time each")
    print(f"a lone request of 2,000 bytes: {min(lone_us() for _ in range(ROUNDS)):.0f} µs")


if __name__ == "__main__":
    main()
