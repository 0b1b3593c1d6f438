"""A training loop without otel_ml, beside the disturbed ones: `python -m tests.chaos.control FOLDER PAUSE`.

What it is held up by is the machine's doing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.chaos.stalls import Watch

CONTROL = "control.stalls"


def main() -> None:
    folder, pause = Path(sys.argv[1]), float(sys.argv[2])
    watch = Watch(folder / CONTROL)
    while not (folder / "stop").exists():
        with watch:
            for _ in range(4):
                sum(range(100))  # some microseconds, as a call of otel_ml takes
                watch.call_ended("nothing")
        time.sleep(pause)


if __name__ == "__main__":
    main()
