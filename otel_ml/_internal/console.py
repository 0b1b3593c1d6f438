"""The few lines a person sees: on stderr, whole lines at once, under progress bars too (docs/protocol.md §3.8)."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from otel_ml.printable import printable
from otel_ml.redaction import redacted
from otel_ml.wire.loss_reasons import lost_values, not_recorded, other_losses

__all__ = [
    "CLOSED", "Console", "acknowledged_line", "finished_line", "is_watched", "page_line", "shown_path", "started_line",
    "unwritten_line", "waiting_line",
]  # fmt: skip

_CLEAR_LINE = "\r\x1b[K"
"""In a terminal a progress bar stands on the current line; it is drawn again at its next update."""


_MOMENTS_S = 1.0
"""Seconds a run has to last for a share of its time to mean something."""


_AT_ONCE = select.PIPE_BUF
"""Bytes that a descriptor takes without waiting, where it says that it takes any."""

_PATIENCE_S = 0.1
"""Seconds for which whoever prints waits for somebody to read: a pipe that is read has room again in less."""

_KEPT = 100
"""Lines that wait for somebody to read."""


class Console:
    """Writes lines for the job (global rank 0) or for this host (local rank 0).

    A stderr that nobody reads (a pager, a stopped terminal) holds nobody up: what it has no room for waits here.

    Args:
        is_quiet: nothing is to be printed.
    """

    def __init__(self, *, is_quiet: bool) -> None:
        self.is_quiet = is_quiet
        self._unread: deque[str] = deque(maxlen=_KEPT)

    def line(self, text: str) -> None:
        """Write one line in one write, so that lines of several processes do not mix."""
        self._write(f"otel_ml: {printable(part)}" for part in redacted(text).splitlines())

    def plain(self, lines: Sequence[str]) -> None:
        """Write lines that are not ours, those of the exporter `console`; a terminal's width cuts them."""
        if lines:
            self._write(_cut(printable(redacted(line))) for line in lines)

    def catch_up(self, patience_s: float = 0.0) -> None:
        """Write what there was no room for, if somebody reads by now."""
        while self._unread and self._say(self._unread[0], patience_s):
            self._unread.popleft()

    def _write(self, lines: Iterable[str]) -> None:
        if self.is_quiet:
            return
        start = _CLEAR_LINE if is_watched() else ""
        self._unread.extend(_pieces(f"{start}{line}\n" for line in lines))
        self.catch_up(_PATIENCE_S)

    def _say(self, text: str, patience_s: float) -> bool:
        """Write to whatever is stderr by now; return whether there was room, or never will be any."""
        stream = sys.stderr
        if stream is None:  # pythonw, daemons
            return True
        # A closed or broken stderr must not end a training run, nor one that a signal's handler finds in use, nor what
        # a program has put in its place.
        with contextlib.suppress(Exception):
            descriptor = _descriptor(stream)
            if descriptor is not None:
                if _is_gone(descriptor):
                    return True
                if not _has_room(descriptor, patience_s):
                    return False
            stream.write(text)
            stream.flush()
        return True


def _pieces(lines: Iterable[str]) -> Iterator[str]:
    """Return lines in as few texts as a descriptor takes at once, so that those of several processes do not mix."""
    piece, size = "", 0
    for line in lines:
        more = len(line.encode(errors="replace"))
        if piece and size + more > _AT_ONCE:
            yield piece
            piece, size = "", 0
        piece, size = piece + line, size + more
    if piece:
        yield piece


def _has_room(descriptor: int, patience_s: float) -> bool:
    """Whether a descriptor takes a line without waiting, or is of a kind that is not asked."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    return bool(room.poll(1000 * patience_s))


def _cut(line: str) -> str:
    """Return a line as long as the terminal is wide; all of it where there is none."""
    descriptor = None if sys.stderr is None else _descriptor(sys.stderr)
    try:
        width = 0 if descriptor is None else os.get_terminal_size(descriptor).columns
    except OSError:
        return line
    return line if not width or len(line) <= width else f"{line[: width - 1]}…"


def _descriptor(stream: TextIO) -> int | None:
    """Return the number of the file behind a stream; None where there is none: of a notebook, a test, a program."""
    try:
        number = stream.fileno()
    except Exception:  # noqa: BLE001 (a program's own)
        return None
    return number if type(number) is int else None


def _is_gone(descriptor: int) -> bool:
    """Whether the descriptor of a stream was closed: what it is given then stays in it, and Python exits with 120."""
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def started_line(experiment: str, name: str, where: str, exporters: tuple[str, ...]) -> str:
    """Return the line at the start.

    Examples:
        >>> started_line("digits", "calm-dune-421", "./otel-ml-runs/digits/01JX", ("tensorboard", "jsonl"))
        'run digits/calm-dune-421 → ./otel-ml-runs/digits/01JX  (tensorboard, jsonl)'
    """
    shown = f"  ({', '.join(exporters)})" if exporters else ""
    return f"run {experiment}/{name} → {where}{shown}"


def page_line(address: str) -> str:
    """Return the line that says where to look while the run goes on."""
    return f"look at it while it trains: {address}"


def is_watched() -> bool:
    """Whether stderr is a terminal: a person is there."""
    try:
        return sys.stderr is not None and sys.stderr.isatty() is True
    except Exception:  # noqa: BLE001 (a program's own, or a closed one)
        return False


def shown_path(path: Path) -> str:
    """Return a path as a person would type it from here."""
    try:
        return f"./{path.relative_to(Path.cwd()).as_posix()}"
    except (ValueError, OSError):
        return str(path)


def acknowledged_line(
    status: str, recorded: int, where: str, refused: Mapping[str, int], records: Mapping[str, int]
) -> str:
    """Return the line at the end of global rank 0, where nobody can tell how the whole run went.

    Args:
        status: how this process ended.
        recorded: values of this process.
        where: who acknowledged them.
        refused: reason → its points that will never be taken.
        records: the same of its events and spans.

    Examples:
        >>> acknowledged_line("finished", 48210, "http://gateway:4318 (OTEL_EXPORTER_OTLP_ENDPOINT)", {}, {})
        'finished. Rank 0 recorded 48,210 values, acknowledged by http://gateway:4318 (OTEL_EXPORTER_OTLP_ENDPOINT).'
        >>> acknowledged_line("finished", 20, "http://gateway", {"HTTP 400": 20}, {"HTTP 400": 2})
        'finished. Rank 0 recorded 20 values; http://gateway refused 20 points, 2 events or spans (HTTP 400): lost.'
    """
    counts = {"points": sum(refused.values()), "events or spans": sum(records.values())}
    what = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    if what:
        reasons = "; ".join(dict.fromkeys([*refused, *records]))
        return f"{status}. Rank 0 recorded {_values(recorded)}; {where} refused {what} ({reasons}): lost."
    return f"{status}. Rank 0 recorded {_values(recorded)}, acknowledged by {where}."


def unwritten_line(status: str, recorded: int, where: str) -> str:
    """Return the line at the end of global rank 0, where the service is too busy to say how the run went.

    Examples:
        >>> unwritten_line("failed", 48210, "./runs/exp/one")
        'failed. Rank 0 recorded 48,210 values, acknowledged, on their way to ./runs/exp/one. Look: otel-ml runs'
        >>> unwritten_line("finished", 1, "./runs/exp/one")
        'ended. Rank 0 recorded 1 value, acknowledged, on their way to ./runs/exp/one. Look: otel-ml runs'
    """
    recorded_there = f"Rank 0 recorded {_values(recorded)}, acknowledged, on their way to {where}"
    return f"{_pending(status)}. {recorded_there}. Look: otel-ml runs"


def _pending(status: str) -> str:
    """Return how a run stands of which something is pending: what is not delivered is not finished."""
    return "ended" if status == "finished" else status


CLOSED = frozenset({"stopped", "failed", "unavailable"})
"""States of exporters that nothing more is to be waited for."""


def waiting_line(run: Mapping[str, Any]) -> str:
    """Return what the last process of a job says where it waits for delivery.

    Examples:
        >>> exporters = {"jsonl": {"delivered_seq": 9}, "mlflow": {"delivered_seq": 3, "state": "running"}}
        >>> waiting_line({"last_seq": 9, "exporters": exporters})
        'waiting for delivery to mlflow (3 of 9 records): the service ends with this job.'
        >>> waiting_line({"last_seq": 9, "exporters": {"wandb": {"delivered_seq": 9, "state": "running"}}})
        'waiting for wandb to close: the service ends with this job.'
        >>> waiting_line({"files": 2}).split(":")[0]
        'waiting for 2 files of artifacts to be read'
    """
    last = int(run.get("last_seq", 0))
    exporters: Mapping[str, Mapping[str, Any]] = run.get("exporters") or {}
    there = {name: int(exporter.get("delivered_seq", 0)) for name, exporter in exporters.items()}
    behind = [f"{name} ({done:,} of {last:,} records)" for name, done in there.items() if done < last]
    open_ones = [name for name, exporter in exporters.items() if exporter.get("state") not in CLOSED]
    files = int(run.get("files", 0))
    if behind:
        what = f"delivery to {', '.join(behind)}"
    elif files:
        what = f"{files} {'file' if files == 1 else 'files'} of artifacts to be read"
    elif int(run.get("pending", 0)) or not open_ones:
        what = "the last steps"
    else:
        what = f"{', '.join(open_ones)} to close"
    return f"waiting for {what}: the service ends with this job."


def _values(count: int) -> str:
    return f"{count:,} {'value' if count == 1 else 'values'}"


def finished_line(run: Mapping[str, Any], status: str, *, outlived: bool = True) -> str:
    """Return the line at the end, from the service's account of the run.

    Args:
        run: what `GET /otel_ml/runs/<id>` says.
        status: how the last writer ended, for where the service has not decided yet how the run did.
        outlived: whether the service goes on when this process has left.

    Examples:
        >>> run = {"writers": 5, "recorded": 48210, "delivered": 48210, "overhead_s": 0.04, "duration_s": 100.0}
        >>> finished_line(run, "finished").replace("values recorded, 48,210", "…")
        'finished. 5 processes, 48,210 … delivered, 0 lost. Recording took 0.04 % of the time. Look: otel-ml open'
        >>> finished_line(run | {"status": "failed", "duration_s": 2.0}, "finished")
        'failed. 5 processes, 48,210 values recorded, 48,210 delivered, 0 lost. Look: otel-ml open'
        >>> losses = {"lost": {"spool_full": 3, "bad_value": 2}, "delivered": 48207}
        >>> finished_line(run | losses, "finished").split("recorded, ", 1)[1].split(". ")[0]
        '48,207 delivered, 3 lost (spool_full: 3); not recorded: bad_value: 2'
        >>> finished_line(run | {"superseded": 210, "delivered": 48000}, "finished").split("recorded, ", 1)[1][:62]
        '48,000 delivered, 210 of steps that were done again, 0 lost. R'
        >>> exporters = {"jsonl": {"delivered_seq": 9}, "mlflow": {"delivered_seq": 3}}
        >>> more = {"last_seq": 9, "pending": 6, "exporters": exporters, "duration_s": 0.0}
        >>> finished_line(run | more, "finished")
        'ended. 5 processes, 48,210 values recorded, 0 lost, 3 of 9 records delivered to mlflow. The service delivers \
the rest. Look: otel-ml runs'
        >>> finished_line(run | more, "finished", outlived=False)[-74:]
        'delivered to mlflow. otel-ml recover delivers the rest. Look: otel-ml runs'
        >>> finished_line({"recorded": 840, "pending": 378, "unreceived": 378}, "finished").split(", ", 1)[1]
        '840 values recorded, 0 lost, 378 not arrived yet. The service delivers what it has, and what still arrives. \
Look: otel-ml runs'
        >>> finished_line(run | {"writers": 1, "ranks": 1, "ranks_expected": 2}, "finished").split(" values")[0]
        'finished. 1 process (1 of 2 ranks), 48,210'
        >>> run |= {"exporters": {"jsonl": {"delivered_seq": 9}, "parquet": {"state": "unavailable"}}}
        >>> finished_line(run, "finished").split(", ", 2)[2].split(". ")[0]
        '48,210 delivered, 0 lost, not to parquet, which could not be used'
        >>> finished_line({"recorded": 9, "exporters": {}}, "finished").split(", ", 2)[2]
        '0 delivered, 0 lost, kept for `otel-ml replay`: there is no exporter. Look: otel-ml ui'
        >>> finished_line({"recorded": 9, "exporters": {"jsonl": {}}}, "finished")[-17:]
        ' Look: otel-ml ui'
    """
    lost: Mapping[str, int] = run.get("lost") or {}
    values = lost_values(lost)
    total = sum(values.values())
    why = f" ({_by_reason(values)})" if total else ""
    writers, recorded = int(run.get("writers", 1)), int(run.get("recorded", 0))
    decided = str(run.get("status", "running"))
    how = status if decided == "running" else decided
    begin = f"{writers} {'process' if writers == 1 else 'processes'}{_of_ranks(run)}, {_values(recorded)} recorded"
    superseded = int(run.get("superseded", 0))
    again = f"{superseded:,} of steps that were done again, " if superseded else ""
    account = f"{again}{total:,} lost{why}{_left_out(run)}"
    if int(run.get("pending", 0)):
        rest = "The service delivers the rest" if outlived else "otel-ml recover delivers the rest"
        if outlived and run.get("unreceived"):  # nobody knows whether the rest will ever be there
            rest = "The service delivers what it has, and what still arrives"
        return f"{_pending(how)}. {begin}, {account}, {_behind(run)}{_besides(lost)}. {rest}. Look: otel-ml runs"
    arrived = f"{int(run.get('delivered', 0)):,} delivered"
    return f"{how}. {begin}, {arrived}, {account}{_besides(lost)}. {_share(run, writers)}Look: {_where(run)}"


def _of_ranks(run: Mapping[str, Any]) -> str:
    """Return how many ranks were heard, where that is not all: the others recorded nothing, or it did not arrive."""
    heard, expected = int(run.get("ranks", 0)), int(run.get("ranks_expected", 0))
    return f" ({heard:,} of {expected:,} ranks)" if heard < expected else ""


def _where(run: Mapping[str, Any]) -> str:
    """Return the command that shows the run: a viewer's, where the run was written for one."""
    exporters: Iterable[str] = run.get("exporters", _VIEWERS)
    return "otel-ml open" if _VIEWERS & {name.partition("/")[0] for name in exporters} else "otel-ml ui"


_VIEWERS = frozenset({"tensorboard", "mlflow"})


def _by_reason(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {count:,}" for reason, count in counts.items())


def _besides(lost: Mapping[str, int]) -> str:
    """Return what is not part of the values that were recorded: what was refused, events, spans."""
    refused, others = not_recorded(lost), other_losses(lost)
    parts = [f"not recorded: {_by_reason(refused)}"] if refused else []
    parts += [f"events and spans lost: {_by_reason(others)}"] if others else []
    return "".join(f"; {part}" for part in parts)


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


def _behind(run: Mapping[str, Any]) -> str:
    """Return what of a run is not delivered yet, and how much of it is."""
    last = int(run.get("last_seq", 0))
    exporters: Mapping[str, Mapping[str, Any]] = run.get("exporters") or {}
    used = {name: exporter for name, exporter in exporters.items() if exporter.get("state") != _UNAVAILABLE}
    there = {name: int(exporter.get("delivered_seq", 0)) for name, exporter in used.items()}
    behind = [f"{done:,} of {last:,} records delivered to {name}" for name, done in there.items() if done < last]
    if unreceived := int(run.get("unreceived", 0)):
        behind.append(f"{unreceived:,} not arrived yet")
    if files := int(run.get("files", 0)):
        behind.append(f"{files} {'file' if files == 1 else 'files'} of artifacts not read yet")
    return ", ".join(behind) or "the last steps not closed yet"
