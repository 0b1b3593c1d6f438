"""Files that a run has recorded, copied to where a script wants them."""

from __future__ import annotations

import shutil
from os import PathLike
from pathlib import Path

from otel_ml.explanation import explained

__all__ = ["copied"]


def copied(recorded: str | PathLike[str], folder: str | PathLike[str], name: str) -> Path:
    """Copy a file to `name` below a folder, and return the copy.

    Raises:
        ValueError: the name leads out of the folder: whoever has written the run chose it.
        OSError: the file is gone, or cannot be written there.
    """
    top = Path(folder)
    copy = top / name
    # Both resolved: a link inside of the folder may lead out of it, and the folder itself may be below a link.
    if not copy.resolve().is_relative_to(top.resolve()):
        raise ValueError(explained(f"The file {name!r} of the run leads out of {str(top)!r}: not copied.", "not-kept"))
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(recorded, copy)
    return copy
