"""Folders `exp_001`, `exp_002`, …: a new one for each start."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["get_next_experiment_dir"]

_NUMBERED = re.compile(r"exp_(\d+)")


def get_next_experiment_dir(base_log_dir: str | os.PathLike[str]) -> str:
    """Make the folder `exp_NNN` after the highest one in `base_log_dir`, and return its path.

    Jobs that start at once get folders of their own.
    """
    base = Path(base_log_dir)
    base.mkdir(parents=True, exist_ok=True)
    numbers = [int(match[1]) for entry in base.iterdir() if (match := _NUMBERED.fullmatch(entry.name))]
    number = max(numbers, default=0) + 1
    while True:
        folder = base / f"exp_{number:03d}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return str(folder)
