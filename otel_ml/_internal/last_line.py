"""The last line that a job prints: how the run went, how much of it was recorded, delivered and lost."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from otel_ml.quantities import percent
from otel_ml.wire.loss_reasons import lost_values, not_recorded, other_losses

__all__ = ["CLOSED", "acknowledged_line", "finished_line", "unwritten_line", "waiting_line"]

_MOMENTS_S = 1.0
"""Seconds a run has to last for a share of its time to mean something."""


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
        # Each reason once, though both points and events were refused for it.
        reasons = "; ".join(dict.fromkeys([*refused, *records]))
        return f"{status}. Rank 0 recorded {_values(recorded)}; {where} refused {what} ({reasons}): lost."
    return f"{status}. Rank 0 recorded {_values(recorded)}, acknowledged by {where}."


def unwritten_line(status: str, recorded: int, where: str, *, is_remote: bool = False) -> str:
    """Return the line at the end of global rank 0, where the service is too busy to say how the run went.

    Args:
        status: how this process ended.
        recorded: values of this process.
        where: the run's folder, or who acknowledged them.
        is_remote: whether the service is one elsewhere, and the run in its folder.

    Examples:
        >>> unwritten_line("failed", 48210, "./runs/exp/one")
        'failed. Rank 0 recorded 48,210 values, acknowledged, on their way to ./runs/exp/one. Look: otel-ml runs'
        >>> unwritten_line("finished", 1, "./runs/exp/one")
        'ended. Rank 0 recorded 1 value, acknowledged, on their way to ./runs/exp/one. Look: otel-ml runs'
        >>> unwritten_line("finished", 1, "http://gateway:4318", is_remote=True)[-55:]
        'gateway:4318. Look where the service runs: otel-ml runs'
    """
    recorded_there = f"Rank 0 recorded {_values(recorded)}, acknowledged, on their way to {where}"
    return f"{_pending(status)}. {recorded_there}. {_look({}, 'otel-ml runs', is_remote)}"


def _pending(status: str) -> str:
    """Return how a run stands of which something is pending: what is not delivered is not finished."""
    return "ended" if status == "finished" else status


CLOSED = frozenset({"stopped", "failed", "unavailable"})
"""States of exporters that nothing more is to be waited for."""


def waiting_line(run: Mapping[str, Any], *, outlived: bool = False) -> str:
    """Return what the last process of a job says where it waits for delivery.

    Args:
        run: the service's account of it.
        outlived: whether the service goes on after the job: then somebody has said how long to wait.

    Examples:
        >>> exporters = {"jsonl": {"delivered_seq": 9}, "mlflow": {"delivered_seq": 3, "state": "running"}}
        >>> waiting_line({"last_seq": 9, "exporters": exporters})
        'waiting for delivery to mlflow (3 of 9 records): the service ends with this job.'
        >>> waiting_line({"last_seq": 9, "exporters": {"wandb": {"delivered_seq": 9, "state": "running"}}})
        'waiting for wandb to close: the service ends with this job.'
        >>> waiting_line({"files": 2}).split(":")[0]
        'waiting for 2 files of artifacts to be read'
        >>> waiting_line({"pending": 1}, outlived=True)
        'waiting for the last steps, as long as OTEL_ML_EXIT_WAIT or shutdown(timeout=…) says.'
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
    if outlived:
        return f"waiting for {what}, as long as OTEL_ML_EXIT_WAIT or shutdown(timeout=…) says."
    return f"waiting for {what}: the service ends with this job."


def _values(count: int) -> str:
    return f"{count:,} {'value' if count == 1 else 'values'}"


def finished_line(run: Mapping[str, Any], status: str, *, outlived: bool = True, is_remote: bool = False) -> str:
    """Return the line at the end, from the service's account of the run.

    Args:
        run: what `GET /otel_ml/runs/<id>` says.
        status: how the last writer ended, for where the service has not decided yet how the run did.
        outlived: whether the service goes on when this process has left.
        is_remote: whether it is one elsewhere, and the run in its folder.

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
        >>> finished_line({"recorded": 9, "dir": "/srv/runs/a/b"}, "finished", is_remote=True).split(". ")[-1]
        'Look where the service runs: otel-ml open --dir /srv/runs'
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
        listed = _look(run, "otel-ml runs", is_remote)
        return f"{_pending(how)}. {begin}, {account}, {_behind(run)}{_besides(lost)}. {rest}. {listed}"
    arrived = f"{int(run.get('delivered', 0)):,} delivered"
    look = _look(run, _viewer(run), is_remote)
    return f"{how}. {begin}, {arrived}, {account}{_besides(lost)}. {_share(run, writers)}{look}"


def _of_ranks(run: Mapping[str, Any]) -> str:
    """Return how many ranks were heard, where that is not all: the others recorded nothing, or it did not arrive."""
    heard, expected = int(run.get("ranks", 0)), int(run.get("ranks_expected", 0))
    return f" ({heard:,} of {expected:,} ranks)" if heard < expected else ""


def _look(run: Mapping[str, Any], command: str, is_remote: bool) -> str:
    """Return where the run is to be seen: on the host of its service, with the folder that it has there."""
    if not is_remote:
        return f"Look: {command}"
    folder = PurePosixPath(str(run.get("dir") or ""))
    # `<dir>/<experiment>/<id>` (docs/protocol.md §6.9): the command is given the folder of all runs.
    there = f" --dir {shlex.quote(str(folder.parent.parent))}" if folder.is_absolute() else ""
    return f"Look where the service runs: {command}{there}"


def _viewer(run: Mapping[str, Any]) -> str:
    """Return the command that shows the run: a viewer's, where the run was written for one."""
    exporters: Iterable[str] = run.get("exporters", _VIEWERS)
    # `tensorboard/<name>` is one of several exporters of a kind.
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
    return f"Recording took {percent(float(run.get('overhead_s', 0.0)) / duration_s)} of the time. "


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
