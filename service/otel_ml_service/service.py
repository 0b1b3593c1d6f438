"""The service: the only place that knows receivers, journal, engine, outbox and exporters together.

::

    receivers ─▶ admission ─▶ journal ─▶ engine loop ─▶ run.db ─▶ one pipeline an exporter
                    (decode)    (acknowledge)  (one thread)   (commit)    (one thread each)
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from otel_ml.explanation import explained
from otel_ml.wire.rendezvous import Rendezvous, path_part, run_folder
from otel_ml.wire.rendezvous import Service as Announcement
from otel_ml.wire.versions import own_version
from otel_ml_exporters.exporter import Exporter
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.config import EmbeddedRun, ServiceConfig
from otel_ml_service.configured_runs import configured_runs
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.live_runs.console_lines import ConsoleLines
from otel_ml_service.live_runs.embedded_service import EmbeddedService
from otel_ml_service.live_runs.engine_loop import EngineLoop
from otel_ml_service.live_runs.engine_queue import EngineQueue
from otel_ml_service.live_runs.leftover_spools import Left
from otel_ml_service.live_runs.run_account import account
from otel_ml_service.live_runs.run_registry import RunRegistry
from otel_ml_service.live_runs.self_telemetry import run_measures
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.live_runs.state_files import keep_meeting_place
from otel_ml_service.live_runs.storage_errors import StorageErrors
from otel_ml_service.live_runs.undecided import Undecided
from otel_ml_service.live_runs.unreadable_requests import UnreadableRequests
from otel_ml_service.receiver.admission import Admission, OverloadedError, Stored
from otel_ml_service.receiver.decode import Decoded, Signal
from otel_ml_service.receiver.grpc import GrpcReceiver
from otel_ml_service.receiver.http import HttpReceiver
from otel_ml_service.receiver.partial_success import UndecodableError
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.receiver.routes import Routes
from otel_ml_service.receiver.tls import ServerCertificate
from otel_ml_service.receiver.tokens import Tokens
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.filesystem import network_file_system
from otel_ml_service.storage.journal import Committed, Journal
from otel_ml_service.telemetry import Measure, Telemetry

__all__ = ["Service"]

_log = logging.getLogger(__name__)

_STOP_S = 30.0
"""Seconds a stopping service gives its exporters."""

_SHRINK_S = 10.0
"""Seconds for which a stopping service makes runs small that have ended; a successor waits longer than this for it."""

_PREDECESSOR_S = 40.0
"""How long an embedded service waits for the one before it to finish delivering; a run has one at a time."""


class Service:
    """Receives, reduces and delivers until it is stopped.

    Args:
        config: what to do.
        makers: name → builds the exporter, in addition to those `config` names: for programs that bring their own.
        served: what is kept of it in the folders of its runs; None keeps what is there.
        pages: address of the pages of runs, which a job's own service announces; empty where none are offered.
        retry: of the exporters; tests make it quick.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        config: ServiceConfig,
        *,
        makers: Mapping[str, Callable[[], Exporter]] | None = None,
        served: ServedSettings | None = None,
        pages: str = "",
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._console = ConsoleLines(first=int(clock() * 1000)) if config.embedded else None
        settings, self._problems = configured_runs(config, makers, served, retry, self._console)
        self._config = config
        self._pages = pages
        self._exporters = tuple(settings.exporters)
        self._clock = clock
        # Nobody types an embedded service's token; whoever can read the rendezvous folder has it.
        self._token = secrets.token_urlsafe(32) if config.embedded else config.token
        given = [token for token in (self._token, *config.tokens) if token]
        self._tokens = Tokens(given, config.token_file)
        self._telemetry = Telemetry()
        self._trouble = StorageErrors("What arrives")
        self._refused_at: float | None = None
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._http_address = ("", 0)
        self._grpc_address: tuple[str, int] | None = None
        self._refusals = RefusalLog()
        self._admission = Admission(
            self._store,
            self._telemetry,
            config.limits.queue,
            lambda experiments: self._runs.has_capacity(experiments),  # noqa: PLW0108 (they are made below)
            lambda experiments: self._runs.held_back(experiments),  # noqa: PLW0108 (as above)
            refusals=self._refusals,
            aliases=config.aliases,
        )
        is_known = self._tokens.are_demanded or bool(config.tls and config.tls.client_ca)
        self._routes = Routes(
            self._admission, self, self._telemetry, tokens=self._tokens, version=own_version(), any_host=is_known
        )
        files = config.tls
        shown = None if files is None else ServerCertificate(files.certificate, files.key, files.client_ca)
        tls = None if shown is None else shown.context
        self._http = HttpReceiver(
            self._routes, *config.http, self._telemetry, self._refusals, tls, arriving=config.limits.queue
        )
        self._grpc = self._grpc_receiver(shown)
        self._unreadable = UnreadableRequests(self._state_folder() / "unreadable", self._telemetry)
        # The files come last: nothing after this can fail and leave them locked.
        self._journal: Journal[Decoded] = Journal(
            self._journal_folder() / "journal.db",
            self._committed,
            timeout_s=_PREDECESSOR_S if config.embedded else 0.0,
        )
        self._runs = RunRegistry(config.dir, settings, self._telemetry, journal=self._journal.identity)
        self._queue = EngineQueue(config.limits.queue)
        self._loop = EngineLoop(
            self._runs,
            self._queue,
            self._telemetry,
            self._refusals,
            digested=self._admission.digested,
            drop=self._journal.drop,
            dir_max=config.dir_max,
            unreadable=self._keep_of_run,
            damaged=self._damaged,
            left=None if config.embedded is None else self._left,
            refused_at=lambda: self._refused_at,
            clock=clock,
        )
        self._life = self._embedded_life()

    def start(self) -> str:
        """Recover what a predecessor left, start to serve, and return the base URL of OTLP/HTTP.

        Raises:
            ConfigError: an address cannot be bound, or an exporter's options are wrong.
            StorageError: a file of the service cannot be used.
        """
        try:
            self._recover()
            self._http_address = self._http.start()
            self._grpc_address = None if self._grpc is None else self._grpc.start()
            if self._life is not None and self._config.embedded is not None:
                self._announce(self._life, self._config.embedded)
        except BaseException:
            self.stop(0)
            raise
        self._say_network()
        self._loop.start()
        self._journal.start()
        self._take_up_kept()
        return self.endpoint

    @property
    def endpoint(self) -> str:
        """Base URL of OTLP/HTTP."""
        host, port = self._http_address
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._config.tls else 'http'}://{shown}:{port}"

    @property
    def grpc_address(self) -> tuple[str, int] | None:
        """Where OTLP/gRPC is taken, or None."""
        return self._grpc_address

    @property
    def token(self) -> str:
        """A bearer token that requests may carry, or ""."""
        return self._token

    @property
    def demands_a_token(self) -> bool:
        """Whether requests must carry a bearer token."""
        return self._tokens.are_demanded

    @property
    def exporters(self) -> tuple[str, ...]:
        """Names of the exporters of every run."""
        return self._exporters

    @property
    def spools_taken_in(self) -> int:
        """How many spools of dead processes of its job it has taken in."""
        return 0 if self._life is None else self._life.spools_taken_in

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the service has been stopped or, embedded, its run is over; False on time-out."""
        return self._ended.wait(timeout)

    def stop(self, timeout: float = _STOP_S) -> None:
        """Take no new requests, decide and commit what was acknowledged, deliver what can be in time; safe twice."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._life is not None:
            self._life.withdraw()
        self._http.stop(timeout=5.0)
        if self._grpc is not None:
            self._grpc.stop(timeout=5.0)
        self._routes.close()
        self._loop.stop()
        for run in self._runs:
            run.pipelines.ask_to_stop(timeout)
        for run in self._runs:
            self._runs.put_away(run)
        self._runs.finish(_SHRINK_S)
        self._journal.close()
        if self._life is not None:
            self._life.leave()
        self._ended.set()

    # What routes ask (RunsView); on the receiver's thread

    def runs(self) -> list[Mapping[str, Any]]:
        """Return the account of every open run."""
        return self._runs.accounts(self._loop.undecided)

    def run(self, experiment: str, writer: str | None, *, speaker: str | None) -> Mapping[str, Any] | None:
        """Return the account of one run; to a writer, also whether it has `left`, as the `last`."""
        run = self._runs.get(experiment)
        if run is None:
            return None
        said = account(run, self._loop.undecided)
        if speaker:
            notices = len(said["notices"])
            first = run.printing_process.first_for(speaker, run.printed or 0, notices, run.status.left)
            run.printed = run.printed if first is None else notices
            said = {**said, "speaks_from": first}
        if writer is None:
            return said
        is_told = not run.awaits_the_dead  # or it would leave for one of whom it is just found that it died
        return {**said, "left": is_told and writer in run.status.left, "last": run.status.last_writer == writer}

    @property
    def is_settled(self) -> bool:
        """Whether the accounts include everything that was acknowledged."""
        return self._loop.undecided == 0

    def console(self, experiment: str, taken: int) -> Mapping[str, Any] | None:
        """Return what the exporter `console` wrote and nobody has printed; None where it has this process' output."""
        is_here = self._console is not None and self._runs.get(experiment) is not None
        return self._console.after(taken) if self._console is not None and is_here else None

    def measures(self) -> Iterable[Measure]:
        """Return the self-telemetry of the runs, and of what waits for them."""
        found = [measure for run in self._runs for measure in run_measures(run)]
        return [*found, ("build_info", (("version", own_version()),), 1), ("journal_bytes", (), self._admission.held)]

    def notices(self, experiments: Iterable[str]) -> int:
        """Return how many notices these runs have."""
        runs = (self._runs.get(experiment) for experiment in experiments)
        return sum(len(run.outbox.notices) for run in runs if run is not None)

    # Inside

    def _store(self, decoded: Decoded, stored: Stored) -> None:
        self._journal.append(decoded.signal, decoded.body, decoded, partial(self._settle, decoded, stored))

    def _settle(self, decoded: Decoded, stored: Stored, done: int | StorageError) -> None:
        error = done if isinstance(done, StorageError) else None
        if error is not None:
            self._runs.withdraw(decoded.observations)
        if error is not None and not self._stopped.is_set():
            self._telemetry.count("refused", reason="not stored")
            self._trouble.note(error)
            self._refused_at = self._clock()
        stored(decoded, error)

    def _tell_all(self, slug: str, sentence: str | None) -> None:
        if sentence is not None:
            for run in self._runs:
                run.say(slug, sentence)

    def _committed(self, entries: Iterable[Committed[Decoded]]) -> None:
        self._tell_all("storage", self._trouble.over())
        body = self._journal.body
        self._queue.put([Undecided.of(one.id, one.payload, partial(body, one.id, one.place)) for one in entries])
        self._queue.wait_for_capacity()  # the journal tells the senders after this, in turn

    def _recover(self) -> None:
        self._runs.reopen(None if self._config.embedded is None else [self._state_folder().parent])
        leftover = self._journal.leftover()
        if leftover:
            _log.info("Taking up %d requests that were acknowledged before the last stop.", len(leftover))
        for entry in leftover:
            try:
                decoded = self._admission.again(cast("Signal", entry.signal), entry.body)
            except UndecodableError as error:  # the disk changed it: it was readable when it was acknowledged
                self._unreadable.keep(entry.id, entry.signal, entry.body)
                _log.error("%s", explained(f"Entry {entry.id} of the journal is set aside: {error}", "damaged-file"))
                continue
            self._queue.put([Undecided.of(entry.id, decoded, partial(attrgetter("body"), entry))])
        if self._journal.damage:
            _log.error("%s", explained(self._journal.damage, "damaged-file"))
            self._tell_all("damaged-file", self._journal.damage)

    def _keep_of_run(self, entry: Undecided, experiment: str) -> None:
        """Keep what a request has of a run that cannot be opened; what it has of others they have taken.

        Raises:
            OSError: the request cannot be read again, or cannot be written.
        """
        of_run = self._admission.of_runs(entry.signal, entry.body(), {experiment})
        self._unreadable.keep(entry.number, entry.signal, of_run, experiment)

    def _take_up_kept(self) -> None:
        """Send what a predecessor could not put into its run on the way of all requests: now it may be possible."""
        for kept in self._unreadable.kept():

            def stored(decoded: Decoded, error: Exception | None, path: Path = kept.path) -> None:
                if error is None:
                    path.unlink(missing_ok=True)

            try:
                self._admission.take(cast("Signal", kept.signal), kept.body, stored)
            except (UndecodableError, OverloadedError):
                continue  # it stays

    def _announce(self, life: EmbeddedService, names: EmbeddedRun) -> None:
        run = self._runs.of(Writer(names.experiment, role="", instance="", experiment_name=names.experiment_name))
        keep_meeting_place(run.folder / "state", names.rendezvous)
        for problem in self._config.problems:
            run.say("wrong-setting", problem)
        for problem in self._problems:
            run.say("wrong-setting", f"The run goes on with: {', '.join(self._exporters) or 'no exporter'}. {problem}")
        run.pipelines.foresee(run.info)
        place = "/".join(quote(part, safe="") for part in run.folder.parts[-2:])
        page = f"{self._pages}run/{place}/" if self._pages else ""
        life.announce(Announcement(self.endpoint, self._token, os.getpid(), str(run.folder), self.exporters, page))

    def _embedded_life(self) -> EmbeddedService | None:
        if self._config.embedded is None:
            return None
        rendezvous = Rendezvous(self._config.embedded.rendezvous)
        return EmbeddedService(rendezvous, self._runs, self._admission, over=self._ended.set)

    def _state_folder(self) -> Path:
        embedded = self._config.embedded
        if embedded is None:
            return self._config.dir / ".service"
        return run_folder(self._config.dir, embedded.experiment_name, embedded.experiment) / "state"

    def _journal_folder(self) -> Path:
        embedded, chosen = self._config.embedded, self._config.journal_dir
        if chosen is None:
            return self._state_folder()
        return chosen / ("service" if embedded is None else path_part(embedded.experiment))

    def _left(self, instance: str) -> Left:
        return "nothing" if self._life is None else self._life.left(instance)

    def _damaged(self) -> None:
        """A run's file is damaged. Embedded, the next service of the job puts it right: the workers start one."""
        if self._config.embedded is not None:
            self._ended.set()

    def _say_network(self) -> None:
        kind = network_file_system(self._journal_folder())
        if kind is None:
            return
        sentence = (
            f"The journal is on a network file system ({kind}): locks and syncs are only as good as the server's. "
            "Put it on a disk of this host with OTEL_ML_JOURNAL_DIR=FOLDER."
        )
        _log.warning("%s", explained(sentence, "network-disk"))
        self._tell_all("network-disk", sentence)

    def _grpc_receiver(self, shown: ServerCertificate | None) -> GrpcReceiver | None:
        if self._config.grpc is None:
            return None
        address = self._config.grpc
        return GrpcReceiver(self._admission, self._telemetry, *address, self._refusals, tokens=self._tokens, tls=shown)
