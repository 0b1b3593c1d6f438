"""Empties the spool into a transport: batches, retries for ever, counts what is refused (OTLP's rules)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import SystemRandom

from otel_ml._internal.error_reporting import Say
from otel_ml._internal.transport.answer import Answer, Transport
from otel_ml._internal.transport.export_requests import LEAST_BYTES, Request, requests_of, smaller
from otel_ml._internal.transport.send_errors import described, report_send_error, report_too_large
from otel_ml._internal.transport.spool import PendingFrame, Spool
from otel_ml.wire.spool_format import PATHS, Kind, request_body

__all__ = ["MAX_BYTES", "MAX_POINTS", "TOO_LARGE", "Sender", "spans_interval"]

MAX_BYTES = 1_000_000
MAX_POINTS = 8192
"""What a request holds at most: receivers are 20 % slower per point beyond, and gRPC's usual limit is 4 MB."""

MANY_RANKS = 128
SPANS_AFTER = 3
"""In flush intervals: in jobs of so many ranks nearly every second request would have nothing but spans (ADR 0018)."""

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds between attempts: doubled each time, with jitter, so that 1,000 ranks do not return in step."""

_JITTER = SystemRandom()
"""Of nobody else: a program's own draws, which its seed decides, must not depend on the luck of the network."""

REQUEST_TIMEOUT = 10.0
"""OTLP's default, after the last byte; a receiver that needs longer is overloaded."""

TOO_LARGE = "request_too_large"
"""Why what no request can be small enough for is lost."""

MANY_REASONS = 10
"""Ways to be refused that are told apart: a receiver may quote the number of the request."""


@dataclass(slots=True)
class Batch:
    """The frames in flight.

    Attributes:
        count: the oldest frames, of which those of kind `held` wait for another batch.
        requests: those that have not been answered.
    """

    count: int
    requests: list[Request]
    held: Kind | None


class Sender:
    """Sends one spool. Not thread-safe: only the worker's background thread calls it.

    Args:
        spans_interval: least seconds between requests with spans, as long as there are few (ADR 0018).

    Attributes:
        delivered: points acknowledged.
        refused: reason → points that the receiver will never take.
        refused_records: the same of events and spans, which are not values.
        last_error: why the newest attempt did not arrive, empty once one does. One that ran out of time, as the last
            one of a process that leaves may, says nothing against what was said before it.
        notices: how many notices the service had at the last answer; None: no otel_ml service answered.
        answers: how many requests were answered for good.
    """

    def __init__(
        self,
        spool: Spool,
        resource: bytes,
        *,
        say: Say,
        spans_interval: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spool = spool
        self.resource = resource
        self.transport: Transport | None = None
        self.delivered = 0
        self.refused: Counter[str] = Counter()
        self.refused_records: Counter[str] = Counter()
        self.last_error = ""
        self.notices: int | None = None
        self.answers = 0
        self._speak = say
        self._clock = clock
        self._batch: Batch | None = None
        self._failures = 0
        self._failing_since: float | None = None
        self._reason = ""  # of the attempts that fail, the last one that was given
        self._not_before = 0.0
        self._most = MAX_BYTES
        self._told: dict[str, set[str]] = {}
        self._spans_interval = spans_interval
        # Ranks that begin together, and whose steps end together, do not send their spans in the same second.
        self._spans_at = clock() + _JITTER.uniform(0.0, spans_interval)

    @property
    def is_waiting(self) -> bool:
        """Whether the receiver asked, or failed, and the time to try again has not come."""
        return self._clock() < self._not_before

    def hurry(self) -> None:
        """Try again at once: the process is about to leave, or there is a new receiver."""
        self._not_before = 0.0

    def send(self, deadline: float, *, everything: bool = True) -> bool:
        """Send until nothing is due, a request must be retried, or `deadline`; return whether nothing is due.

        Args:
            deadline: of the sender's clock.
            everything: spans are due, too, though their time has not come.
        """
        while self._has_due(everything=everything) and self.transport is not None and not self.is_waiting:
            try:
                self._batch = self._batch or self._form_batch(self._held(everything=everything))
                if not self._send_batch(self.transport, self._batch, deadline):
                    break
            except OSError as error:  # of the spool: a frame is read to send it, to cut it, and to tell what it held
                self.abandon_batch()
                self.spool.give_up_unreadable(error)
                if self._clock() >= deadline:
                    break
        return not self._has_due(everything=everything)

    def abandon_batch(self) -> None:
        """Form the next request anew: the receiver, or what is pending, has changed."""
        self._batch = None

    def _has_due(self, *, everything: bool) -> bool:
        held = self._held(everything=everything)
        return any(frame.kind != held for frame in self.spool.pending)

    def _held(self, *, everything: bool) -> Kind | None:
        """Return which kind of frames is not to be sent now."""
        # Where much waits, spans do not: a request of their own is then worth it (ADR 0018).
        are_spans_due = everything or self._clock() >= self._spans_at or self.spool.size >= MAX_BYTES // 2
        return None if are_spans_due else "S"

    def _send_batch(self, transport: Transport, batch: Batch, deadline: float) -> bool:
        while batch.requests:
            left = deadline - self._clock()
            if left <= 0 or not self._send_first(transport, batch, min(left, REQUEST_TIMEOUT)):
                return False
            # The spool may have dropped frames while the request was on its way (`abandon_batch`): acknowledging
            # `batch.count` would then forget frames that nobody has seen.
            if self._batch is not batch:
                return True  # the spool dropped some of it meanwhile: what is left of it is sent again
        self.spool.acknowledge(batch.count, but=batch.held)
        self._batch = None
        return True

    def _send_first(self, transport: Transport, batch: Batch, timeout: float) -> bool:
        """Post the first request of a batch; return whether it was answered for good, or is to be smaller."""
        request = batch.requests[0]
        body = request_body(self.resource, request.payloads())
        answer = transport.post(PATHS[request.kind], body, timeout)
        if answer.outcome == "retry":
            self._postpone(answer)
            return False
        if answer.outcome != "ok" and self._batch is not batch:
            return True  # what the spool has left of it is sent again
        # The limit of a proxy is not announced. It is found by halving, and kept for the requests that follow.
        if answer.outcome == "too_large" and (halves := smaller(request)):
            self._most = max(LEAST_BYTES, min(self._most, request.length // 2))
            others = [part for one in batch.requests[1:] for part in requests_of(one.kind, one.pieces, self._most)]
            batch.requests = [*halves, *others]
            return True
        self._settle(request, answer)
        del batch.requests[0]
        if request.kind == "S":
            self._spans_at = self._clock() + self._spans_interval
        return True

    def _form_batch(self, held: Kind | None) -> Batch:
        # A batch is a prefix of the spool, whatever kinds it holds: acknowledging is then one number. Kinds go to paths
        # of their own, so a batch is several requests.
        kinds: dict[Kind, list[PendingFrame]] = {}
        count = size = points = 0
        for frame in self.spool.pending:
            if frame.kind != held:
                # The first one goes in, however large: `requests_of` cuts it.
                if kinds and (size + frame.length > self._most or points + frame.points > MAX_POINTS):
                    break
                kinds.setdefault(frame.kind, []).append(frame)
                size += frame.length
                points += frame.points
            count += 1
        requests = [one for kind, frames in kinds.items() for one in requests_of(kind, frames, self._most)]
        return Batch(count, requests, held)

    def _postpone(self, answer: Answer) -> None:
        self._reason = self._reason if answer.timed_out else answer.reason
        is_known = answer.timed_out and self._reason
        self.last_error = f"{self._reason}; then {answer.reason}" if is_known else answer.reason
        now = self._clock()
        self._failing_since = now if self._failing_since is None else self._failing_since
        report_send_error(answer, partial(self._say, about=""), failing_s=now - self._failing_since)
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2**self._failures)
        # Bounded: after a night of failures 2**n would be too large for a float.
        self._failures = min(self._failures + 1, 16)
        # All ranks of a job lose a receiver at the same moment; without jitter they would all come back at the same
        # moment.
        wait = delay * _JITTER.uniform(0.5, 1.0)
        if answer.retry_after is not None:
            wait = max(wait, answer.retry_after)
        self._not_before = now + wait

    def _settle(self, request: Request, answer: Answer) -> None:
        self._failures = 0
        self._failing_since = None
        self._reason = ""
        self.answers += 1
        # All of it for now: `_count_lost()` takes off what has not arrived.
        self.delivered += request.points
        if answer.outcome == "ok":
            self._accept(request, answer)
            return
        self.last_error = answer.reason
        if answer.outcome == "too_large":
            self._count_lost(request, TOO_LARGE, request.records())
            report_too_large(request, answer, partial(self._say, about=described(request)))
        else:
            self._count_lost(request, answer.reason, request.records())
            self._say(
                "receiver-refused",
                f"The receiver refused {PATHS[request.kind]}: {answer.reason}. What it refused is lost.",
                about=answer.reason,
            )

    def _accept(self, request: Request, answer: Answer) -> None:
        self.last_error = ""
        self.notices = answer.notices if answer.notices is not None else self.notices
        if answer.rejected:
            # What a receiver says is not trusted: more than the request held would make `delivered` too small.
            self._count_lost(request, "rejected", min(answer.rejected, request.records()))
            self._say(
                "rejected-points",
                f"The receiver rejected {answer.rejected} of {PATHS[request.kind]}: "
                f"{answer.message or 'no reason given'}",
                about=answer.message,
            )
        elif answer.message:
            self._say(
                "rejected-points",
                f"The receiver took {PATHS[request.kind]}, and warns: {answer.message}",
                about=answer.message,
            )

    def _say(self, slug: str, sentence: str, *, about: str) -> None:
        """Say a sentence for the first time: what is quoted may hold a number that is new each time."""
        told = self._told.setdefault(slug, set())
        if about not in told and len(told) < MANY_REASONS:
            told.add(about)
            self._speak(slug, sentence)

    def _count_lost(self, request: Request, reason: str, records: int) -> None:
        counter = self.refused if request.kind == "M" else self.refused_records
        counter[reason if reason in counter or len(counter) < MANY_REASONS else "refused"] += records
        if request.kind == "M":
            # `_settle` has counted the whole request.
            self.delivered -= records


def spans_interval(flush_interval: float, world_size: int) -> float:
    """Return how long spans may wait for a request of their own, seconds.

    Examples:
        >>> spans_interval(1.0, world_size=8), spans_interval(1.0, world_size=1024)
        (0.0, 3.0)
    """
    return SPANS_AFTER * flush_interval if world_size >= MANY_RANKS else 0.0
