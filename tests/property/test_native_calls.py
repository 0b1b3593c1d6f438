"""What compiled calls record is what Python records: random programs, once in a process with each."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAMS = 150


def outcomes(part: str, first: int) -> list[str]:
    command = [sys.executable, "-m", "tests.property.calls", part, str(first), str(PROGRAMS)]
    # A variable of otel_ml may ask for a run, which would take away what the programs record.
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()


def test_any_program_records_the_same_with_and_without_the_compiled_part() -> None:
    first = random.randrange(10**6)
    compiled, python = outcomes("compiled", first), outcomes("python", first)

    assert len(compiled) == PROGRAMS
    for seed, (one, other) in enumerate(zip(compiled, python, strict=True), start=first):
        assert json.loads(one) == json.loads(other), f"python -m tests.property.calls compiled|python {seed} 1"
    kinds = json.dumps(compiled)
    assert all(word in kinds for word in ("KeyError", "bad_value", "bad_name", "spans_over_budget"))
