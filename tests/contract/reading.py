"""Ask a backend's reader, which runs in a process of its own, what it finds of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.forked import Forked

__all__ = ["answer_of"]


def answer_of(reader: str, run: Path, run_id: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return what a reader says, see `tests.contract.readers`."""
    process = Forked(reader, f"tests.contract.readers.{reader}", [str(run.resolve()), run_id], env=env, cwd=run)
    said = process.communicate(timeout=280)
    assert process.returncode == 0, f"the reader {reader} failed; stderr has its traceback"
    answer: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answer
