"""An actor that knows nothing of steps, ranks, runs or endpoints: it imports and logs.

    python examples/actor_knows_nothing.py

`child_env()` is all it inherits: give it to Ray's `runtime_env={"env_vars": …}`, to `subprocess`, to NeMo-Run.
Expected: the trainer's rows, with `push_weights_s` (the actor's mean of what it logged while the row was open) in them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import otel_ml

ACTOR = """
import sys
import otel_ml as mlogger

for line in sys.stdin:
    mlogger.log({"push_weights_s": float(line)})
"""


def main() -> None:
    with otel_ml.init("actor-knows-nothing"):
        environment = {**os.environ, **otel_ml.child_env()}
        with subprocess.Popen(
            [sys.executable, "-c", ACTOR], env=environment, stdin=subprocess.PIPE, text=True
        ) as actor:
            for step in otel_ml.steps(range(20)):
                otel_ml.log({"loss": 1 / (1 + step)})
                print(0.25, file=actor.stdin, flush=True)


if __name__ == "__main__":
    main()
