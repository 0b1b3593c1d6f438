"""Runs that nobody is working on anymore, of which not everything is delivered."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from otel_ml.env import ENDPOINT
from otel_ml.exceptions import VersionError, WireError
from otel_ml.explanation import explained
from otel_ml.wire.attributes import EXPERIMENT_ID, EXPERIMENT_NAME, RUN_NAME
from otel_ml.wire.folder_content import inside
from otel_ml.wire.rendezvous import Home, Rendezvous, rendezvous_of, run_folder
from otel_ml.wire.spool_format import SUFFIX, Leftover, read_spool
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.live_runs.state_files import meeting_place
from otel_ml_service.stored_runs.read_records import facts, identity_of, is_live, requests_after
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there, run_folders

__all__ = [
    "MARKS",
    "Unfinished",
    "has_writers",
    "in_no_run",
    "marked_id",
    "spools_in",
    "unfinished",
    "unreadable_spools",
]

_log = logging.getLogger(__name__)

MARKS = ("open", "undelivered")
"""Files beside `run.db` that a service leaves where it was not done, or one of the exporters could not be used."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that was left before everything was delivered.

    Attributes:
        base: folder of all runs, in which it is finished: where its service wrote it.
        spools: files that its workers left.
        rendezvous: where its workers and services meet on this host, or met before it was started again: there the
            spools are.
        has_folder: a service of this host recorded it; else only workers' spools are here.
        exporters: those of its service, as far as it is known.
        is_of_serve: a service of many runs recorded it (`otel-ml serve`), which alone goes on with it: it has in its
            journal what it acknowledged.
        sent_to: process that has ended, by its instance → the endpoint that a user had named for it, of those that left
            something: it may be up again one day.
        variable: in which a user had named that.
        is_sending: whether a process that sends to such an endpoint lives.
        origin: folder of all runs to which its job wrote; another one than `base` where its folder is gone.
    """

    id: str
    experiment: str
    name: str
    base: Path
    spools: int
    rendezvous: Rendezvous
    has_folder: bool
    exporters: tuple[str, ...] = ()
    is_of_serve: bool = False
    origin: Path | None = None
    sent_to: Mapping[str, str] = field(default_factory=dict)
    variable: str = ENDPOINT.name
    is_sending: bool = False

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
    def spools_left(self) -> int:
        """How many spools of it are there by now, those of live workers too."""
        return spools_in(self.rendezvous)


def unfinished(base: Path) -> list[Unfinished]:
    """Return the runs under `base` whose service was not done, and those of which workers' spools are on this host.

    A run of which a service was asked for is finished where that writes it, whatever `base` is. One of which there is
    no more than spools, or whose folder is gone, is finished under `base`. Of a run that `otel-ml serve` has open only
    spools are left. One that left spools in several places, as before and after a start of the host, is there for each.
    """
    with_spools = list(_of_spools(base))
    # One run may be found by both; what workers left tells more of it than its folder.
    known = {run.folder.path.resolve() for run in with_spools}
    without = [run for run in _of_folders(base) if run.folder.path.resolve() not in known]
    found = (*with_spools, *without)
    return [run for run in found if not _is_served(run) or (run.is_of_serve and run.spools)]


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


def unreadable_spools() -> list[str]:
    """Return a sentence for each spool on this host that this otel_ml cannot read, of whatever run."""
    said = []
    for spool in sorted(spool for folder in inside(_rendezvous_of_all()) for spool in _spools(Rendezvous(folder))):
        try:
            read_spool(spool)
        except (VersionError, WireError) as error:
            said.append(str(error))
        except FileNotFoundError:
            continue  # its writer was quicker
        except OSError as error:
            said.append(explained(f"The spool {spool} cannot be read: {error.strerror}.", "storage"))
    return said


def _of_folders(base: Path) -> Iterator[Unfinished]:
    for folder in run_folders(base):
        run_id = marked_id(folder)
        if run_id is not None:
            rendezvous = meeting_place(folder.database.parent, run_id)
            yield Unfinished(
                run_id,
                folder.experiment,
                run_id,
                base,
                spools_in(rendezvous),
                rendezvous,
                has_folder=True,
                is_of_serve=_is_of_serve(folder, base, rendezvous),
            )


def marked_id(folder: RunFolder) -> str | None:
    """Return the id of a run that a service was not done with; None where it was, or where nobody lets us look."""
    mark = next((mark for mark in map(folder.database.with_name, MARKS) if is_there(mark)), None)
    if mark is None:
        return None
    try:
        return mark.read_bytes().decode("utf-8") or folder.id
    except UnicodeDecodeError:
        return folder.id
    except OSError as error:
        _log.warning("%s", explained(f"{folder.path} is left alone: {error.strerror}.", "run-unreadable"))
        return None


def _of_spools(base: Path) -> Iterator[Unfinished]:
    for rendezvous in map(Rendezvous, inside(_rendezvous_of_all())):
        spools = _spools(rendezvous)
        if not spools:
            continue
        left = dict(_read(spools))
        resource = _attributes(next((one.resource for one in left.values()), b""))
        if EXPERIMENT_ID in resource:
            found = _left_by_workers(rendezvous, len(spools), resource, base)
            yield _with_endpoints(found, {path: one for path, one in left.items() if one.endpoint})


def has_writers(rendezvous: Rendezvous) -> bool:
    """Whether a process lives that records here, or sends what another one left."""
    return any(map(_is_locked, _spools(rendezvous)))


def spools_in(rendezvous: Rendezvous) -> int:
    """Return how many spools processes have here, or have left."""
    return len(_spools(rendezvous))


def _spools(rendezvous: Rendezvous) -> list[Path]:
    return sorted(path for path in inside(rendezvous.spool) if path.name.endswith(SUFFIX))


def _rendezvous_of_all() -> Path:
    return rendezvous_of("").folder.parent


def _read(spools: Sequence[Path]) -> Iterator[tuple[Path, Leftover]]:
    """Yield the spools that can be read, each with its first frame: ranks may have left hundreds of megabytes."""
    for spool in spools:
        with suppress(VersionError, WireError, OSError):  # `unreadable_spools` says which
            found = read_spool(spool)
            yield spool, found._replace(frames=found.frames[:1])


def _with_endpoints(run: Unfinished, left: Mapping[Path, Leftover]) -> Unfinished:
    """Return the run with what spools say of processes that send, or sent, to an endpoint of the user's."""
    locked = {path for path in left if _is_locked(path)}
    sent_to = {
        # `<instance>-<6 digits>.spool` (docs/protocol.md §4.13).
        path.name.rpartition("-")[0]: one.endpoint
        for path, one in left.items()
        # An empty file has nothing that was on its way.
        if path not in locked and (one.frames or one.damaged)
    }
    variables = sorted({one.variable for one in left.values() if one.variable})
    return replace(run, sent_to=sent_to, variable=" and ".join(variables) or run.variable, is_sending=bool(locked))


def _is_locked(spool: Path) -> bool:
    """Whether its writer lives, or another process is sending it just now."""
    try:
        with spool.open("rb") as file:
            # Shared, so that two who look at the same time do not take each other for the writer.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    # Who had a file that is gone has sent it just now.
    except (BlockingIOError, FileNotFoundError):
        return True
    return False


def _left_by_workers(rendezvous: Rendezvous, spools: int, resource: Mapping[str, str], base: Path) -> Unfinished:
    run_id, experiment = resource[EXPERIMENT_ID], resource.get(EXPERIMENT_NAME, "default")
    said = _said_home(rendezvous)
    has_home = said is not None and Path(said.run_dir).is_dir()
    origin = base if said is None else Path(said.run_dir).parent.parent
    # A folder that is gone is made anew in `base`.
    where = origin if has_home else base
    there = RunFolder(run_folder(where, experiment, run_id))
    return Unfinished(
        run_id,
        experiment,
        resource.get(RUN_NAME, run_id),
        where,
        spools,
        rendezvous,
        has_folder=has_home or there.is_run(),
        exporters=() if said is None else said.exporters,
        is_of_serve=_is_of_serve(there, where, rendezvous),
        origin=origin,
    )


def _is_of_serve(run: RunFolder, base: Path, rendezvous: Rendezvous) -> bool:
    """Whether `otel-ml serve` recorded a run, by what it has open, and else by whose journal the run knows last."""
    if _said_home(rendezvous) is not None or not (base / ".service").is_dir() or not run.is_run():
        return False
    if is_live(run):
        return True
    known, own = facts(run), identity_of(run.database.with_name("journal.db"))
    if own and known is not None and known.journal:
        return known.journal != own
    # A job's own service makes its journal first; where that is elsewhere, it has kept how it serves the run.
    served = _served(run)
    return not own and (served is None or served.is_of_serve)


def _served(run: RunFolder) -> ServedSettings | None:
    with suppress(VersionError):
        return ServedSettings.read(run.database.parent)
    return None


def _said_home(rendezvous: Rendezvous) -> Home | None:
    with suppress(VersionError):
        return rendezvous.read_home()
    return None


def _attributes(resource: bytes) -> Mapping[str, str]:
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    message = Resource()
    message.ParseFromString(resource)
    return {pair.key: pair.value.string_value for pair in message.attributes}


def _is_served(run: Unfinished) -> bool:
    return run.rendezvous.is_served() or rendezvous_of(run.id).is_served() or is_live(run.folder)
