"""One reader a backend, run in a process of its own, with the backend's own library.

`python -m tests.contract.readers.<reader> <run dir> <run id>` prints one JSON object. Lists are in stored order,
non-finite numbers are the strings "nan", "inf", "-inf"; a key is left out where the backend has no place for it::

    scalars     [[name, axis, step, value, attempt or null], …]     without amendments
    amendments  [[name, axis, step, value], …]                      what was corrected or added later
    params      {"optimizer.lr": value, …}                          nested keys joined by "."
    summary     {name: value}
    texts       [[name, step, text], …]
    tables      [[name, step, columns, rows], …]
    images      [[name, step, SHA-256 of the PNG], …]
    audio       [[name, step, SHA-256 of the WAV], …]
    histograms  [[name, step, edges, counts], …]
    artifacts   [[name, path in it, SHA-256 of the content], …]
    tags        [tag, …]
    notes       "a free text"
    status      "running", "finished", "failed" or "killed"
    names       {key: name}                                         what a backend that does not take a name says it was
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["leaves", "main", "number"]


def number(value: float) -> float | str:
    """Return `value` as it travels in the answer: "nan", "inf", "-inf" where it is not finite."""
    return value if math.isfinite(value) else str(float(value))


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield nested parameters with their keys joined by dots."""
    for name, value in values.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            yield from leaves(value, key)
        else:
            yield key, value


def main(read: Callable[[Path, str], Mapping[str, object]]) -> None:
    """Print what `read(run dir, run id)` returns, as strict JSON."""
    answer = read(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.write(json.dumps(answer, allow_nan=False) + "\n")
    sys.stdout.flush()
    os._exit(0)  # to take a large library apart takes as long as to read with it
