"""Which runs a service holds, and where their folders are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from otel_ml.exceptions import VersionError
from otel_ml.explanation import explained
from otel_ml.wire.folder_content import inside
from otel_ml.wire.folder_ownership import claim, is_ours, may_hold_ours, renamed_warning
from otel_ml.wire.rendezvous import kept_folder, path_part, run_folder
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.live_runs.live_run import LiveRun
from otel_ml_service.live_runs.run_account import account
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.live_runs.shrinking import Shrinking
from otel_ml_service.live_runs.state_files import keep_name, write_whole
from otel_ml_service.process_limits import most_files, open_files
from otel_ml_service.storage.database import StorageError, private_folder, storage_errors
from otel_ml_service.telemetry import Telemetry

__all__ = ["RunRegistry"]

_log = logging.getLogger(__name__)

MAX_RUNS = 1_000
"""Open runs of a service; each has a thread an exporter. A run that is over is closed a minute later."""

_FILES_OF_A_RUN, _FILES_OF_AN_EXPORTER = 4, 2
"""Open at a time: its database with its log, `service.log`, `late.otlp`; most exporters append to one or two."""

_OPEN = "open"
"""Name of the file beside `run.db` that says: a service was not done with this run. Its content is the id."""

_UNDELIVERED = "undelivered"
"""The same, where the run is over and an exporter it was asked for could not be used: for `otel-ml recover`."""


class RunRegistry:
    """Opens runs when they are first heard of; the engine's thread owns it.

    Args:
        base: `OTEL_ML_DIR`.
        journal: identity of the service's journal.

    Attributes:
        is_crowded: whether the run that was asked for last found no room.
    """

    def __init__(self, base: Path, settings: RunSettings, telemetry: Telemetry, *, journal: str) -> None:
        self._base = base
        self._settings = settings
        self._telemetry = telemetry
        self._journal = journal
        self._runs: dict[str, LiveRun] = {}
        self._unnamed: set[str] = set()
        self._held_back: dict[str, str] = {}
        # Guards _promised: receivers promise, the engine's thread keeps it.
        self._lock = threading.Lock()
        self._promised: set[str] = set()
        self._shrinking = Shrinking()
        self.is_crowded = False

    def __iter__(self) -> Iterator[LiveRun]:
        # A copy: other threads go through it while the engine's opens and closes runs.
        return iter(list(self._runs.values()))

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, experiment: str) -> LiveRun | None:
        """Return an open run; any thread may ask."""
        return self._runs.get(experiment)

    def has_capacity(self, experiments: Iterable[str]) -> bool:
        """Whether all of these runs are open or may be opened, which is then promised; any thread may ask."""
        unknown = {experiment for experiment in experiments if experiment not in self._runs}
        if not unknown:
            return True
        with self._lock:
            promised = self._promised | unknown
            # Promised runs count, too: their requests are acknowledged before the engine's thread opens them.
            self.is_crowded = len(self._runs) + len(promised) > MAX_RUNS or not self._has_files(len(promised))
            if not self.is_crowded:
                self._promised = promised
            return not self.is_crowded

    def withdraw(self, experiments: Iterable[str]) -> None:
        """Take back what was promised: the runs are open, or their request could not be stored; any thread may."""
        with self._lock:
            self._promised = self._promised.difference(experiments)

    def _has_files(self, further: int) -> bool:
        """Whether so many further runs find the open files they need; runs open theirs one after the other."""
        each = _FILES_OF_A_RUN + _FILES_OF_AN_EXPORTER * len(self._settings.exporters)
        return each * (len(self._runs) + further) <= most_files() and open_files() + each * further <= most_files()

    def held_back(self, experiments: Iterable[str]) -> str:
        """Return why a run of these is not taken: this version does not follow what has stored it; any thread may ask.

        Its senders keep what they have, for a service that does.
        """
        return next((self._held_back[experiment] for experiment in experiments if experiment in self._held_back), "")

    def of(self, writer: Writer) -> LiveRun:
        """Return the run of `writer`, opening or creating it.

        Raises:
            VersionError: another version has stored it, which this one cannot follow.
            StorageError: its files cannot be read.
        """
        run = self._runs.get(writer.experiment)
        if run is None:
            if not writer.experiment_name:
                self._unnamed.add(writer.experiment)
            return self._open(writer.experiment, self._folder(writer))
        if writer.experiment_name and writer.experiment in self._unnamed:
            # Whether or not it is moved: a run has one chance to be named.
            self._unnamed.remove(writer.experiment)
            return self._named(run, writer.experiment_name)
        return run

    def reopen(self, folders: Iterable[Path] | None = None) -> None:
        """Open the runs a predecessor was not done with: their clocks and exporters go on."""
        everywhere = (path for experiment in inside(self._base) for path in inside(experiment))
        known = everywhere if folders is None else folders
        for folder in filter(_is_safe, known):
            mark = folder / "state" / _OPEN
            try:
                if mark.is_file():
                    self._open(mark.read_text(encoding="utf-8"), folder).resume()
            except VersionError as error:
                _log.error("%s", error)
            except (StorageError, OSError, ValueError) as error:
                _log.error("%s", explained(f"A run is left as it is: {error}", "storage"))

    def look_after(self, run: LiveRun) -> None:
        """Make the run's folder anew where somebody deleted or moved it; what is still known of the run goes there."""
        if run.outbox.is_intact:
            return
        try:
            # First: the other two write into the folder that this makes.
            run.outbox.write_anew()
            keep_name(run.info)
            self._note_open(run)
        except (StorageError, OSError) as error:
            run.trouble.note(error)
        else:
            run.say(
                "store-gone",
                f"The folder {run.folder}, or run.db in it, was deleted or moved while the run was written. It is made "
                "anew, with what the service still has; exporters write their files again.",
            )

    def forget(self, run: LiveRun) -> None:
        """Close a run that is over, and make it small; later data opens it again."""
        self._close(run)
        self._shrinking.begin(run.outbox.path)

    def put_away(self, run: LiveRun) -> None:
        """Close a run at the end of the service; the next one opens it again unless it is over."""
        run.close()
        if run.is_over:
            _leave(run)
            self._shrinking.begin(run.outbox.path)

    def finish(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for runs that are made small; what is not done by then is left."""
        self._shrinking.finish(timeout)

    def _close(self, run: LiveRun) -> None:
        run.close()
        _leave(run)
        del self._runs[run.experiment]

    def size(self) -> Mapping[str, int]:
        """Return the bytes of each open run's outbox."""
        return {experiment: run.outbox.size() for experiment, run in self._runs.items()}

    def accounts(self, undecided: int) -> list[Mapping[str, Any]]:
        """Return what is told about every open run; any thread may ask."""
        return [account(run, undecided) for run in self]

    def _open(self, experiment: str, folder: Path) -> LiveRun:
        # Whoever makes the file small has it locked.
        self._shrinking.stop(folder / "state" / "run.db")
        with storage_errors(folder):
            claim(folder)
            planted = renamed_warning(folder)
        private_folder(folder / "state")
        # First: a disk that takes no more must not leave the run open, and locked, without being in the book.
        with storage_errors(folder):
            write_whole(folder / "state" / _OPEN, experiment.encode())
            run = self._run(experiment, folder)
        self._runs[experiment] = run
        self.withdraw([experiment])
        self._note_open(run)
        if planted and explained(planted, "planted-files") not in run.outbox.notices:  # by an earlier service
            run.say("planted-files", planted)
        with run.log.speaking():
            _log.info("Run %s: %s", experiment, folder)
        return run

    def _run(self, experiment: str, folder: Path) -> LiveRun:
        try:
            return LiveRun(experiment, folder, self._settings, self._telemetry, journal=self._journal)
        except VersionError as error:
            self._held_back[experiment] = error.sentence
            raise

    def _note_open(self, run: LiveRun) -> None:
        """Write beside `run.db` that the run is open, and how it is served."""
        state = run.folder / "state"
        if not (state / _OPEN).exists():
            write_whole(state / _OPEN, run.experiment.encode())
        if self._settings.served is not None:  # not before it is open: another service may have had it
            self._settings.served.keep(state)

    def _named(self, run: LiveRun, name: str) -> LiveRun:
        """Move a run to where its name belongs, as long as nothing of it is in any backend.

        A Collector that scrapes the node is often heard before the first rank, and does not know the name.
        """
        folder = run_folder(self._base, name, run.experiment)
        # What was observed is in memory alone, and the folder is about to be moved.
        run.commit()
        if folder.exists() or run.is_placed:
            return run
        # All that a run has open goes by its folder's path: it is closed here, and opened anew there.
        self._close(run)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        run.folder.rename(folder)
        return self._open(run.experiment, folder)

    def _folder(self, writer: Writer) -> Path:
        # The name may be missing where points come through a Collector that scrapes; the id decides.
        known = sorted(self._base.glob(f"*/{path_part(writer.experiment)}/state/run.db"))
        ours = [path.parent.parent for path in known if _is_safe(path.parent.parent)]
        if ours:
            return ours[0]
        return run_folder(self._base, writer.experiment_name or "default", writer.experiment)


def _is_safe(folder: Path) -> bool:
    """Whether a folder of a run is this user's, in one that nobody else can exchange it in."""
    try:
        return may_hold_ours(folder.parent) and is_ours(folder)
    except OSError:
        return False


def _leave(run: LiveRun) -> None:
    """Take away what a run has only as long as somebody goes on with it."""
    with suppress(OSError):
        if run.pipelines.lacking:
            write_whole(run.folder / "state" / _UNDELIVERED, run.experiment.encode())
        else:
            (run.folder / "state" / _UNDELIVERED).unlink(missing_ok=True)
    with suppress(OSError):
        (run.folder / "state" / _OPEN).unlink(missing_ok=True)
    kept = kept_folder(run.folder)
    with suppress(OSError):
        for file in kept.iterdir():
            # What has no other name could not be linked, on a full disk; with a dot it was never finished.
            if file.lstat().st_nlink > 1 or file.is_symlink() or file.suffix:
                file.unlink()
        kept.rmdir()
