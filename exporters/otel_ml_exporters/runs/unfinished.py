"""Runs that nobody is working on any more, of which not everything is delivered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from otel_ml.wire.attributes import EXPERIMENT_ID, EXPERIMENT_NAME, RUN_NAME
from otel_ml.wire.rendezvous import Rendezvous, rendezvous_of, run_folder
from otel_ml.wire.spool import SUFFIX, read_spool
from otel_ml_exporters.experiments.served import Served
from otel_ml_exporters.runs.folders import RunFolder, run_folders
from otel_ml_exporters.runs.source import facts, identity_of, is_live, requests_after

__all__ = ["MARKS", "Unfinished", "in_no_run", "lacking", "spools_of", "unfinished"]

MARKS = ("open", "undelivered")
"""Files beside `run.db` that a service leaves where it was not done, or one of the exporters could not be used."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that was left before everything was delivered.

    Attributes:
        base: folder of all runs, in which it is finished: where its service wrote it.
        spools: files that its workers left.
        has_folder: a service of this host recorded it; else only workers' spools are here.
        exporters: those of its service, as far as it is known.
        is_of_serve: a service of many runs recorded it (`otel-ml serve`), which alone goes on with it: it has in its
            journal what it acknowledged.
        origin: folder of all runs to which its job wrote; another one than `base` where its folder is gone.
    """

    id: str
    experiment: str
    name: str
    base: Path
    spools: int
    has_folder: bool
    exporters: tuple[str, ...] = ()
    is_of_serve: bool = False
    origin: Path | None = None

    def belongs_to(self, base: Path) -> bool:
        """Whether its job wrote to this folder of all runs."""
        return (self.origin or self.base).resolve() == base.resolve()

    def is_meant_by(self, text: str) -> bool:
        """Whether a person who writes `text` means it: its id, `experiment/id`, or its folder."""
        return text in {self.id, f"{self.experiment}/{self.id}"} or Path(text).resolve() == self.folder.path.resolve()

    @property
    def folder(self) -> RunFolder:
        """Its folder."""
        return RunFolder(run_folder(self.base, self.experiment, self.id))

    @property
    def rendezvous(self) -> Rendezvous:
        """Where its workers and services meet on this host."""
        return rendezvous_of(self.id)


def unfinished(base: Path) -> list[Unfinished]:
    """Return the runs under `base` whose service was not done, and those of which workers' spools are on this host.

    A run of which a service was asked for is finished where that writes it, whatever `base` is. One of which there is
    no more than spools, or whose folder is gone, is finished under `base`. Of a run that `otel-ml serve` has open only
    spools are left.
    """
    found = {run.folder.path.resolve(): run for run in (*_of_spools(base), *_of_folders(base))}
    return [run for run in found.values() if not _is_served(run) or (run.is_of_serve and run.spools)]


def in_no_run(base: Path, journal_dir: str) -> int:
    """Return how many requests `otel-ml serve` acknowledged, and was killed before any run had them.

    Args:
        base: folder of all runs.
        journal_dir: where journals are, if not there.
    """
    journal = (Path(journal_dir) / "service" if journal_dir else base / ".service") / "journal.db"
    if not requests_after(journal, 0):
        return 0
    identity = identity_of(journal)
    known = [found for found in map(facts, run_folders(base)) if found is not None and found.journal == identity]
    return requests_after(journal, max((found.taken for found in known), default=0))


def lacking(run: RunFolder) -> tuple[str, ...]:
    """Return the exporters that a run was asked for and that do not have all of it; none while it is open."""
    known = facts(run)
    if known is None or not any(run.database.with_name(mark).exists() for mark in MARKS):
        return ()
    served = Served.read(run.database.parent)
    marks = {mark.name: mark.seq for mark in known.exporters}
    names = dict.fromkeys((*(served.exporters if served is not None else ()), *marks))
    return tuple(name for name in names if marks.get(name, 0) < known.last_seq)


def spools_of(run_id: str) -> int:
    """Return how many spools of a run lie on this host, those of live workers too."""
    return len(list(rendezvous_of(run_id).spool.glob(f"*{SUFFIX}")))


def _of_folders(base: Path) -> Iterator[Unfinished]:
    for folder in run_folders(base):
        mark = next((mark for mark in map(folder.database.with_name, MARKS) if mark.exists()), None)
        if mark is not None:
            run_id = mark.read_text(encoding="utf-8") or folder.id
            yield Unfinished(
                run_id,
                folder.experiment,
                run_id,
                base,
                spools_of(run_id),
                has_folder=True,
                is_of_serve=_is_of_serve(folder, base, rendezvous_of(run_id)),
            )


def _of_spools(base: Path) -> Iterator[Unfinished]:
    for folder in rendezvous_of("").folder.parent.glob("*/spool"):
        spools = sorted(folder.glob(f"*{SUFFIX}"))
        if not spools:
            continue
        resource = _attributes(read_spool(spools[0]).resource)
        if EXPERIMENT_ID in resource:
            yield _left_by_workers(Rendezvous(folder.parent), len(spools), resource, base)


def _left_by_workers(rendezvous: Rendezvous, spools: int, resource: Mapping[str, str], base: Path) -> Unfinished:
    run_id, experiment = resource[EXPERIMENT_ID], resource.get(EXPERIMENT_NAME, "default")
    said = rendezvous.read_home()
    is_there = said is not None and Path(said.run_dir).is_dir()
    origin = base if said is None else Path(said.run_dir).parent.parent
    where = origin if is_there else base
    there = RunFolder(run_folder(where, experiment, run_id))
    return Unfinished(
        run_id,
        experiment,
        resource.get(RUN_NAME, run_id),
        where,
        spools,
        has_folder=is_there or there.is_run(),
        exporters=() if said is None else said.exporters,
        is_of_serve=_is_of_serve(there, where, rendezvous),
        origin=origin,
    )


def _is_of_serve(run: RunFolder, base: Path, rendezvous: Rendezvous) -> bool:
    """Whether `otel-ml serve` recorded a run, by what it has open, and else by whose journal the run knows last."""
    if rendezvous.read_home() is not None or not (base / ".service").is_dir() or not run.is_run():
        return False
    if is_live(run):
        return True
    known, own = facts(run), identity_of(run.database.with_name("journal.db"))
    if own and known is not None and known.journal:
        return known.journal != own
    # A job's own service makes its journal first; where that is elsewhere, it has kept how it serves the run.
    served = Served.read(run.database.parent)
    return not own and (served is None or served.is_of_serve)


def _attributes(resource: bytes) -> Mapping[str, str]:
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    message = Resource()
    message.ParseFromString(resource)
    return {pair.key: pair.value.string_value for pair in message.attributes}


def _is_served(run: Unfinished) -> bool:
    return run.rendezvous.is_served() or is_live(run.folder)
