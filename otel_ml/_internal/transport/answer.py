"""What a receiver said to an export request (OTLP specification, “Failures”)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from otel_ml.wire.protobuf import fields

__all__ = ["Answer", "Transport", "accepted", "denied"]

_DENIED_RETRY_S = 30.0
"""Until a receiver that did not take the credentials is asked again (ADR 0024)."""


Obstacle = Literal["receiver-denied", "not-otlp", "other-protocol"]
"""What keeps anything from arriving: its slug."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A receiver's answer, in the ways a sender can act on.

    Attributes:
        outcome: `ok`, `retry` (the same request may succeed later), `too_large` (a smaller one may) or `refused` (it
            never will).
        reason: what is counted and said, where not `ok`.
        retry_after: seconds the receiver asks to wait.
        rejected: points of an accepted request that were not (`partial_success`), said in `message`.
        notices: how many notices the service has for the job, None where it is not an otel_ml service.
        timed_out: of a `retry`, whether nothing was said in the time that was given, which may have been short.
        obstacle: of a `retry` that a person has to put right, the section of the catalogue that says how.
    """

    outcome: Literal["ok", "retry", "too_large", "refused"]
    reason: str = ""
    retry_after: float | None = None
    rejected: int = 0
    message: str = ""
    notices: int | None = None
    timed_out: bool = False
    obstacle: Obstacle | None = None


class Transport(Protocol):
    """How requests reach a receiver. One thread at a time uses it."""

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        """Send one export request, and wait for `timeout` seconds after the receiver took the last byte of it.

        Every failure is an `Answer`.
        """

    def get(self, path: str, timeout: float) -> bytes | None:
        """Return what the otel_ml service behind the endpoint says at `path`, or None."""

    def close(self) -> None:
        """Drop the connection; the next request opens one."""

    def forget(self) -> None:
        """After a fork, in the child: let go of the parent's connection without touching it."""


def denied(reason: str) -> Answer:
    """Return the answer of a receiver that does not take the sender's credentials."""
    return Answer("retry", reason=reason, retry_after=_DENIED_RETRY_S, obstacle="receiver-denied")


def accepted(body: bytes, notices: int | None = None) -> Answer:
    """Return the answer of an `Export…ServiceResponse`, reading `partial_success` (field 1: rejected, 2: message).

    Raises:
        WireError: `body` is none.
    """
    rejected, message = 0, ""
    for number, value in fields(body):
        if number == 1 and isinstance(value, bytes):
            for inner, said in fields(value):
                if inner == 1 and isinstance(said, int):
                    # The field is an int64, so a larger one is negative: that is not a count.
                    rejected = said if said < 2**63 else 0
                elif inner == 2 and isinstance(said, bytes):
                    message = said.decode("utf-8", "replace")
    return Answer("ok", rejected=rejected, message=message, notices=notices)
