"""A process that sends as fast as it is acknowledged: `python -m tests.benchmarks.load JSON`.

Says `ready`, begins at the first line it reads, and prints after its time how many rounds it has begun. The second line
it reads is how many rounds all processes of the load shall have done; then it says goodbye and prints what it sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from tests.benchmarks.clients import Connection, connect
from tests.benchmarks.sources import SOURCES, Source


class Load:
    """Connections that each go round their own ranks."""

    def __init__(self, source: Source, ranks: range, seconds: float) -> None:
        self._source = source
        self._ranks = ranks
        self._seconds = seconds
        self._begun = 0
        self._last: int | None = None

    async def run(self, connections: list[Connection]) -> dict[str, Any]:
        """Send, agree on the last round, and return what was sent."""
        deadline = time.monotonic() + self._seconds
        workers = [
            asyncio.create_task(self._go_round(connection, self._ranks[index :: len(connections)], deadline))
            for index, connection in enumerate(connections)
        ]
        await asyncio.sleep(self._seconds)
        # Whoever is between two rounds waits there until all know which is the last.
        print(json.dumps({"begun": self._begun}), flush=True)
        self._last = int(await asyncio.to_thread(sys.stdin.readline))
        await asyncio.gather(*workers)
        return {
            "rounds": self._last,
            "steps": self._last * self._source.steps,
            "items": self._last * sum(map(self._source.items, self._ranks)),
            "turned_away": sum(connection.turned_away for connection in connections),
            "cpu_s": time.process_time(),
        }

    async def _go_round(self, connection: Connection, ranks: range, deadline: float) -> None:
        number = 0
        while True:
            while self._last is None and time.monotonic() >= deadline and number >= self._begun:
                await asyncio.sleep(0.005)
            if self._last is not None and number >= self._last:
                break
            self._begun = max(self._begun, number + 1)
            for rank in ranks:
                for request in self._source.requests(number, rank):
                    await connection.post(*request)
            number += 1
        for rank in ranks:
            for request in self._source.goodbye(number, rank):
                await connection.post(*request)


async def main(spec: dict[str, Any]) -> None:
    ranks = range(*spec["ranks"])
    source = SOURCES[spec["kind"]](spec["experiment"], spec["world"], ranks, **spec["options"])
    connections = await asyncio.gather(
        *(connect(spec["endpoint"]) for _ in range(min(len(ranks), spec["connections"])))
    )
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(await Load(source, ranks, spec["seconds"]).run(list(connections))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
