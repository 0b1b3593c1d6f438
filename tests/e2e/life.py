"""A trainer that lives more than once: `python -m tests.e2e.life FOLDER FIRST-LAST[,FIRST-LAST…]`, one pair a life.

Which life it is says the launcher's count of restarts, or LIFE. Each step logs `loss`, from which the life can be read,
and `tokens`, one a rank. After the last step it leaves a file `<life>-<rank>` and waits inside that step, until there
is a file `end`; in the last life it ends. With FAIL=<rank>, that rank fails there once all others have arrived.

The ranks of a life begin together.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import otel_ml
from tests.e2e.rank import meet

PAUSE_S = 0.01


def loss_of(step: int, life: int) -> float:
    return float(step + 1000 * life)


def main() -> None:
    folder, lives = Path(sys.argv[1]), [tuple(map(int, pair.split("-"))) for pair in sys.argv[2].split(",")]
    life = int(os.environ.get("LIFE") or os.environ["TORCHELASTIC_RESTART_COUNT"])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    first, last = lives[life]
    with otel_ml.init("lives"):
        meet(folder, f"life-{life}", rank, world)
        for step in range(first, last + 1):
            otel_ml.set_step(step)
            otel_ml.log({"loss": loss_of(step, life)})
            otel_ml.log({"tokens": 1}, reduce="sum")
            print("step", step, flush=True)
            time.sleep(PAUSE_S)  # a step of this long: a life is killed in the middle of one
        (folder / f"{life}-{rank}").touch()
        if life + 1 < len(lives):
            wait(folder, life, world, fails=os.environ.get("FAIL") == str(rank))


def wait(folder: Path, life: int, world: int, *, fails: bool) -> None:
    while not (folder / "end").exists():
        if fails and len(list(folder.glob(f"{life}-*"))) == world:
            otel_ml.flush()
            os._exit(1)
        time.sleep(PAUSE_S)  # between two looks


if __name__ == "__main__":
    main()
