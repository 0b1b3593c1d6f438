"""Log lines of this process, colored."""

from __future__ import annotations

import logging

__all__ = ["configure_rich_logging"]


def configure_rich_logging(level: str = "INFO", show_time: bool = True, show_path: bool = True) -> None:
    """Write log lines with rich, where nobody has set up logging yet.

    Args:
        level: the lowest that is written.
        show_time: begin lines with the time.
        show_path: end lines with file and line number.
    """
    from rich.logging import RichHandler

    root = logging.getLogger()
    if root.handlers:
        return
    # No markup: a log line may hold any text, a model's answer too.
    handler = RichHandler(rich_tracebacks=True, show_time=show_time, show_path=show_path, log_time_format="[%X]")
    handler.setFormatter(logging.Formatter("%(message)s"))
    root.addHandler(handler)
    root.setLevel(level.upper())
