"""Some of the ranks of a simulated job, steps of one length: `python -m tests.benchmarks.paced JSON`.

Says `ready`, reads when the job begins, and prints what it sent after the last step.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any

from otel_ml._internal.transport.send import spans_interval
from tests.benchmarks.clients import Connection, connect
from tests.benchmarks.sources import Own, Spans

SOONEST_S, LATEST_S = 0.01, 0.11
"""After the end of a step: its last records settle for 10 ms, and the worker looks every 100 ms."""


async def rank(
    number: int, connection: Connection, points: Own, spans: Spans | None, start: float, step_s: float, steps: int
) -> float:
    """Play one rank, whose steps take `step_s`; return by how much it was late at worst, seconds.

    A worker has one request under way: what ends meanwhile goes together with the next.
    """
    phase = random.Random(number).uniform(SOONEST_S, LATEST_S)
    sent, late = 0, 0.0
    while sent < steps:
        due = start + sent * step_s + phase
        await asyncio.sleep(max(0.0, due - time.time()))
        behind = max(0.0, time.time() - due)
        late = max(late, behind)
        ended = min(steps, sent + 1 + int(behind / step_s))
        await connection.post(*points.together(range(sent, ended), number))
        for step in range(sent, ended) if spans else ():
            await post_spans(connection, spans, step, number)
        sent = ended
    for request in points.goodbye(steps, number):
        await connection.post(*request)
    return late


async def post_spans(connection: Connection, spans: Spans, step: int, number: int) -> None:
    """Post what several steps share after the last of them, of each rank at another step."""
    first = step + 1 - spans.steps - number % spans.steps
    if first >= 0 and first % spans.steps == 0:
        for request in spans.requests(first // spans.steps, number):
            await connection.post(*request)


async def connected(endpoint: str) -> Connection:
    """Return a connection that may wait for its first step."""
    connection = await connect(endpoint)
    await connection.greet()
    return connection


async def main(spec: dict[str, Any]) -> None:
    ranks = range(*spec["ranks"])
    about = (spec["experiment"], spec["world"], ranks)
    points = Own(*about, metrics=spec["metrics"], timers=spec["timers"])
    together = max(1, round(spans_interval(1.0, spec["world"])))
    spans = Spans(*about, spans=spec["timers"], per_request=together) if spec["timers"] else None
    connections = [await connected(spec["endpoint"]) for _ in ranks]
    print("ready", flush=True)
    start = float(await asyncio.to_thread(sys.stdin.readline))
    late = await asyncio.gather(
        *(
            rank(number, connection, points, spans, start, spec["step_s"], spec["steps"])
            for number, connection in zip(ranks, connections, strict=True)
        )
    )
    print(json.dumps({"points": sum(map(points.items, ranks)) * spec["steps"], "late_s": max(late)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
