"""The few lines a person sees: on stderr, whole lines at once, under progress bars too (CONTRACT §3)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_ml.printable import printable
from otel_ml.redaction import redacted

__all__ = ["Console", "acknowledged_line", "finished_line", "started_line", "unwritten_line"]

_CLEAR_LINE = "\r\x1b[K"
"""In a terminal a progress bar stands on the current line; it is drawn again at its next update."""


_MOMENTS_S = 1.0
"""Seconds a run has to last for a share of its time to mean something."""


class Console:
    """Writes lines for the job (global rank 0) or for this host (local rank 0).

    Args:
        is_quiet: nothing is to be printed.
    """

    def __init__(self, *, is_quiet: bool) -> None:
        self.is_quiet = is_quiet

    def line(self, text: str) -> None:
        """Write one line in one write, so that lines of several processes do not mix."""
        if self.is_quiet:
            return
        stream = sys.stderr
        if stream is None:  # pythonw, daemons
            return
        # A closed or broken stderr must not end a training run.
        with contextlib.suppress(OSError, ValueError):
            start = _CLEAR_LINE if stream.isatty() else ""
            stream.write("".join(f"{start}otel_ml: {printable(part)}\n" for part in redacted(text).splitlines()))
            stream.flush()


def started_line(experiment: str, run_id: str, where: str, exporters: tuple[str, ...]) -> str:
    """Return the line at the start.

    Examples:
        >>> started_line("digits", "01JX", "./otel-ml-runs/digits/01JX", ("tensorboard", "jsonl"))
        'run digits/01JX → ./otel-ml-runs/digits/01JX  (tensorboard, jsonl)'
    """
    shown = f"  ({', '.join(exporters)})" if exporters else ""
    return f"run {experiment}/{run_id} → {where}{shown}"


def shown_path(path: Path) -> str:
    """Return a path as a person would type it from here."""
    try:
        return f"./{path.relative_to(Path.cwd()).as_posix()}"
    except (ValueError, OSError):
        return str(path)


def acknowledged_line(status: str, recorded: int, where: str, refused: Mapping[str, int]) -> str:
    """Return the line at the end of global rank 0, where nobody can tell how the whole run went.

    Args:
        status: how this process ended.
        recorded: values of this process.
        where: who acknowledged them.
        refused: reason → its points that will never be taken.

    Examples:
        >>> acknowledged_line("finished", 48210, "http://gateway:4318 (OTEL_EXPORTER_OTLP_ENDPOINT)", {})
        'finished. Rank 0 recorded 48,210 values, acknowledged by http://gateway:4318 (OTEL_EXPORTER_OTLP_ENDPOINT).'
        >>> acknowledged_line("finished", 20, "http://gateway:4318", {"HTTP 401": 20})
        'finished. Rank 0 recorded 20 values; http://gateway:4318 refused 20 points (HTTP 401): they are lost.'
    """
    count = sum(refused.values())
    if count:
        return (
            f"{status}. Rank 0 recorded {_values(recorded)}; {where} refused {count:,} points "
            f"({'; '.join(refused)}): they are lost."
        )
    return f"{status}. Rank 0 recorded {_values(recorded)}, acknowledged by {where}."


def unwritten_line(status: str, recorded: int, where: str) -> str:
    """Return the line at the end of global rank 0, where the service is too busy to say how the run went.

    Examples:
        >>> unwritten_line("failed", 48210, "./runs/exp/one")
        'failed. Rank 0 recorded 48,210 values, acknowledged, on their way to ./runs/exp/one. Look: otel-ml runs'
    """
    return f"{status}. Rank 0 recorded {_values(recorded)}, acknowledged, on their way to {where}. Look: otel-ml runs"


def _values(count: int) -> str:
    return f"{count:,} {'value' if count == 1 else 'values'}"


def finished_line(run: Mapping[str, Any], status: str) -> str:
    """Return the line at the end, from the service's account of the run.

    Args:
        run: what `GET /otel_ml/runs/<id>` says.
        status: how the last writer ended, for where the service has not decided yet how the run did.

    Examples:
        >>> run = {"writers": 5, "recorded": 48210, "delivered": 48210, "overhead_s": 0.04, "duration_s": 100.0}
        >>> finished_line(run, "finished").replace("values recorded, 48,210", "…")
        'finished. 5 processes, 48,210 … delivered, 0 lost. Recording took 0.04 % of the time. Look: otel-ml open'
        >>> finished_line(run | {"status": "failed", "duration_s": 2.0}, "finished")
        'failed. 5 processes, 48,210 values recorded, 48,210 delivered, 0 lost. Look: otel-ml open'
        >>> run |= {"last_seq": 9, "exporters": {"jsonl": {"delivered_seq": 9}, "mlflow": {"delivered_seq": 3}}}
        >>> finished_line(run, "finished").split(". ")[1]
        '5 processes, 48,210 values recorded, 0 lost, delivered to jsonl, still on their way to mlflow'
        >>> run["exporters"] = {"jsonl": {"delivered_seq": 9}, "parquet": {"state": "unavailable"}}
        >>> finished_line(run, "finished").split(", ", 2)[2].split(". ")[0]
        '48,210 delivered, 0 lost, not to parquet, which could not be used'
        >>> finished_line({"recorded": 9, "exporters": {}}, "finished").split(", ", 2)[2]
        '0 delivered, 0 lost, kept for `otel-ml replay`: there is no exporter. Look: otel-ml open'
    """
    lost = run.get("lost") or {}
    total = sum(int(count) for count in lost.values())
    why = f" ({', '.join(f'{reason}: {count:,}' for reason, count in lost.items())})" if total else ""
    writers, recorded = int(run.get("writers", 1)), int(run.get("recorded", 0))
    decided = str(run.get("status", "running"))
    how = _delivery(run, f"{total:,} lost{why}{_left_out(run)}")
    return (
        f"{status if decided == 'running' else decided}. {writers} {'process' if writers == 1 else 'processes'}, "
        f"{_values(recorded)} recorded, {how}. {_share(run, writers)}Look: otel-ml open"
    )


_UNAVAILABLE = "unavailable"
"""The state of an exporter that was asked for and cannot be used: without its package, or with a defect."""


def _left_out(run: Mapping[str, Any]) -> str:
    """Return which backends have nothing and will not get it by themselves."""
    exporters: Mapping[str, Mapping[str, Any]] | None = run.get("exporters")
    if exporters is not None and not exporters:
        return ", kept for `otel-ml replay`: there is no exporter"
    names = [name for name, exporter in (exporters or {}).items() if exporter.get("state") == _UNAVAILABLE]
    return f", not to {', '.join(names)}, which could not be used" if names else ""


def _share(run: Mapping[str, Any], writers: int) -> str:
    """Return what recording took; nothing of a run of moments, most of which are its beginning."""
    duration_s = float(run.get("duration_s", 0.0))  # of all writers together
    if duration_s < _MOMENTS_S * max(1, writers):
        return ""
    return f"Recording took {100 * float(run.get('overhead_s', 0.0)) / duration_s:.2f} % of the time. "


def _delivery(run: Mapping[str, Any], lost: str) -> str:
    last = int(run.get("last_seq", 0))
    exporters: Mapping[str, Mapping[str, Any]] = run.get("exporters") or {}
    used = {name: exporter for name, exporter in exporters.items() if exporter.get("state") != _UNAVAILABLE}
    behind = [name for name, exporter in used.items() if int(exporter.get("delivered_seq", 0)) < last]
    if not behind:
        return f"{int(run.get('delivered', 0)):,} delivered, {lost}"
    there = [name for name in used if name not in behind]
    arrived = f", delivered to {', '.join(there)}" if there else ""
    return f"{lost}{arrived}, still on their way to {', '.join(behind)}"
