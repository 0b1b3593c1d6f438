"""`otel-ml recover`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from otel_ml.config import Config, Endpoint
from otel_ml.exceptions import ConfigError, VersionError
from otel_ml.explanation import explained
from otel_ml.quantities import seconds
from otel_ml.recovery import LOSSES
from otel_ml.wire.rendezvous import run_folder
from otel_ml_service.cli.figures import thousands
from otel_ml_service.cli.parameters import RUN, dir_option, refuse_misspelled
from otel_ml_service.cli.recover_outcome import LEFT, LOST, Outcome, Waits
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.env import JOURNAL_DIR
from otel_ml_service.findings.wording import plural
from otel_ml_service.storage.database import StorageError
from otel_ml_service.stored_runs.read_records import RunUnreadableError, is_live
from otel_ml_service.stored_runs.recover import Recovered, RunTakenError, recover, send
from otel_ml_service.stored_runs.run_folders import RunFolder, find, is_there
from otel_ml_service.stored_runs.unfinished import Unfinished, in_no_run, marked_id, unfinished, unreadable_spools

__all__ = ["command"]


_FOLDERS = 3
"""Folders that are named of runs that are not meant."""

_Tell = Callable[[Mapping[str, object]], None]
"""Hands a program something; does nothing for a person, who reads sentences."""


@click.command("recover", epilog="Example: otel-ml recover --timeout 120")
@click.argument("runs", type=RUN, nargs=-1, metavar="[RUN]...")
@dir_option
@click.option("--all", "everywhere", is_flag=True, help="Also runs of other folders, on this host and of this user.")
@click.option("--dry-run", is_flag=True, help="Only say which runs are not finished.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=300.0, show_default=True, help="Seconds a run may take at most."
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a run, for programs; sentences go to standard error."
)
def command(runs: tuple[str, ...], base: Path, everywhere: bool, dry_run: bool, timeout: float, as_json: bool) -> None:
    """Deliver what was recorded on this host and is in no backend yet: after a crash, a full disk, a power cut.

    RUN is an id, experiment/id, or a folder; without one, all unfinished runs of --dir are meant. A run that a job's
    own service wrote is finished in its folder, with the exporters it had. What else processes left is sent to
    OTEL_EXPORTER_OTLP_ENDPOINT where that is set, as they would have done. What was on its way to another endpoint is
    left alone, unless you name the RUN: then it goes where that is set to, or, where it is not set, into a run in
    --dir. A run of `otel-ml serve` is left to that. Runs that are being recorded are left alone. Running it again does
    no harm: nothing is written twice.

    Exit code: 0 everything is delivered; 1 something is left, run it again; 2 wrong usage; 3 nothing is left, and some
    of it is lost, with its reason.
    """
    output = screen(beside_json=as_json)
    tell = _print_json if as_json else _print_nothing
    # A service that finishes a run changes the folder of this process meanwhile (`serve_again.py`).
    base = base.absolute()
    found = unfinished(base)
    waiting = 0 if runs else in_no_run(base, JOURNAL_DIR.read().value)
    chosen = _meant(runs, found, base) if runs else [run for run in found if everywhere or run.belongs_to(base)]
    # Whoever names a run means it, wherever the rest of it was on its way to (ADR 0082).
    elsewhere = [] if runs else _of_an_endpoint(chosen)
    chosen = [run for run in chosen if run not in elsewhere]
    unreadable = unreadable_spools()
    for sentence in unreadable:
        output.line(sentence)
        tell({"unread_spool": sentence})
    _list([run for run in found if run not in elsewhere], chosen, base, output)
    for run in elsewhere:
        output.line(_left_for_its_endpoint(run, base))
    _tell_left_alone([run for run in found if run not in chosen], tell)
    if not chosen and not waiting and not unreadable and not elsewhere:
        if not runs:
            refuse_misspelled(base)
        output.line(_nothing(runs, base))
        return
    if waiting:
        output.line(f"`otel-ml serve` acknowledged {plural(waiting, 'request')} that are in no run yet. {_again(base)}")
        tell({"requests_in_no_run": waiting, "dir": str(base)})
    if dry_run:
        _tell_unfinished(chosen, tell)
        return
    # All of them, though one is not done: each has its own time.
    codes = [_deliver(run, timeout, output, tell) for run in chosen]
    # Runs whose processes still live are not counted: these send what is left themselves.
    if waiting or unreadable or any(run.sent_to for run in elsewhere) or LEFT in codes:
        raise click.exceptions.Exit(LEFT)
    if LOST in codes:
        raise click.exceptions.Exit(LOST)


def _print_json(row: Mapping[str, object]) -> None:
    click.echo(json.dumps(row))


def _print_nothing(row: Mapping[str, object]) -> None:
    """Leave it to the sentences."""


def _tell_left_alone(runs: Sequence[Unfinished], tell: _Tell) -> None:
    for run in runs:
        tell(Outcome(run, "left_alone").as_json(str(_job_dir(run))))


def _tell_unfinished(runs: Sequence[Unfinished], tell: _Tell) -> None:
    config = Config.from_env()
    for run in runs:
        endpoint = config.endpoint if _is_to_be_sent(run, config) else None
        tell(Outcome(run, "unfinished", endpoint).as_json(str(_job_dir(run))))


def _deliver(run: Unfinished, timeout: float, output: Screen, tell: _Tell) -> int:
    outcome = _outcome(run, timeout, output)
    tell(outcome.as_json(str(_job_dir(run))))
    return outcome.code


def _meant(runs: tuple[str, ...], found: Sequence[Unfinished], base: Path) -> list[Unfinished]:
    """Return the unfinished runs that are named, wherever they are.

    Raises:
        RunNotFoundError: a text names no run at all.
        RunUnreadableError: nobody lets this user see whether a run is finished.
    """
    meant: list[Unfinished] = []
    for text in runs:
        # First among those that are not finished: a run without a folder, of which only spools are left, is found in no
        # other way.
        matching = [run for run in found if run.is_meant_by(text)]
        if not matching:
            named = find(text, base)
            _require_open_state(named)
            folder = named.path.resolve()
            matching = [run for run in found if run.folder.path.resolve() == folder]
        meant += [run for run in matching if run not in meant]
    return meant


def _require_open_state(run: RunFolder) -> None:
    state = run.database.parent
    if is_there(state) and not os.access(state, os.R_OK | os.X_OK):
        raise RunUnreadableError(
            f"Whether run {run.id!r} is delivered cannot be told: {str(state)!r} is closed to this user. "
            "Ask as the user who recorded it."
        )


def _of_an_endpoint(runs: Sequence[Unfinished]) -> list[Unfinished]:
    """Return the runs of which a receiver has the rest, or gets it just now, that is not the one of this shell."""
    config = Config.from_env()
    if config.is_remote:
        here = config.endpoint.shown
        # One process that sent to where this shell sends is enough: the run is sent there.
        return [run for run in runs if run.sent_to and here not in run.sent_to.values()]
    return [run for run in runs if (run.sent_to or run.is_sending) and not run.is_of_serve]


def _left_for_its_endpoint(run: Unfinished, base: Path) -> str:
    if not run.sent_to:
        return f"{_described(run, base)}. Left alone: its processes are alive, and send it themselves"
    senders = "1 process" if len(run.sent_to) == 1 else f"{len(run.sent_to):,} processes"
    where = ", ".join(sorted(set(run.sent_to.values())))
    config = Config.from_env()
    instead = f"have it sent to {_where(config.endpoint)}" if config.is_remote else f"have it in {run.folder.path}"
    return (
        f"{_described(run, base)}. Left alone: {senders} of it sent to {where}. Run this again with "
        f"{run.variable} set as it was, or start the job again; or {instead} instead: otel-ml recover {run.id}"
    )


def _list(found: Sequence[Unfinished], chosen: Sequence[Unfinished], base: Path, output: Screen) -> None:
    """Say what would be touched, and what is not, before anything is."""
    for run in chosen:
        output.line(f"{_described(run, base)}{_destination(run)}")
    if others := [run for run in found if run not in chosen]:
        output.line(_not_meant(others))


def _not_meant(runs: Sequence[Unfinished]) -> str:
    """Return one line for all of them: on a host that many jobs use they are many, and nobody has asked for them."""
    folders = sorted({str(run.origin or run.base) for run in runs})
    named = ", ".join(folders[:_FOLDERS]) + (", …" if len(folders) > _FOLDERS else "")
    is_one = len(runs) == 1
    return (
        f"{plural(len(runs), 'unfinished run')} of {named} {'is' if is_one else 'are'} left alone: "
        f"otel-ml recover {runs[0].id if is_one else '--all --dry-run lists them'}"
    )


def _described(run: Unfinished, base: Path) -> str:
    spools = f", {plural(run.spools, 'spool')} of workers" if run.spools else ""
    if run.belongs_to(base):
        return f"{run.experiment}/{run.id}: not finished{spools}"
    return f"{run.experiment}/{run.id}: not finished{spools}; it belongs to {_job_dir(run)}"


def _job_dir(run: Unfinished) -> Path:
    """Return the folder to which its job wrote."""
    return run_folder(run.origin or run.base, run.experiment, run.id)


def _destination(run: Unfinished) -> str:
    """Return where spools go that were, or may have been, on their way to another place."""
    config = Config.from_env()
    is_sent = _is_to_be_sent(run, config)
    # Where its processes sent to, but for the place to which it goes now.
    others = sorted(set(run.sent_to.values()) - ({config.endpoint.shown} if is_sent else set()))
    if others and is_sent:
        return f". Its processes sent to {', '.join(others)}; what they left goes to {_where(config.endpoint)} instead"
    if others:
        return f". Its processes sent to {', '.join(others)}; what they left goes into {run.folder.path} instead"
    if run.has_folder or not run.spools or config.is_remote:
        return ""
    return f". {run.variable} is not set, so it goes into {run.folder.path}"


def _is_to_be_sent(run: Unfinished, config: Config) -> bool:
    """Whether what is left of a run goes to the endpoint of this shell."""
    return config.is_remote and bool(run.spools) and (run.is_of_serve or not run.has_folder)


def _where(endpoint: Endpoint) -> str:
    return f"{endpoint.shown} ({endpoint.source})"


def _nothing(runs: tuple[str, ...], base: Path) -> str:
    """Return the line where no run is left to deliver."""
    at_work = [text for text in runs if _has_service(find(text, base))]
    if at_work:
        return f"Nothing to recover now: the service of {', '.join(at_work)} is at work, and goes on delivering."
    if runs:
        return f"Nothing to recover: {', '.join(runs)} is delivered."
    return f"Nothing to recover: every run of {base} is delivered, or is being recorded."


def _has_service(run: RunFolder) -> bool:
    """Whether a service goes on with a run that was not found to be left: it need not have its file open now."""
    return is_live(run) or marked_id(run) is not None


def _outcome(run: Unfinished, timeout: float, output: Screen) -> Outcome:
    """Deliver a run as far as it can be."""
    config = Config.from_env()
    if _is_to_be_sent(run, config):
        return _sent(run, config.endpoint, timeout, output)
    if run.is_of_serve:
        problem = f"`otel-ml serve` recorded it, and goes on with it. {_what_to_do(run)}"
        output.line(f"{run.id}: not done, {problem}")
        return Outcome(run, "left", problems=(problem,))
    return _finished(run, timeout, output)


def _what_to_do(run: Unfinished) -> str:
    if run.spools:
        return f"Set {run.variable} as it was for the job, and run this again while it is up."
    return _again(run.base)


def _again(base: Path) -> str:
    return f"Start it again as before: otel-ml serve --dir {base}, with its --to and --config"


def _sent(run: Unfinished, endpoint: Endpoint, timeout: float, output: Screen) -> Outcome:
    """Send the spools of a run whose service is elsewhere; say how it went."""
    notices: list[str] = []
    slugs: set[str] = set()

    def say(slug: str, sentence: str) -> None:
        slugs.add(slug)
        notices.append(explained(sentence, slug))
        output.line(notices[-1])

    where = _where(endpoint)
    output.note(f"{run.id}: sending to {where}, for at most {seconds(timeout)}")
    # What it says on the way decides whether something was lost: `LOSSES` are the slugs of that.
    sent = send(run, endpoint, timeout, say)
    about = Outcome(run, "delivered", endpoint, sent.spools, notices=tuple(notices))
    if not sent.is_done:
        problem = f"not done within {seconds(timeout)}: {where} does not take it"
        output.line(f"{run.id}: {problem}; run it again once it does")
        return replace(about, result="left", problems=(problem,))
    if sent.spools:
        output.line(f"{run.id}: {plural(sent.spools, 'spool')} sent to {where}")
    else:
        output.line(f"{run.id}: its processes are alive, and send it themselves")
        about = replace(about, result="left_alone")
    return about if slugs.isdisjoint(LOSSES) else replace(about, result="lost")


def _finished(run: Unfinished, timeout: float, output: Screen) -> Outcome:
    """Finish a run on this host; say how it went. One that cannot be served must not keep the others from it."""
    try:
        done = _recovered(run, timeout, output)
    except (ConfigError, RunTakenError, StorageError, VersionError, OSError) as error:
        output.line(f"{run.id}: not done: {error}")
        return Outcome(run, "left", problems=(str(error),))
    output.line(f"{run.id}: {_account(done)}")
    problems = [
        f"{name} does not have all of it{f': {problem}' if problem else ''}" for name, problem in done.lacking.items()
    ]
    if not done.is_done:
        problems.append(f"not done within {seconds(timeout)}; see {run.folder.path}, and run it again")
    for sentence in (*problems, *done.said):
        output.line(f"  {sentence}")
    result: Literal["left", "lost", "delivered"] = "left" if problems else "lost" if done.lost else "delivered"
    return Outcome(run, result, None, done.spools, done, tuple(problems), done.said)


def _recovered(run: Unfinished, timeout: float, output: Screen) -> Recovered:
    with output.working() as now:
        waits = Waits(timeout, lambda sentence: output.note(f"{run.id}: {sentence}"))
        now(f"finishing {run.id}")

        def show(account: Mapping[str, Any]) -> None:
            delivered, pending = account.get("delivered", 0), account.get("pending", 0)
            now(f"finishing {run.id}: {thousands(delivered)} values delivered, {pending} records left")
            waits.look(account)

        return recover(run, timeout, show)


def _account(done: Recovered) -> str:
    """Return what was done in one line."""
    if not done.exporters and not done.lacking:
        return "nothing was left of it" if done.is_done else "nothing is delivered yet"
    if done.is_done and done.was_whole:
        before = f"nothing was missing: {plural(done.values, 'value')} delivered to {', '.join(done.exporters)} before"
        return f"{before}{_lost(done)}"
    sources = f"{plural(done.spools, 'spool')} and the journal" if done.spools else "the journal"
    where = f"delivered to {', '.join(done.exporters)}" if done.exporters else "delivered to no backend"
    # What waits for an open step is in no backend, though each has all there is to write.
    some = "" if done.is_done or done.delivered >= done.values else f"{thousands(done.delivered)} of "
    return f"{some}{plural(done.values, 'value')} of {sources} {where}{_lost(done)}"


def _lost(done: Recovered) -> str:
    lost = sum(done.lost.values())
    return f", {thousands(lost)} lost: {', '.join(done.lost)}" if lost else ", 0 lost"
