"""What a call costs on the training thread: `make bench`.

Every call is measured in a fresh process, as the best of several rounds: the rest is what else the machine does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import timeit

from tests.benchmarks import beside_the_sdk
from tests.e2e.jobs import environment

ROUNDS, CALLS = 7, 20_000
VALUES = {f"metric_{i}": float(i) for i in range(10)}

CASES = {
    "log(1 value)": "otel_ml.log({'loss': 0.5})",
    "log(10 values)": "otel_ml.log(VALUES)",
    "log(1 value, reduce='sum')": "otel_ml.log({'tokens': 1}, reduce='sum')",
    "record(weight=)": "otel_ml.record('ce', 0.5, weight=512)",
    "with timed()": "with otel_ml.timed('forward'): pass",
    "set_step()": "otel_ml.set_step(next(STEP))",
}


def measured(statement: str, *, run: bool) -> float:
    """Return microseconds a call, in a process that has a run or has none."""
    command = [sys.executable, "-m", "tests.benchmarks.__main__", statement, json.dumps(run)]
    with tempfile.TemporaryDirectory() as folder:
        env = environment(OTEL_ML_DIR=folder, OTEL_ML_EXPORTERS="jsonl", OTEL_ML_CONSOLE="off")
        return float(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)


def measure(statement: str, run: bool) -> None:
    import itertools

    import otel_ml

    if run:
        otel_ml.init("bench")
        otel_ml.set_step(0)
    names = {"otel_ml": otel_ml, "VALUES": VALUES, "STEP": itertools.count(1)}
    seconds = min(timeit.repeat(statement, globals=names, number=CALLS, repeat=ROUNDS))
    otel_ml.shutdown()
    print(seconds / CALLS * 1e6)


def main() -> None:
    print(f"| call | in a run | without a run |\n|---|---|---|  (µs, best of {ROUNDS} × {CALLS})")
    for name, statement in CASES.items():
        in_a_run, without = measured(statement, run=True), measured(statement, run=False)
        print(f"| `{name}` | {in_a_run:.2f} | {without:.2f} |", flush=True)
    print()
    beside_the_sdk.main()


if __name__ == "__main__":
    measure(sys.argv[1], json.loads(sys.argv[2])) if len(sys.argv) > 1 else main()
