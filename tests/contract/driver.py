"""One life of a pipeline in a process of its own: `python -m tests.contract.driver CASE RUN_DIR RUN_ID UNTIL`.

Asks the exporter for its position (or takes the mark it kept itself, where the backend cannot tell), exports
`stream.training` from there up to `UNTIL` in batches of all sizes, prints the last `seq` of each, and shuts down.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tests.contract.cases import case
from tests.contract.stream import run_info, training

SHUTDOWN_SECONDS = 30.0


def main(case_id: str, run_dir: Path, run_id: str, until: int) -> None:
    exporter = case(case_id).exporter()
    exporter.start(run_info(run_dir, run_id))
    mark = run_dir / "contract-mark"
    position = exporter.position()
    if position is None:
        position = int(mark.read_text()) if mark.exists() else 0
    sizes = random.Random(position)
    while position < until:
        last = min(until, position + sizes.randint(1, min(exporter.max_batch, 64)))
        exporter.export([training(seq) for seq in range(position + 1, last + 1)])
        position = last
        mark.with_suffix(".part").write_text(str(position))
        mark.with_suffix(".part").replace(mark)
        print(position, flush=True)
    exporter.shutdown(SHUTDOWN_SECONDS, None)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
