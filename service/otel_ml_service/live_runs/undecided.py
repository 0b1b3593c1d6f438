"""A request between the journal and the engine: what it means. Its bytes are in the journal, no longer in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.receiver.decode import Decoded, Signal
from otel_ml_service.receiver.partial_success import Rejections

__all__ = ["Undecided"]


class Undecided(NamedTuple):
    """A request that is acknowledged, and not decided yet.

    Attributes:
        number: of its entry in the journal.
        size: what the bound on such requests counts it for, in bytes.
        body: reads it again, as OTLP protobuf; raises OSError where that is not possible.
    """

    number: int
    signal: Signal
    size: int
    observations: Mapping[str, Sequence[Observation]]
    rejections: Rejections
    body: Callable[[], bytes]

    @classmethod
    def of(cls, number: int, decoded: Decoded, body: Callable[[], bytes]) -> Undecided:
        """Return what is left of a decoded request once it is in the journal."""
        return cls(number, decoded.signal, decoded.size, decoded.observations, decoded.rejections, body)
