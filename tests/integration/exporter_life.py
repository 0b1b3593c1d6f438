"""One life of an exporter in a process that a test kills.

`python -m tests.integration.exporter_life EXPORTER OPTIONS RUN_DIR RUN_ID UNTIL`: asks for the position, exports
`stream.training` from there up to `UNTIL`, flushing and printing the last `seq` after each batch, and shuts down.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path

from otel_ml_exporters.records import RunStatus
from otel_ml_exporters.registry import exporter_class
from tests.contract.stored import environment
from tests.contract.stream import AT, run_info, training
from tests.forked import Forked

__all__ = ["ENDLESS", "RUN_ID", "begin", "live"]

ENDLESS = 1_000_000
RUN_ID = "01JLIFE"


def begin(
    exporter: str, run_dir: Path, until: int, *, options: Mapping[str, object] = {}, env: Mapping[str, str] = {}
) -> Forked:
    """Start a life in another process."""
    arguments = [exporter, json.dumps(options), str(run_dir), RUN_ID, str(until)]
    return Forked(exporter, "tests.integration.exporter_life", arguments, env={**environment(), **env}, cwd=run_dir)


def live(exporter: str, options: str, run_dir: str, run_id: str, until: str) -> None:
    """Live."""
    made = exporter_class(exporter)(**json.loads(options))
    made.start(run_info(Path(run_dir), run_id))
    position = made.position() or 0
    sizes = random.Random(position)
    print(position, flush=True)
    while position < int(until):
        last = min(int(until), position + sizes.randint(1, 64))
        made.export([training(seq) for seq in range(position + 1, last + 1)])
        made.force_flush(30.0)
        position = last
        print(position, flush=True)
    made.shutdown(30.0, RunStatus(position + 1, AT, "finished"))


if __name__ == "__main__":
    live(*sys.argv[1:])
    # Nothing of the client may be waited for: a life ends as the service's process does.
    sys.stdout.flush()
    os._exit(0)
