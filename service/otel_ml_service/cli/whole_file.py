"""A file that a command writes for a person: it has its name once it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from otel_ml_service.cli.termination import put_away_when_terminated

__all__ = ["whole_file"]


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Yield where to write; what was there under the name before stays until all of it is written.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    if file.exists() and not file.is_file():  # a pipe or a device: there is nothing that could stay
        yield file
        return
    # A link to a file is replaced by the file, and not written through.
    # Of this process alone: another command may write the same file meanwhile, and who is done last counts.
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with put_away_when_terminated():
            yield part
        part.replace(file)
    finally:  # also after Ctrl-C: a part of it is of no use
        with suppress(OSError):
            part.unlink()
