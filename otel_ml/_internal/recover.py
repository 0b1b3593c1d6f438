"""Sends what dead writers of the job on this host have left in their spools."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from otel_ml._internal.answer import Transport
from otel_ml._internal.guard import Say
from otel_ml._internal.send import MAX_BYTES, REQUEST_TIMEOUT
from otel_ml.exceptions import VersionError, WireError
from otel_ml.wire.spool import PATHS, SUFFIX, Frame, Leftover, read_spool, request_body

__all__ = ["recover_spools"]


def recover_spools(folder: Path, transport: Transport, deadline: float, say: Say) -> bool:
    """Send and delete every spool file whose writer is dead; return whether none is left.

    Files of live writers are locked by them and left alone; two processes that recover at once share the work. One that
    cannot be read, such as that of a newer otel_ml, stays and is said.
    """
    is_done = True
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if time.monotonic() >= deadline:
            return False
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # sent and deleted meanwhile
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _send(read_spool(path), transport, deadline, say):
                return False
            path.unlink(missing_ok=True)
        except BlockingIOError:
            continue
        except (VersionError, WireError) as error:
            say(error.slug, error.sentence)
            is_done = False
        finally:
            os.close(handle)
    return is_done


def _send(leftover: Leftover, transport: Transport, deadline: float, say: Say) -> bool:
    for kind in PATHS:
        for batch in _batches([frame for frame in leftover.frames if frame.kind == kind]):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            body = request_body(leftover.resource, [frame.payload for frame in batch])
            answer = transport.post(PATHS[kind], body, min(left, REQUEST_TIMEOUT))
            if answer.outcome == "retry":
                if answer.is_denied:
                    say("receiver-denied", f"The receiver does not take the credentials: {answer.reason}.")
                return False
            if answer.outcome == "refused":
                say(
                    "receiver-refused",
                    f"The receiver refused what a dead process had left ({PATHS[kind]}): {answer.reason}.",
                )
    return True


def _batches(frames: Sequence[Frame]) -> Iterator[list[Frame]]:
    batch: list[Frame] = []
    size = 0
    for frame in frames:
        if batch and size + len(frame.payload) > MAX_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(frame)
        size += len(frame.payload)
    if batch:
        yield batch
