"""Spools of workers that are gone: what they recorded and could not send is taken in (embedded mode)."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

from otel_ml.exceptions import VersionError, WireError
from otel_ml.explanation import explained
from otel_ml.quantities import size
from otel_ml.wire.spool_format import PATHS, SUFFIX, UNREADABLE, Frame, Kind, Leftover, read_spool, request_body
from otel_ml_service.receiver.decode import Decoded, Signal
from otel_ml_service.receiver.partial_success import UndecodableError

__all__ = ["Left", "LeftoverSpools", "requests_of"]

Left = Literal["nothing", "a spool", "being taken in"]
"""What a dead writer has left: a spool that is to be looked at, one that is taken in, or waits for a disk."""

_log = logging.getLogger(__name__)

_EVERY_S = 2.0
"""How often the folder is looked at: a rank that was killed leaves its spool in the middle of a run."""

_REQUEST_BYTES = 4 * 2**20
"""Of a request that is made of frames: a spool of hundreds of megabytes is not in the queue as one."""

_STORED_S = 60.0
"""Seconds the journal may take for a request, as on a disk that hangs; then the spool is tried again, as a whole."""


class LeftoverSpools:
    """Watches a spool folder on its own thread.

    Args:
        folder: of the rendezvous.
        take: sends a request on; its future is done when that is in the journal.
        taken_in: called once what the dead had left at the start is in the journal. The living are to be heard later:
            of two incarnations of a rank, the one that is heard first is the older one.

    Attributes:
        taken: spools that were taken in.
    """

    def __init__(
        self, folder: Path, take: Callable[[Signal, bytes], Future[Decoded]], taken_in: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._take = take
        self._taken_in = taken_in
        self.taken = 0
        self._told: set[Path] = set()
        self._is_taking = False
        """Whether a file is on its way into the journal: one goes after the other."""
        self._is_refused = False
        """Whether the journal took nothing at the last try: its disk is full, it is behind."""
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._work, name="otel-ml-spools", daemon=True)

    def start(self) -> None:
        """Start watching."""
        # Nobody has died before: the job need not wait for the thread to look.
        if not self._folder.exists() or not any(self._folder.iterdir()):
            self._say_taken_in()
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; safe twice."""
        self._stopping.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join(_STORED_S)

    def sweep(self) -> int:
        """Take in every spool whose writer is gone; return how many."""
        return sum(self._adopted(path) for path in sorted(self._folder.glob(f"*{SUFFIX}")))

    def left(self, instance: str) -> Left:
        """Return what a dead writer has left; what waits to be looked at is looked at now."""
        try:
            is_left = any(
                path.suffix == SUFFIX and path.name.startswith(f"{instance}-") for path in self._folder.iterdir()
            )
        except OSError:
            return "nothing"
        if not is_left:
            return "nothing"
        self._woken.set()
        return "being taken in" if self._is_taking or self._is_refused else "a spool"

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self.sweep()
                self._is_refused = False
            except Exception:  # noqa: BLE001 (whatever it is, the file stays and is tried again)
                self._is_refused = True
                _log.exception("The spools in %s cannot be taken in now.", self._folder)
            try:
                self._say_taken_in()
            except OSError as error:  # else this thread ends: no process finds the service, and no spool is taken in
                self._say_once(self._folder, explained(f"No process can be told yet where to send: {error}", "storage"))
            self._woken.wait(_EVERY_S)
            if not self._stopping.is_set():
                self._woken.clear()

    def _say_taken_in(self) -> None:
        self._taken_in()
        self._taken_in = lambda: None

    def _adopted(self, path: Path) -> bool:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:  # the others must not wait for it: theirs are looked at after it
            self._say_once(path, explained(f"The spool {path} cannot be read now: {error}", "storage"))
            return False
        try:
            # A live writer holds the lock; whoever gets it owns the file.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_taking = True
            leftover = read_spool(path)
            # What fails in the middle comes again as a whole: the engine takes each identity once.
            for signal, body in requests_of(leftover):
                # One after the other: the journal has the spool in its own order.
                self._take(signal, body).result(_STORED_S)
            if leftover.damaged:
                renamed = path.rename(path.with_suffix(UNREADABLE))
                _log.error("%s", explained(f"{size(leftover.damaged)} of {renamed} are damaged.", "damaged-data"))
            # All of it is in the journal by now: until then this is the only copy.
            path.unlink(missing_ok=True)
        except VersionError as error:
            self._say_once(path, str(error))
            return False
        except (UndecodableError, WireError) as error:
            _log.error("%s", explained(f"The spool {path} is set aside: {error}", "damaged-file"))
            path.rename(path.with_suffix(UNREADABLE))
            return False
        except BlockingIOError:
            return False
        finally:
            self._is_taking = False
            os.close(handle)
        self.taken += 1
        _log.info("Took in %s, which its writer could not send.", path.name)
        return True

    def _say_once(self, path: Path, sentence: str) -> None:
        if path not in self._told:
            self._told.add(path)
            _log.error("%s", sentence)


def requests_of(leftover: Leftover) -> Iterator[tuple[Signal, bytes]]:
    """Yield the requests of a spool, in the order in which it was written."""
    group: list[Frame] = []
    size = 0
    for frame in leftover.frames:
        # A request is of one signal.
        if group and (frame.kind != group[0].kind or size + len(frame.payload) > _REQUEST_BYTES):
            yield _request(leftover.resource, group)
            group, size = [], 0
        group.append(frame)
        size += len(frame.payload)
    if group:
        yield _request(leftover.resource, group)


def _request(resource: bytes, frames: Sequence[Frame]) -> tuple[Signal, bytes]:
    return _SIGNALS[frames[0].kind], request_body(resource, (frame.payload for frame in frames))


_SIGNALS: dict[Kind, Signal] = {"M": "metrics", "S": "traces", "L": "logs"}
assert _SIGNALS.keys() == PATHS.keys()
