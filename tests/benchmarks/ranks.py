"""A job of simulated ranks, steps of one length: what the service uses, and how soon a row is there to be seen.

A rank sends as the worker does: at one of its looks, 100 ms apart, after the step has ended. What is timed is from the
moment all ranks are done with a step until its row can be read from the file, by polling the file.
"""

from __future__ import annotations

import json
import resource
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Curve, Figure, Found
from tests.benchmarks.payload import FIRST
from tests.benchmarks.sizes import Size
from tests.benchmarks.under_load import (
    DELIVERED_WITHIN_S,
    EXPERIMENT,
    Watch,
    answers,
    received,
    senders,
    service,
    tell,
    watched,
)
from tests.collector.pipeline import Service
from tests.e2e.jobs import until

__all__ = ["Steps", "allow_files", "job", "measure"]


@dataclass(frozen=True)
class Steps:
    """What a rank of a job sends."""

    metrics: int
    timers: int
    seconds: float = 1.0
    """From one step to the next."""


JOBS = {1024: Steps(100, 20), 4096: Steps(100, 20), 16_384: Steps(100, 0, seconds=5.0)}
"""Ranks, a connection each → their steps."""

LOOK_S = 0.01
"""Between two looks at a file: no row is there later than is said, and at most this much sooner."""

PROCESSES = 2
SETTLE_S = 3
"""Of the start, which is not counted: connections are opened, shapes are learned."""

START_IN_S = 2.0

Seen = dict[int, float]
"""Step → when it was done, or could be read, seconds since the epoch."""


def measure(size: Size) -> Found:
    """Run each job for as long as the size says, if it is not left out."""
    allow_files()
    figures: dict[str, Figure] = {}
    curves: dict[str, Curve] = {}
    for ranks, each in JOBS.items():
        if str(ranks) in size.left_out:
            continue
        with service() as one:
            found, curve = job(one, ranks, each, size.job_s[ranks])
        figures |= {f"{ranks}.{name}": figure for name, figure in found.items()}
        curves[f"{ranks}.memory"] = curve
    return Found(figures, curves)


def job(on: Service, ranks: int, each: Steps, seconds: float) -> tuple[dict[str, Figure], Curve]:
    """Run one job; return its figures, and memory over time."""
    count = int(seconds / each.seconds)
    spec = {
        "endpoint": on.endpoint,
        "experiment": EXPERIMENT,
        "metrics": each.metrics,
        "timers": each.timers,
        "steps": count,
        "step_s": each.seconds,
    }
    with senders("tests.benchmarks.paced", ranks, PROCESSES, spec) as sending:
        start = time.time() + START_IN_S
        tell(sending, str(start))
        with watched(on) as watch, watching(on, start + seconds + DELIVERED_WITHIN_S) as seen:
            sent = answers(sending)
        account = until(lambda: settled(on), seconds=DELIVERED_WITHIN_S)
    points = sum(one["points"] for one in sent)
    lost = max(0, points - received(on, EXPERIMENT)) + sum(account["lost"].values())
    done = {step: start + step * each.seconds for step in range(count)}
    settled_at = start + SETTLE_S
    timed = {step: at for step, at in done.items() if at >= settled_at or seconds <= 2 * SETTLE_S}
    pace = "a step a second" if each.seconds == 1 else f"a step each {each.seconds:g} s"
    figures = {
        "duration": Figure(count * each.seconds, "s", better="neither", note=pace),
        "connections": Figure(float(ranks), "1", better="neither", note="one a rank"),
        "cores": Figure(watch.cores(after_s=START_IN_S + SETTLE_S), "cores"),
        "lost": Figure(float(lost), "1", note=f"of {points:,} points"),
        "late_clients": Figure(max(one["late_s"] for one in sent) * 1e3, "ms", note="how late the load itself was"),
        **memory_figures(watch),
        **{name: figure for file, when in seen.items() for name, figure in freshness(file, when, timed)},
    }
    title = f"Memory of the service, {ranks:,} ranks, {pace}"
    return figures, Curve(title, "seconds", "MiB", {"resident": watch.memory()})


def allow_files() -> None:
    """Let this process, and those it starts, have as many connections as the system allows: a rank needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def memory_figures(watch: Watch) -> dict[str, Figure]:
    """Return the memory at the end, and how much it grew over the second half."""
    memory = [mib for _, mib in watch.memory()]
    half = memory[len(memory) // 2]
    return {
        "memory": Figure(memory[-1], "MiB"),
        "memory.growth": Figure((memory[-1] / half - 1) * 100, "%", note="over the second half"),
    }


def freshness(file: str, when: Seen, done: Seen) -> Iterator[tuple[str, Figure]]:
    """Yield the quantiles of the delay from step done to row visible; a row that never came counts as for ever."""
    delays = sorted(when.get(step, float("inf")) - at for step, at in done.items())
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        delay = delays[min(len(delays) - 1, int(share * len(delays)))]
        missing = sum(step not in when for step in done)
        if delay == float("inf"):
            yield f"{file}.{name}", Figure(None, "s", absent=f"{missing} of {len(done)} rows were not there in time")
        else:
            yield f"{file}.{name}", Figure(delay, "s", note=f"{len(done)} steps")


@contextmanager
def watching(on: Service, until_s: float) -> Iterator[dict[str, Seen]]:
    """Look at both files until the run has ended; yield what is seen by file, filled while the block runs."""
    seen: dict[str, Seen] = {"jsonl": {}, "tensorboard": {}}
    done = threading.Event()
    threads = [
        threading.Thread(target=look, args=(on.runs, pattern, steps_of, seen[file], done, until_s))
        for file, pattern, steps_of in (
            ("jsonl", f"*/{EXPERIMENT}/metrics.jsonl", steps_of_jsonl),
            ("tensorboard", f"*/{EXPERIMENT}/tensorboard/**/events*", steps_of_events),
        )
    ]
    for thread in threads:
        thread.start()
    try:
        yield seen
        until(lambda: settled(on), seconds=DELIVERED_WITHIN_S)
        time.sleep(10 * LOOK_S)
    finally:
        done.set()
        for thread in threads:
            thread.join()


def look(
    folder: Path,
    pattern: str,
    steps_of: Callable[[bytes], tuple[list[int], int]],
    seen: Seen,
    done: threading.Event,
    until_s: float,
) -> None:
    """Read what is appended to the files, and note when each step was there."""
    read: dict[Path, int] = {}
    while not done.wait(LOOK_S) and time.time() < until_s:
        for path in list(folder.glob(pattern)):
            with path.open("rb") as file:
                file.seek(read.get(path, 0))
                new = file.read()
            now = time.time()
            steps, consumed = steps_of(new)
            read[path] = read.get(path, 0) + consumed
            for step in steps:
                seen.setdefault(step - FIRST, now)


def steps_of_jsonl(new: bytes) -> tuple[list[int], int]:
    """Return the steps in whole lines, and how many bytes those are."""
    consumed = new.rfind(b"\n") + 1
    rows = (json.loads(line) for line in new[:consumed].splitlines() if b'"axis":"step"' in line)
    return [row["step"] for row in rows], consumed


def steps_of_events(new: bytes) -> tuple[list[int], int]:
    """Return the steps of whole events that hold values, and how many bytes those are (TFRecord framing)."""
    from tensorboard.compat.proto.event_pb2 import Event

    steps, position = [], 0
    while position + 12 <= len(new):
        (length,) = struct.unpack_from("<Q", new, position)
        end = position + 12 + length + 4
        if end > len(new):
            break
        event = Event.FromString(new[position + 12 : end - 4])
        if event.step >= FIRST and event.summary.value:
            steps.append(event.step)
        position = end
    return steps, position


def settled(on: Service) -> Mapping[str, Any]:
    """Return the account of a run that has ended and is delivered."""
    return on.ended(EXPERIMENT)
