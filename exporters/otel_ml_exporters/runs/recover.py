"""Finish runs that nobody is working on any more: what their services and workers left behind is delivered."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_ml.config import Endpoint
from otel_ml.recovery import send_leftovers
from otel_ml.wire.attributes import EXPERIMENT_ID, EXPERIMENT_NAME, RUN_NAME
from otel_ml.wire.rendezvous import Home, Rendezvous, rendezvous_of, run_folder
from otel_ml.wire.spool import SUFFIX, read_spool
from otel_ml_exporters.config import ServiceConfig
from otel_ml_exporters.runs.folders import RunFolder, run_folders
from otel_ml_exporters.runs.source import facts, is_live
from otel_ml_exporters.service import Service

__all__ = ["Recovered", "Unfinished", "alone", "environment_of", "recover", "send", "spools_of", "unfinished"]

_LOOK_S = 0.2
"""How often the run is looked at while it is finished."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that was left before everything was delivered.

    Attributes:
        base: folder of all runs, in which it is finished: where its service wrote it.
        spools: files that its workers left.
        has_folder: a service of this host recorded it; else only workers' spools are here.
        exporters: those of its service, as far as it is known.
    """

    id: str
    experiment: str
    name: str
    base: Path
    spools: int
    has_folder: bool
    exporters: tuple[str, ...] = ()

    @property
    def folder(self) -> RunFolder:
        """Its folder."""
        return RunFolder(run_folder(self.base, self.experiment, self.id))

    @property
    def rendezvous(self) -> Rendezvous:
        """Where its workers and services meet on this host."""
        return rendezvous_of(self.id)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `recover` did.

    Attributes:
        is_done: whether the run is over and delivered.
        values: how many values were recorded in the run, these and earlier ones.
        spools: of workers, taken in.
        exporters: who has everything.
        lost: reason → values that no backend took.
    """

    is_done: bool
    values: int = 0
    spools: int = 0
    exporters: tuple[str, ...] = ()
    lost: Mapping[str, int] = field(default_factory=dict)


def unfinished(base: Path) -> list[Unfinished]:
    """Return the runs under `base` whose service was not done, and those of which workers' spools are on this host.

    A run of which a service was announced is finished where that wrote it. One of which there is no more than spools,
    or whose folder is gone, is finished under `base`.
    """
    found = {run.folder.path.resolve(): run for run in (*_of_spools(base), *_of_folders(base))}
    return [run for run in found.values() if not _is_served(run)]


def recover(run: Unfinished, timeout: float, progress: Callable[[Mapping[str, Any]], None]) -> Recovered:
    """Serve a run until it is over: its journal, its outbox and the spools of its dead workers are delivered.

    Args:
        run: of `unfinished`.
        timeout: seconds it may take.
        progress: called often with the account of the run (`GET /otel_ml/runs/<id>`).

    Raises:
        ConfigError, StorageError: the service cannot start; the message says why.
    """
    try:
        with alone(run.rendezvous) as is_alone:
            return _served(run, timeout, progress) if is_alone else Recovered(is_done=False)
    finally:
        run.rendezvous.remove()


def send(run: Unfinished, endpoint: Endpoint, timeout: float, say: Callable[[str, str], None]) -> bool:
    """Send what the run's dead workers left to where its workers send; return whether nothing is left.

    Args:
        run: of `unfinished`, without a folder here.
        endpoint: of the worker's configuration.
        timeout: seconds it may take.
        say: told what the receiver refuses, with the slug of its explanation first.
    """
    is_done = send_leftovers(run.id, endpoint, timeout, say)
    if is_done:
        run.rendezvous.remove()
    return is_done


def _served(run: Unfinished, timeout: float, progress: Callable[[Mapping[str, Any]], None]) -> Recovered:
    service = Service(ServiceConfig.load(rendezvous=run.rendezvous.folder, environ=environment_of(run)))
    service.start()
    account: Mapping[str, Any] = {}
    deadline = time.monotonic() + timeout
    try:
        while not (is_done := service.wait(_LOOK_S)) and time.monotonic() < deadline:
            account = service.run(run.id, None, speaker=False) or account
            progress(account)
        account = service.run(run.id, None, speaker=False) or account
    finally:
        service.stop()
    return Recovered(
        is_done=is_done,
        values=account.get("recorded", 0),
        spools=run.spools - spools_of(run.id),
        exporters=tuple(account.get("exporters", ())),
        lost=account.get("lost", {}),
    )


def spools_of(run_id: str) -> int:
    """Return how many spools of a run lie on this host, those of live workers too."""
    return len(list(rendezvous_of(run_id).spool.glob(f"*{SUFFIX}")))


def _of_folders(base: Path) -> Iterator[Unfinished]:
    for folder in run_folders(base):
        mark = folder.database.with_name("open")
        if mark.exists():
            run_id = mark.read_text(encoding="utf-8") or folder.id
            yield Unfinished(run_id, folder.experiment, run_id, base, spools_of(run_id), has_folder=True)


def _of_spools(base: Path) -> Iterator[Unfinished]:
    for folder in rendezvous_of("").folder.parent.glob("*/spool"):
        spools = sorted(folder.glob(f"*{SUFFIX}"))
        if not spools:
            continue
        resource = _attributes(read_spool(spools[0]).resource)
        if EXPERIMENT_ID in resource:
            run_id, experiment = resource[EXPERIMENT_ID], resource.get(EXPERIMENT_NAME, "default")
            home = _home(Rendezvous(folder.parent))
            where = base if home is None else Path(home.run_dir).parent.parent
            has_folder = home is not None or RunFolder(run_folder(base, experiment, run_id)).is_run()
            exporters = () if home is None else home.exporters
            name = resource.get(RUN_NAME, run_id)
            yield Unfinished(run_id, experiment, name, where, len(spools), has_folder, exporters)


def _home(rendezvous: Rendezvous) -> Home | None:
    """Return where the run was written; None where no service was announced, or its folder is gone."""
    home = rendezvous.read_home()
    return home if home is not None and Path(home.run_dir).is_dir() else None


def _attributes(resource: bytes) -> Mapping[str, str]:
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    message = Resource()
    message.ParseFromString(resource)
    return {pair.key: pair.value.string_value for pair in message.attributes}


def _is_served(run: Unfinished) -> bool:
    service = run.rendezvous.read_service()
    is_announced = service is not None and _is_running(service.pid)
    return is_announced or is_live(run.folder)


def environment_of(run: Unfinished) -> Mapping[str, str]:
    """Return the environment of the run's service: its identity, and the exporters it had."""
    known = facts(run.folder)
    had = tuple(mark.name for mark in known.exporters) if known is not None else ()
    exporters = ",".join(had or run.exporters)
    identity = {
        "OTEL_ML_EXPERIMENT_ID": run.id,
        "OTEL_ML_EXPERIMENT_NAME": run.experiment,
        "OTEL_ML_RUN_NAME": run.name,
        "OTEL_ML_DIR": str(run.base),
    }
    return {**os.environ, **identity, **({"OTEL_ML_EXPORTERS": exporters} if exporters else {})}


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and nobody took note: in a container without an init it stays so for good."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False  # no such file system, or gone meanwhile
    return state == "Z"


@contextmanager
def alone(rendezvous: Rendezvous) -> Iterator[bool]:
    """Hold the right to serve the run; False where another process has it."""
    handle = rendezvous.acquire()
    if handle is None:
        yield False
        return
    try:
        service = rendezvous.read_service()
        yield service is None or not _is_running(service.pid)
    finally:
        os.close(handle)
