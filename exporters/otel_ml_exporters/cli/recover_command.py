"""`otel-ml recover`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from otel_ml.config import Config, Endpoint
from otel_ml.exceptions import ConfigError, VersionError
from otel_ml.explanation import explained
from otel_ml.recovery import LOSSES
from otel_ml_exporters.cli.figures import plural, thousands
from otel_ml_exporters.cli.parameters import dir_option
from otel_ml_exporters.cli.screen import Screen, screen
from otel_ml_exporters.env import JOURNAL_DIR
from otel_ml_exporters.runs.recover import Recovered, recover, send
from otel_ml_exporters.runs.unfinished import Unfinished, in_no_run, spools_of, unfinished, unread_spools
from otel_ml_exporters.storage.database import StorageError

__all__ = ["command"]


@click.command("recover", epilog="Example: otel-ml recover --timeout 120")
@dir_option
@click.option("--dry-run", is_flag=True, help="Only say which runs are not finished.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds a run may take at most."
)
def command(base: Path, dry_run: bool, timeout: float) -> None:
    """Deliver what was recorded on this host and is in no backend yet: after a crash, a full disk, a power cut.

    A run that a job's own service wrote is finished in its folder, wherever that is, with the exporters it had. What
    else workers left is sent to OTEL_EXPORTER_OTLP_ENDPOINT where that is set, as they would have done; otherwise it
    goes into a run in the folder of all runs. A run of `otel-ml serve` is left to that. Runs that are being recorded
    are left alone. Running it again does no harm: nothing is written twice.
    """
    output = screen()
    config = Config.from_env()
    base = base.absolute()
    found = unfinished(base)
    waiting = in_no_run(base, JOURNAL_DIR.read().value)
    unread = unread_spools()
    for sentence in unread:
        output.line(sentence)
    if not found and not waiting and not unread:
        output.line("Nothing to recover: every run on this host is delivered.")
        return
    left = int(bool(waiting or unread) and not dry_run)
    if waiting:
        output.line(f"`otel-ml serve` acknowledged {plural(waiting, 'request')} that are in no run yet. {_again(base)}")
    for run in found:
        spools = f", {plural(run.spools, 'spool')} of workers" if run.spools else ""
        where = "" if run.base == base else f"; it belongs to {run.folder.path}"
        output.line(f"{run.experiment}/{run.id}: not finished{spools}{where}")
        if dry_run:
            continue
        if config.is_remote and run.spools and (run.is_of_serve or not run.has_folder):
            left += not _sent(run, config.endpoint, timeout, output)
        elif run.is_of_serve:
            output.line(f"  not done: `otel-ml serve` recorded it, and goes on with it. {_what_to_do(run)}")
            left += 1
        else:
            left += not _finished(run, timeout, output)
    if left:
        raise click.exceptions.Exit(1)


def _what_to_do(run: Unfinished) -> str:
    if run.spools:
        return "Set OTEL_EXPORTER_OTLP_ENDPOINT as it was for the job, and run this again while it is up."
    return _again(run.base)


def _again(base: Path) -> str:
    return f"Start it again as before: otel-ml serve --dir {base}, with its --to and --config"


def _sent(run: Unfinished, endpoint: Endpoint, timeout: float, output: Screen) -> bool:
    """Send the spools of a run whose service is elsewhere; say how it went."""
    said: set[str] = set()

    def say(slug: str, sentence: str) -> None:
        said.add(slug)
        output.line(explained(sentence, slug))

    is_done = send(run, endpoint, timeout, say)
    where = f"{endpoint.shown} ({endpoint.source})"
    sent = run.spools - spools_of(run.id)
    if is_done and sent:
        output.line(f"  {plural(sent, 'spool')} sent to {where}")
    elif is_done:
        output.line("  its processes are alive, and send it themselves")
    else:
        output.line(f"  not done within {timeout:.0f} s: {where} does not take it; run it again once it does")
    return is_done and said.isdisjoint(LOSSES)


def _finished(run: Unfinished, timeout: float, output: Screen) -> bool:
    """Finish a run on this host; say how it went. One that cannot be served must not keep the others from it."""
    try:
        done = _recovered(run, timeout, output)
    except (ConfigError, StorageError, VersionError, OSError) as error:
        output.line(f"  not done: {error}")
        return False
    if done.is_done:
        output.line(f"  {_account(done)}")
    else:
        output.line(f"  not done within {timeout:.0f} s; see {run.folder.path}, and run it again")
    for notice in done.said:
        output.line(f"  {notice}")
    return done.is_done


def _recovered(run: Unfinished, timeout: float, output: Screen) -> Recovered:
    with Progress(
        TextColumn("{task.description}"), TimeElapsedColumn(),
        console=output.err, transient=True, disable=not output.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task(f"{run.id}: starting", total=None)

        def show(account: Mapping[str, Any]) -> None:
            delivered, pending = account.get("delivered", 0), account.get("pending", 0)
            bar.update(task, description=f"{run.id}: {thousands(delivered)} values delivered, {pending} records left")

        return recover(run, timeout, show)


def _account(done: Recovered) -> str:
    """Return what was done in one line."""
    if not done.exporters:
        return "nothing was left of it"
    sources = f"{plural(done.spools, 'spool')} and the journal" if done.spools else "the journal"
    lost = sum(done.lost.values())
    missing = f", {thousands(lost)} lost: {', '.join(done.lost)}" if lost else ", 0 lost"
    return f"{plural(done.values, 'value')} of {sources} delivered to {', '.join(done.exporters)}{missing}"
