"""From a transport's bytes to an acknowledgement: decode, bound, store.

Both transports go through here, so that both give the same verdicts. A request is acknowledged when
it is stored: its bytes are then in the journal, on the disk.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from hashlib import sha256

from otel_ml_service.receiver.decode import NO_ALIASES, Decoded, Decoder, Signal
from otel_ml_service.receiver.partial_success import Rejections
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.receiver.resource import PROBED
from otel_ml_service.telemetry import Telemetry

__all__ = ["MAX_REQUEST", "Admission", "OverloadedError", "Stored"]

MAX_REQUEST = 64 * 2**20
"""Bytes of one request, uncompressed: what the OTLP specification recommends receivers to take."""

RETRY_AFTER_S = 1
"""What an overloaded service asks for; the engine drains 256 MiB in a few seconds."""


_IN_PART = 4_096
"""Requests of which it is remembered that some of their runs are stored, and which: they come again as a whole."""


class OverloadedError(Exception):
    """The service holds as much as it may; the sender should come back."""


Stored = Callable[[Decoded, Exception | None], None]
"""Told that a request is in the journal, or why not."""


class Admission:
    """Takes requests while what is acknowledged and not yet decided stays below a limit: in memory and on disk.

    Args:
        store: appends a request to the journal, and tells when it is on the disk.
        telemetry: counts what is refused and rejected.
        has_capacity: tells whether the runs of a request are known, or there is room for them.
        held_back: tells why a run of a request is not taken now; "" where all are.
        limit: bytes of requests that are acknowledged, or about to be, and not decided (`Decoded.size`).
        aliases: attributes of others that are read as ours.
        refusals: told whose points of no run are rejected.
    """

    def __init__(
        self,
        store: Callable[[Decoded, Stored], None],
        telemetry: Telemetry,
        limit: int,
        has_capacity: Callable[[Iterable[str]], bool] = lambda experiments: True,
        held_back: Callable[[Iterable[str]], str] = lambda experiments: "",
        refusals: RefusalLog | None = None,
        aliases: Mapping[str, str] = NO_ALIASES,
    ) -> None:
        self._store = store
        self._has_capacity = has_capacity
        self._held_back = held_back
        self._refusals = refusals or RefusalLog()
        self._telemetry = telemetry
        self._limit = limit
        self._decoder = Decoder(aliases)
        # Guards _held: transports add, the engine's thread subtracts.
        self._lock = threading.Lock()
        self._held = 0
        self._in_part: OrderedDict[bytes, frozenset[str]] = OrderedDict()

    def take(self, signal: Signal, body: bytes, stored: Stored, *, json: bool = False) -> None:
        """Decode a request and send it to the journal; `stored` is called once, on any thread, unless this raises.

        Where some of its runs are not taken now, the others are all the same, and `stored` is told to come back
        (docs/protocol.md §4.14).

        Raises:
            UndecodableError: it is not OTLP.
            OverloadedError: come back later.
        """
        # The bound is on what is acknowledged and not yet decided, in memory and on the disk. What a request means may
        # be larger than its bytes: that is known once it is decoded.
        if self._held and self._held + len(body) > self._limit:  # alone, one that is larger would never get in
            self._telemetry.count("refused", reason="overloaded")
            raise OverloadedError("The service is behind with its work. Send the same request again later.")
        decoded = self._decoder.json(signal, body) if json else self._decoder.protobuf(signal, body)
        # Only while there are such requests is it worth the digest of every body.
        known = _digest(decoded) if self._in_part else b""
        if known:
            decoded = self._rest(decoded, known)
        if (obstacle := self._obstacle(decoded.observations)) is not None:
            self._take_some(decoded, stored, known or _digest(decoded), *obstacle)
            return
        # Nothing is to be stored. Where the run of what is rejected is known, the run has to tell of it: that goes on.
        if not decoded.observations and not decoded.rejections.experiments:
            self._acknowledge(stored, decoded)
            return
        # Held before it is stored: the engine may have decided it before `store` returns.
        self._hold(decoded.size)
        self._store(decoded, partial(self._settle, stored, known))

    def _note(self, rejections: Rejections) -> None:
        """Count what is rejected, and write it down; a probe is an answer to a question, and no loss."""
        for reason, points in rejections.reasons.items():
            if reason == PROBED:
                self._telemetry.count("probes", points)
            else:
                self._telemetry.count("rejected", points, reason=reason)
        for rejected in rejections.told:
            if not rejected.experiment and rejected.reason != PROBED:  # of a known one the run tells
                self._refusals.reject(rejected)

    def future(self, signal: Signal, body: bytes) -> Future[Decoded]:
        """Do as `take` does, for who waits on a thread of its own: the future has what was stored, or why not."""
        found: Future[Decoded] = Future()

        def stored(decoded: Decoded, error: Exception | None) -> None:
            if error is None:
                found.set_result(decoded)
            else:
                found.set_exception(error)

        self.take(signal, body, stored)
        return found

    def again(self, signal: Signal, body: bytes) -> Decoded:
        """Decode what a predecessor has acknowledged; its bytes stay in memory.

        Raises:
            UndecodableError: it has been damaged since.
        """
        decoded = self._decoder.protobuf(signal, body)
        decoded = decoded._replace(size=decoded.size + len(body))
        self._hold(decoded.size)
        return decoded

    def of_runs(self, signal: Signal, body: bytes, experiments: Container[str]) -> bytes:
        """Return what of a request is of some runs, as OTLP."""
        return self._decoder.part(Decoded(signal, body, {}, Rejections()), experiments).body

    def digested(self, size: int) -> None:
        """Note that requests of this size are decided and committed."""
        self._hold(-size)

    @property
    def held(self) -> int:
        """Bytes of what is acknowledged, or about to be, and not decided and committed yet (`Decoded.size`)."""
        # A number that is read at once needs no lock; it may be another one a moment later.
        return self._held

    def _obstacle(self, experiments: Iterable[str]) -> tuple[str, str] | None:
        """Return why one of these runs is not taken now: the label of the reason, and the sentence."""
        if why := self._held_back(experiments):
            return "run of another version", why
        if not self._has_capacity(experiments):
            said = "The service has as many open runs as it may. Send again when one of them has ended."
            return "too many runs", said
        return None

    def _rest(self, decoded: Decoded, known: bytes) -> Decoded:
        """Return what of a request is not stored yet: some of its runs may have been taken before others could be."""
        with self._lock:
            before = self._in_part.get(known, frozenset())
        if not before:
            return decoded
        rest = self._decoder.part(decoded, decoded.observations.keys() - before)
        # `part` leaves them out, and the answer to this request names them.
        return rest._replace(rejections=decoded.rejections)

    def _take_some(self, decoded: Decoded, stored: Stored, known: bytes, reason: str, why: str) -> None:
        """Store what of a request is of runs that are taken; then its sender is told to come back with all of it.

        Raises:
            OverloadedError: there is nothing of such a run.
        """
        self._telemetry.count("refused", reason=reason)
        taken = frozenset(of for of in decoded.observations if self._obstacle([of]) is None)
        self._obstacle(decoded.observations.keys() - taken)  # the last answer is what the runs remember
        if not taken:
            raise OverloadedError(why)
        part = self._decoder.part(decoded, taken)

        def settle(part: Decoded, error: Exception | None) -> None:
            if error is None:
                # It stays held until the engine has decided it (`digested`).
                self._note_in_part(known, taken)
            else:
                self._hold(-part.size)
            stored(part, error or OverloadedError(why))

        self._hold(part.size)
        self._store(part, settle)

    def _note_in_part(self, known: bytes, taken: frozenset[str]) -> None:
        with self._lock:
            self._in_part[known] = self._in_part.pop(known, frozenset()) | taken
            if len(self._in_part) > _IN_PART:
                self._in_part.popitem(last=False)

    def _settle(self, stored: Stored, known: bytes, decoded: Decoded, error: Exception | None) -> None:
        if error is None:
            if known:  # all of it is stored: should it come once more, its points are recognized
                with self._lock:
                    self._in_part.pop(known, None)
            self._acknowledge(stored, decoded)
        else:
            self._hold(-decoded.size)
            stored(decoded, error)

    def _acknowledge(self, stored: Stored, decoded: Decoded) -> None:
        # Only now: what could not be stored comes again as a whole, and would be counted each time.
        self._note(decoded.rejections)
        self._telemetry.count("requests", signal=decoded.signal)
        stored(decoded, None)

    def _hold(self, size: int) -> None:
        with self._lock:
            self._held += size


def _digest(decoded: Decoded) -> bytes:
    return sha256(decoded.body).digest()
