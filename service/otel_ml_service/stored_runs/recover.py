"""Finish runs that nobody is working on anymore: what their services and workers left behind is delivered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_ml.config import Endpoint
from otel_ml.exceptions import OtelMLError
from otel_ml.recovery import Sent, send_leftovers
from otel_ml_service.service import Service
from otel_ml_service.stored_runs.alone import alone
from otel_ml_service.stored_runs.read_records import Facts, facts
from otel_ml_service.stored_runs.run_folders import is_there
from otel_ml_service.stored_runs.serve_again import service_again
from otel_ml_service.stored_runs.unfinished import MARKS, Unfinished

__all__ = ["Recovered", "RunTakenError", "recover", "send"]


class RunTakenError(OtelMLError):
    """Another process serves the run."""

    slug = "run-taken"


_LOOK_S = 0.2
"""How often the run is looked at while it is finished."""

_LOOKS = 5
"""Looks in a row that find nothing in the run before it is taken for empty."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `recover` did.

    Attributes:
        is_done: whether the run is over and delivered.
        values: how many values were recorded in the run, these and earlier ones; 0 where nothing was left of it.
        delivered: how many of them every backend has.
        spools: of workers, taken in.
        exporters: who has everything.
        lacking: exporter → why it does not, "" where there is no reason but time.
        lost: reason → what was recorded and will never be in every backend.
        said: what the service had to say meanwhile, such as of a damaged file.
        was_whole: every backend had everything before.
    """

    is_done: bool
    values: int = 0
    delivered: int = 0
    spools: int = 0
    exporters: tuple[str, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    was_whole: bool = False


def recover(run: Unfinished, timeout: float, progress: Callable[[Mapping[str, Any]], None]) -> Recovered:
    """Serve a run until it is over: its journal, its outbox and the spools of its dead workers are delivered.

    Args:
        run: of `unfinished`.
        timeout: seconds it may take.
        progress: called often with the account of the run (`GET /otel_ml/runs/<id>`).

    Raises:
        ConfigError, StorageError: the service cannot start; the message says why.
        RunTakenError: another process serves it.
    """
    try:
        with alone(run.rendezvous) as is_alone:
            if not is_alone:
                raise RunTakenError(
                    f"another process has run {run.id!r}, or recovers it: look at it again when that has ended."
                )
            if run.has_folder and not is_there(run.folder.path) and not run.spools_left:
                return Recovered(is_done=True)  # somebody has removed it since it was found: it is not made again
            with service_again(run) as service:
                _take_up(run)
                return _delivered(run, service, timeout, progress)
    finally:
        run.rendezvous.remove()


def send(run: Unfinished, endpoint: Endpoint, timeout: float, say: Callable[[str, str], None]) -> Sent:
    """Send what the run's dead workers left to where its workers send.

    Args:
        run: of `unfinished`, whose service is elsewhere or `otel-ml serve`.
        endpoint: of the worker's configuration.
        timeout: seconds it may take.
        say: told what the receiver refuses, with the slug of its explanation first.
    """
    sent = send_leftovers(run.rendezvous.spool, endpoint, timeout, say)
    if sent.is_done:
        run.rendezvous.remove()
    return sent


def _delivered(
    run: Unfinished, service: Service, timeout: float, progress: Callable[[Mapping[str, Any]], None]
) -> Recovered:
    # Before the start: as long as a service has the run open nobody else reads what it noted.
    known = facts(run.folder)
    service.start()
    account: Mapping[str, Any] = {}
    deadline = time.monotonic() + timeout
    looks = 0
    try:
        while not (is_done := service.wait(_LOOK_S)) and looks < _LOOKS and time.monotonic() < deadline:
            account = service.run(run.id, None, speaker=None) or account
            looks = looks + 1 if _is_empty(run, service, account) else 0
            progress(account)
    finally:
        service.stop()
    # With what arrived until then. A run that is over is closed, and says nothing anymore: its last account counts.
    account = service.run(run.id, None, speaker=None) or account
    before = () if known is None else known.notices
    said = tuple(notice for notice in account.get("notices", ()) if notice not in before)
    if looks == _LOOKS and not _holds_anything(run, account):  # and no service has to go on with it
        for mark in MARKS:
            run.folder.database.with_name(mark).unlink(missing_ok=True)
        return Recovered(is_done=True, spools=service.spools_taken_in, said=said)
    exporters: Mapping[str, Mapping[str, Any]] = account.get("exporters", {})
    return Recovered(
        is_done=is_done,
        values=account.get("recorded", 0),
        delivered=account.get("delivered", 0),
        spools=service.spools_taken_in,
        exporters=tuple(name for name, found in exporters.items() if not found["pending"]),
        lacking={name: found["problem"] or "" for name, found in exporters.items() if found["pending"]},
        lost=account.get("lost", {}),
        said=said,
        was_whole=known is not None and _was_whole(known, account),
    )


def _was_whole(known: Facts, account: Mapping[str, Any]) -> bool:
    """Whether nothing was to be done: no record came to those that were there, and all positions were at the end."""
    there = {mark.name: mark.seq for mark in known.exporters}
    asked = account.get("exporters", {})
    return account.get("last_seq") == known.last_seq and all(there.get(name) == known.last_seq for name in asked)


def _take_up(run: Unfinished) -> None:
    """Let the service open a run that is over, and lacks a backend: it then looks at what each of them has."""
    opened, lacking = map(run.folder.database.with_name, MARKS)
    if lacking.exists() and not opened.exists():
        opened.write_text(run.id, encoding="utf-8")


def _is_empty(run: Unfinished, service: Service, account: Mapping[str, Any]) -> bool:
    """Whether nobody was ever heard in the run, and nobody is left who could be."""
    is_taken_in = service.is_settled and run.rendezvous.service_file.exists()
    return is_taken_in and not _holds_anything(run, account)


def _holds_anything(run: Unfinished, account: Mapping[str, Any]) -> bool:
    return bool(account.get("writers") or account.get("last_seq") or run.spools_left)
