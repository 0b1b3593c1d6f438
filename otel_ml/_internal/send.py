"""Empties the spool into a transport: batches, retries for ever, counts what is refused (OTLP's rules)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import SystemRandom

from otel_ml._internal.answer import Answer, Transport
from otel_ml._internal.give_way import give_way
from otel_ml._internal.guard import Say
from otel_ml._internal.spool import Pending, Spool
from otel_ml.wire.spool import PATHS, Kind, request_body

__all__ = ["MAX_BYTES", "MAX_POINTS", "Sender", "spans_interval"]

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
"""OTLP's default; a receiver that needs longer is overloaded."""


@dataclass(slots=True)
class Batch:
    """The frames in flight, and which kinds of them have been answered.

    Attributes:
        count: the oldest frames, of which those of kind `held` wait for another batch.
    """

    count: int
    kinds: dict[Kind, list[Pending]]
    held: Kind | None
    done: set[Kind] = field(default_factory=set)


class Sender:
    """Sends one spool. Not thread-safe: only the worker's background thread calls it.

    Args:
        spans_interval: least seconds between requests with spans, as long as there are few (ADR 0018).

    Attributes:
        delivered: points acknowledged.
        refused: reason → points that the receiver will never take.
        last_error: why the newest attempt did not arrive, empty once one does.
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
        self.last_error = ""
        self.notices: int | None = None
        self.answers = 0
        self._say = say
        self._clock = clock
        self._batch: Batch | None = None
        self._failures = 0
        self._not_before = 0.0
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
            self._batch = self._batch or self._form_batch(self._held(everything=everything))
            left = deadline - self._clock()
            if left <= 0 or not self._send_batch(self.transport, self._batch, min(left, REQUEST_TIMEOUT)):
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
        are_spans_due = everything or self._clock() >= self._spans_at or self.spool.size >= MAX_BYTES // 2
        return None if are_spans_due else "S"

    def _send_batch(self, transport: Transport, batch: Batch, timeout: float) -> bool:
        for kind, frames in batch.kinds.items():
            if kind in batch.done:
                continue
            body = request_body(self.resource, _payloads(frames))
            answer = transport.post(PATHS[kind], body, timeout)
            if answer.outcome == "retry":
                self._postpone(answer)
                return False
            self._settle(kind, sum(frame.points for frame in frames), answer)
            batch.done.add(kind)
            if kind == "S":
                self._spans_at = self._clock() + self._spans_interval
            if self._batch is not batch:
                return True  # the spool dropped some of it meanwhile: what is left of it is sent again
        self.spool.acknowledge(batch.count, but=batch.held)
        self._batch = None
        return True

    def _form_batch(self, held: Kind | None) -> Batch:
        batch = Batch(0, {}, held)
        size = points = 0
        for frame in self.spool.pending:
            if frame.kind != held:
                if batch.kinds and (size + frame.length > MAX_BYTES or points + frame.points > MAX_POINTS):
                    break
                batch.kinds.setdefault(frame.kind, []).append(frame)
                size += frame.length
                points += frame.points
            batch.count += 1
        return batch

    def _postpone(self, answer: Answer) -> None:
        self.last_error = answer.reason
        if answer.is_denied:
            self._say(
                "receiver-denied",
                f"The receiver does not take the credentials of this process: {answer.reason}. What is recorded is "
                "kept on this host, and sent once it does.",
            )
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        wait = delay * _JITTER.uniform(0.5, 1.0)
        if answer.retry_after is not None:
            wait = max(wait, answer.retry_after)
        self._not_before = self._clock() + wait

    def _settle(self, kind: Kind, points: int, answer: Answer) -> None:
        self._failures = 0
        self.answers += 1
        if answer.outcome == "refused":
            self.last_error = answer.reason
            self.refused[answer.reason] += points
            self._say(
                "receiver-refused", f"The receiver refused {PATHS[kind]}: {answer.reason}. What it refused is lost."
            )
            return
        self.last_error = ""
        self.notices = answer.notices if answer.notices is not None else self.notices
        self.delivered += points - min(points, answer.rejected)
        if answer.rejected:
            self.refused["rejected"] += answer.rejected
        if answer.rejected or answer.message:
            self._say(
                "rejected-points",
                f"The receiver rejected {answer.rejected} of {PATHS[kind]}: {answer.message or 'no reason given'}",
            )


def spans_interval(flush_interval: float, world_size: int) -> float:
    """Return how long spans may wait for a request of their own, seconds.

    Examples:
        >>> spans_interval(1.0, world_size=8), spans_interval(1.0, world_size=1024)
        (0.0, 3.0)
    """
    return SPANS_AFTER * flush_interval if world_size >= MANY_RANKS else 0.0


def _payloads(frames: Iterable[Pending]) -> Iterator[bytes]:
    for frame in frames:  # thousands, after an outage
        yield frame.payload()
        give_way()
