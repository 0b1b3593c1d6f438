"""How far each backend is with a run: what `run.db` has; as long as a service has that open, what it says or wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from otel_ml._internal.last_line import CLOSED
from otel_ml._internal.lifecycle.notices import run_status
from otel_ml._internal.transport.embedded import endpoint_of
from otel_ml._internal.transport.link import transport_to
from otel_ml.exceptions import VersionError
from otel_ml_service.live_runs.delivery_file import kept_delivery
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.live_runs.state_files import meeting_place
from otel_ml_service.stored_runs.read_records import Facts, RunInUseError, is_live, stored_facts
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there
from otel_ml_service.stored_runs.unfinished import MARKS, marked_id

__all__ = ["Delivery", "deliveries", "delivering", "lacking", "not_taken"]

_ANSWER_S = 1.0
"""Seconds a service may take to say how far it is: a list of runs asks each that has one open."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far one backend is.

    Attributes:
        name: of its exporter.
        seq: up to which record everything is there, or counted as lost.
        last_seq: of the run.
        lost: reason → values, and records without values, that will never be there.
        goes_on: whether a service still delivers.
        problem: what delivery fails with now, as far as it is known.
    """

    name: str
    seq: int
    last_seq: int
    lost: Mapping[str, int] = field(default_factory=dict)
    goes_on: bool = False
    problem: str = ""

    @property
    def behind(self) -> int:
        """Records that are not there yet."""
        return max(0, self.last_seq - self.seq)


def deliveries(run: RunFolder) -> tuple[Delivery, ...] | None:
    """Return how far each backend is; None where a service has the run open, and does not say it here."""
    # Cron, or another terminal, may not find the service: what it wrote beside `run.db` counts then (ADR 0069).
    said = _told(run) or kept_delivery(run.database.parent) if is_live(run) else None
    if said is not None:
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # a version, or a person, wrote another form
            return tuple(_of_account(said))
    try:
        known = stored_facts(run)
    except RunInUseError:
        return None
    return () if known is None else tuple(_stored(run, known))


def delivering(found: Iterable[Delivery]) -> tuple[str, ...]:
    """Return the exporters that are still at work."""
    return tuple(one.name for one in found if one.behind and one.goes_on)


def lacking(found: Iterable[Delivery]) -> tuple[str, ...]:
    """Return the exporters that do not have all of a run and are not at work on it."""
    return tuple(one.name for one in found if one.behind and not one.goes_on)


def not_taken(found: Iterable[Delivery]) -> dict[str, int]:
    """Return exporter → values that its backend will never have."""
    return {one.name: sum(one.lost.values()) for one in found if one.lost}


def _stored(run: RunFolder, known: Facts) -> Iterable[Delivery]:
    """Yield what a service left: of the exporters that it was asked for, and of those that were at work before."""
    last = known.last_seq
    if not any(is_there(run.database.with_name(mark)) for mark in MARKS):
        # It was done with the run. One that was at work before a restart only, under another name, is behind for good.
        yield from (Delivery(mark.name, last, last, mark.lost) for mark in known.exporters)
        return
    marks = {mark.name: mark for mark in known.exporters}
    for name in dict.fromkeys((*_asked_for(run), *marks)):
        mark = marks.get(name)
        yield Delivery(name, 0, last) if mark is None else Delivery(name, mark.seq, last, mark.lost)


def _asked_for(run: RunFolder) -> tuple[str, ...]:
    with suppress(VersionError):
        served = ServedSettings.read(run.database.parent)
        return () if served is None else tuple(served.exporters)
    return ()


def _told(run: RunFolder) -> Mapping[str, Any] | None:
    """Return what the service that has announced itself to the run's processes on this host says."""
    run_id = marked_id(run) or run.id
    with suppress(VersionError):
        service = meeting_place(run.database.parent, run_id).read_service()
        if service is None:
            return None
        transport = transport_to(endpoint_of(service))
        try:
            return run_status(transport, run_id, {}, _ANSWER_S)
        finally:
            transport.close()
    return None


def _of_account(said: Mapping[str, Any]) -> Iterable[Delivery]:
    last = int(said["last_seq"])
    for name, one in said["exporters"].items():
        goes_on = one["state"] not in CLOSED
        yield Delivery(name, last - int(one["pending"]), last, dict(one["lost"]), goes_on, one["problem"] or "")
