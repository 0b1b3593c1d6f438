"""`otel-ml runs`."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from otel_ml.quantities import size
from otel_ml.wire.loss_reasons import lost_values
from otel_ml_service.cli.figures import age, thousands
from otel_ml_service.cli.parameters import dir_option
from otel_ml_service.cli.run_status import described
from otel_ml_service.cli.screen import screen
from otel_ml_service.findings.wording import plural
from otel_ml_service.stored_runs.run_folders import RunNotFoundError, no_run_in, run_folders, unreadable_folders
from otel_ml_service.stored_runs.status_word import NOT_FINISHED, UNTOLD

__all__ = ["command"]


@click.command("runs", epilog="Example: otel-ml runs --limit 5")
@dir_option
@click.option("--limit", "-n", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
def command(base: Path, limit: int, as_json: bool) -> None:
    """List the runs on this machine, the newest first.

    Exit code: 0, also where the folder has no run; 1 where there is no such folder.
    """
    output = screen()
    runs = run_folders(base)
    unreadable = unreadable_folders(base)
    if unreadable:
        output.note(f"Not shown, as this user may not look into them: {', '.join(map(str, unreadable))}")
    if not runs:
        if not base.exists():
            raise RunNotFoundError(no_run_in(base))
        output.note(no_run_in(base))
        return
    # Only those that are shown: each is read for it.
    rows = [described(run) for run in runs[:limit]]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    # Of all runs, also of those that are not listed: a beginning has to name one of them.
    ids = sorted({run.id for run in runs})
    output.table(
        ["name", "experiment", "status", "steps", "written", "size", "id"],
        [
            [
                str(row["name"]),
                str(row["experiment"]),
                _shown(row),
                thousands(int(row["steps"])),
                f"{age(time.time() - float(row['modified']))} ago",
                size(int(row["bytes"])),
                _beginning(str(row["id"]), ids) if output.is_terminal else str(row["id"]),
            ]
            for row in rows
        ],
        right=["steps", "size"],
        shortened=["name", "experiment", "status", "id"],
        optional=["size", "written"],
    )
    if any(row["lacking"] or row["status"] == NOT_FINISHED for row in rows):
        output.note("What is not finished, or not in all of its backends: otel-ml recover")
    if len(runs) > limit:
        output.note(f"… and {len(runs) - limit} older ones (--limit).")


def _shown(row: Mapping[str, Any]) -> str:
    """Return a run's status, which backends do not have all of it yet, which never will, and what was lost."""
    untold = "" if row["delivery_known"] else f", {UNTOLD}"
    going_on = f", on its way to {', '.join(row['delivering'])}" if row["delivering"] else ""
    behind = f", not all in {', '.join(row['lacking'])}" if row["lacking"] else ""
    refused = "".join(f", {plural(count, 'value')} not in {name}" for name, count in row["not_taken"].items())
    count = sum(lost_values(row["lost"]).values())
    lost = f", {thousands(count)} {'value' if count == 1 else 'values'} lost" if count else ""
    return f"{row['status']}{untold}{going_on}{behind}{refused}{lost}"


def _beginning(run_id: str, ids: Sequence[str]) -> str:
    """Return the first characters of an id, as many as tell it from the others; `ids` are all, in their order.

    Examples:
        >>> _beginning("01M8F26QZRQF", ["01M8F23108RN", "01M8F26QZRQF", "01M8F26QZSAA"])
        '01M8F26QZR'
        >>> _beginning("slurm-7", ["slurm-7"])
        'slurm-7'
    """
    at = bisect_left(ids, run_id)
    # In this order, the ids that share the longest beginning with one are its neighbors.
    neighbors = (*ids[max(at - 1, 0) : at], *ids[at + 1 : at + 2])
    shortest = _SHORTEST_ID
    while shortest < len(run_id) and any(other.startswith(run_id[:shortest]) for other in neighbors):
        shortest += 1
    return run_id[:shortest]


_SHORTEST_ID = 8
"""Characters: a few more than are needed now, so that it is still the beginning of one run tomorrow."""
