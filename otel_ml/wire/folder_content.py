"""What is in a folder that other processes change, too."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["inside"]


def inside(folder: Path) -> list[Path]:
    """Return what is in a folder; nothing where it is none, is not to be read, or has just been removed by another."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries]
    except OSError:
        return []
