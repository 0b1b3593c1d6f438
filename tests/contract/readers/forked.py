"""Imports one reader, and reads in a new process for each question: `python -m tests.contract.readers.forked READER`.

MLflow's import takes longer than most of what is asked of it. A line of stdin is a question, `{"run": folder, "id": run
id, "env": environment}`; the answer is a line of stdout, `{"answer": …}`, or `{"error": traceback}`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # libraries print, too
    reader = importlib.import_module(f"tests.contract.readers.{sys.argv[1]}")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            tell(answers, answer(reader, json.loads(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            tell(answers, {"error": f"The reader ended by itself: status {status}."})


def tell(answers: int, told: dict[str, object]) -> None:
    with open(answers, "w", encoding="utf-8", closefd=False) as file:
        file.write(json.dumps(told) + "\n")


def answer(reader: ModuleType, question: dict[str, Any]) -> dict[str, object]:
    run = Path(question["run"])
    try:
        os.chdir(run)
        os.environ.clear()
        os.environ.update(question["env"])
        found = reader.read(run, question["id"])
        json.dumps(found, allow_nan=False)
    except Exception:  # noqa: BLE001 - the test says it
        return {"error": traceback.format_exc()}
    return {"answer": found}


if __name__ == "__main__":
    main()
