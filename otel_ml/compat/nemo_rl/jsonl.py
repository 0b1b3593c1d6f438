"""Samples of a step as JSON lines; an earlier file of the same name is kept beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["append_lines", "write_batch"]


def write_batch(path: Path, batch: Mapping[str, Any]) -> None:
    """Write one object a sample: its slice of every column, and `idx`.

    The file appears whole or not at all. One that is there already is renamed: `data.jsonl` to `data.1.jsonl`.

    Args:
        path: of the file; its folder is made.
        batch: name → tensor, array or list over the samples; anything else belongs to every sample.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            for row in _rows(batch):
                file.write(json.dumps(row, default=str) + "\n")
        if path.exists():
            # Only now that the new one is whole: a write that fails leaves the old file under its name.
            path.rename(_free_name(path))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Add `lines` to a file as they are.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def _rows(batch: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    columns = {name: _readable(value) for name, value in batch.items()}
    lengths = [len(value) for value in columns.values() if isinstance(value, list)]
    for index in range(max(lengths, default=0)):
        row = {
            # A list of one: NeMo RL writes batches of one sample, `{"reward": [0.5], "idx": 0}`.
            name: value[index : index + 1] if isinstance(value, list) else value
            for name, value in columns.items()
            if not isinstance(value, list) or index < len(value)
        }
        yield {**row, "idx": index}


def _readable(value: Any) -> Any:
    """Return what has a batch dimension as a list; the elements of lists may be arrays themselves."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [item.tolist() if hasattr(item, "tolist") else item for item in value]
    return value


def _free_name(path: Path) -> Path:
    number = 1
    while (free := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    return free
