"""Looks for the files of artifacts on a thread of its own: hashing takes seconds a GB, in which steps go on closing."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from queue import SimpleQueue

from otel_ml_exporters.records import Artifact
from otel_ml_service.aggregation.output import NamedFile
from otel_ml_service.live_runs.artifact_store import StoppedError, found_file
from otel_ml_service.storage.record_codec import decode, encode

__all__ = ["ArtifactThread"]

_log = logging.getLogger(__name__)


class ArtifactThread:
    """The artifacts of one run whose files are looked for, in order. It belongs to the engine's thread.

    Args:
        folder: of the run.
        stored: what a predecessor had not found yet, see `stored`.
    """

    def __init__(self, folder: Path, stored: str = "") -> None:
        self._folder = folder
        self._waiting: deque[NamedFile] = deque()
        self._stored = "[]"
        self._asked: SimpleQueue[NamedFile | None] = SimpleQueue()
        self._found: SimpleQueue[Artifact] = SimpleQueue()
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.look_for(map(_named, json.loads(stored or "[]")))

    @property
    def waiting(self) -> int:
        """How many are looked for; any thread may ask."""
        return len(self._waiting)

    @property
    def stored(self) -> str:
        """Those that are not taken yet, for the next start."""
        # Empty where something has changed since: each commit asks for it.
        if not self._stored:
            of_each = [(*encode(file.artifact)[:2], file.kept, file.modified_ns) for file in self._waiting]
            self._stored = json.dumps(of_each)
        return self._stored

    def look_for(self, files: Iterable[NamedFile]) -> None:
        """Look for files after those that are looked for already."""
        for file in files:
            self._waiting.append(file)
            self._stored = ""
            self._asked.put(file)
        self._start()

    def _start(self) -> None:
        """Start the thread where there is something to look for; where the host has no thread left, with the next."""
        if not self._waiting or self._thread is not None:
            return
        thread = threading.Thread(target=self._work, name="otel-ml-files", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.warning("Files of artifacts are not looked for yet: %s", error)
        else:
            self._thread = thread

    def take(self) -> Iterable[Artifact]:
        """Yield those that were found, or proved to be references."""
        self._start()
        # Nobody else takes anything out: what is not empty stays so.
        while not self._found.empty():
            # One thread takes them from one queue, so they are found in the order of `_waiting`.
            yield self._found.get()
            self._waiting.popleft()
            self._stored = ""

    def close(self) -> None:
        """Look no further; what is not taken is in `stored`."""
        self._is_stopping.set()
        # For a thread that waits for the next file; one that reads a file asks the event after each piece.
        self._asked.put(None)

    def _work(self) -> None:
        while (file := self._asked.get()) is not None and not self._is_stopping.is_set():
            try:
                self._found.put(found_file(file, self._folder, lambda: not self._is_stopping.is_set()))
            except StoppedError:
                return
            except Exception:  # noqa: BLE001 (a user's file system fails in any way: the artifact is a reference)
                _log.exception("The file %s cannot be kept.", file.artifact.uri)
                self._found.put(file.artifact)


def _named(stored: tuple[str, str, str, int]) -> NamedFile:
    kind, text, kept, modified_ns = stored
    artifact = decode((kind, text, None))
    assert isinstance(artifact, Artifact)
    return NamedFile(artifact, kept, modified_ns)
