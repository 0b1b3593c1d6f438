"""Lines that the originals print: where nobody reads them anymore, training goes on without."""

from __future__ import annotations

from contextlib import suppress

__all__ = ["print_line"]


def print_line(text: str) -> None:
    """Print a line at once, as long as there is a stdout that takes it."""
    # A pipe whose reader has gone, a disk that is full, and, as a ValueError, a stream that the program has closed.
    with suppress(OSError, ValueError):
        # Flushed: where stdout is a file, the last lines of a job that is killed are what one looks for.
        print(text, flush=True)  # noqa: T201 (what it is for)
