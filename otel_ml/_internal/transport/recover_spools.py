"""Sends what dead writers of the job on this host have left in their spools."""

from __future__ import annotations

import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from otel_ml._internal.error_reporting import Say
from otel_ml._internal.transport.answer import Answer, Transport
from otel_ml._internal.transport.export_requests import Request, parts_of, requests_of, smaller
from otel_ml._internal.transport.send import MAX_BYTES, REQUEST_TIMEOUT
from otel_ml._internal.transport.send_errors import report_send_error, report_too_large
from otel_ml.exceptions import VersionError, WireError
from otel_ml.quantities import size
from otel_ml.wire.spool_format import PATHS, SUFFIX, UNREADABLE, Leftover, read_spool, request_body

__all__ = ["recover_spools"]


def recover_spools(
    folder: Path, transport: Transport, deadline: float, say: Say, sent: Callable[[], None] = lambda: None
) -> bool:
    """Send and delete every spool file whose writer is dead; return whether none is left.

    Files of live writers are locked by them and left alone; two processes that recover at once share the work. One that
    cannot be read, such as that of a newer otel_ml, stays and is reported.

    Args:
        folder: of the spools.
        transport: to the receiver.
        deadline: of `time.monotonic()`.
        say: told what is wrong.
        sent: called after each file that was sent: others may go meanwhile, with who empties them.
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
            # With the lock only: before, its writer may live, and go on writing.
            leftover = read_spool(path)
            # Not all of it was taken: the file stays whole, and what was taken is sent again. The service takes each
            # identity once.
            if not _send(leftover, transport, deadline, say):
                return False
            if leftover.damaged:
                renamed = path.rename(path.with_suffix(UNREADABLE))
                say("damaged-data", f"{size(leftover.damaged)} of {str(renamed)!r} are damaged; they are left out.")
            path.unlink(missing_ok=True)  # it may have another name by now
            sent()
        except (BlockingIOError, FileNotFoundError):  # another process has it, or had it a moment ago
            continue
        except (VersionError, WireError) as error:
            say(error.slug, error.sentence)
            is_done = False
        finally:
            os.close(handle)
    return is_done


def _send(leftover: Leftover, transport: Transport, deadline: float, say: Say) -> bool:
    waiting = deque(_requests(leftover))
    while waiting:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        request = waiting.popleft()
        body = request_body(leftover.resource, request.payloads())
        answer = transport.post(PATHS[request.kind], body, min(left, REQUEST_TIMEOUT))
        # At the front, in their order: frames are sent as they were written.
        if answer.outcome == "too_large" and (halves := smaller(request)):
            waiting.extendleft(reversed(halves))
        elif answer.outcome == "retry":
            report_send_error(answer, say)
            return False
        else:
            _tell(request, answer, say)
    return True


def _tell(request: Request, answer: Answer, say: Say) -> None:
    path = PATHS[request.kind]
    if answer.outcome == "too_large":
        report_too_large(request, answer, say)
    elif answer.outcome == "refused":
        say("receiver-refused", f"The receiver refused what a dead process had left ({path}): {answer.reason}.")
    elif answer.rejected:
        say(
            "rejected-points",
            f"The receiver rejected {answer.rejected} of what a dead process had left ({path}): "
            f"{answer.message or 'no reason given'}",
        )


def _requests(leftover: Leftover) -> Iterator[Request]:
    # Kind by kind, as each is posted to a path of its own; within one in the order in which they were written.
    for kind in PATHS:
        yield from requests_of(kind, parts_of(frame for frame in leftover.frames if frame.kind == kind), MAX_BYTES)
