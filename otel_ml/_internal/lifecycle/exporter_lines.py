"""The lines of the exporter `console`: the job's own service has no terminal, so global rank 0 prints them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from otel_ml._internal.console import Console
from otel_ml._internal.transport.link import Reached

__all__ = ["ExporterLines"]

_EVERY_S = 1.0
"""How often the service is asked, while the run goes on."""


class ExporterLines:
    """Prints what the service's `console` exporter wrote, on global rank 0; the last process prints what is left.

    Args:
        speaks: whether this process speaks of the whole run.
    """

    def __init__(self, console: Console, *, speaks: bool) -> None:
        self._console = console
        self._speaks = speaks
        self._taken = 0
        self._asked_at = 0.0

    def print_new(self, reached: Reached, run_id: str) -> None:
        """Print what is new, at most once a second."""
        now = time.monotonic()
        if self._speaks and now - self._asked_at >= _EVERY_S:
            self._asked_at = now
            self._print(reached, run_id)

    def print_rest(self, reached: Reached | None, run_id: str, *, is_last: bool) -> None:
        """Print what is left as this process ends, and have the service forget it: the last one asks, too."""
        if self._speaks or is_last:
            self._print(reached, run_id)
            self._print(reached, run_id)  # tells that the lines before were printed; others may record on for ever

    def _print(self, reached: Reached | None, run_id: str) -> None:
        if self._console.is_quiet or reached is None or not any(map(_is_console, reached.exporters)):
            return
        found = _asked(reached, run_id, self._taken)
        lines = [str(line) for line in found.get("lines", ())]
        if left_out := int(found.get("left_out") or 0):
            lines.insert(0, f"… {left_out:,} more lines")
        self._console.plain(lines)
        self._taken = int(found.get("next") or self._taken)


def _is_console(exporter: str) -> bool:
    return exporter.partition("/")[0] == "console"


def _asked(reached: Reached, run_id: str, taken: int) -> Mapping[str, Any]:
    path = f"/otel_ml/runs/{quote(run_id, safe='')}/console?after={taken}"
    content = reached.transport.get(path, timeout=1.0)
    try:
        found = json.loads(content) if content else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
