"""What a request holds that will never be accepted, and why: the `partial_success` of the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from otel_ml.explanation import explained

__all__ = ["Rejections", "UndecodableError"]


_LONGEST = 300
"""Characters of a reason: an answer, a log line and a label must not be a copy of a hostile request."""

_REASONS = 50
"""Reasons of one request that are told apart."""

_OTHER = "further reasons are not told apart."


class UndecodableError(Exception):
    """The request is not OTLP; the sender must not send it again."""


class Rejections:
    """Counts items by reason.

    Attributes:
        experiments: experiment id → items, where the resource tells whose they are.
    """

    # Every request has one, and nearly none rejects anything: two `Counter`s were 2 % of the service's time.
    __slots__ = ("_counts", "_slugs", "experiments")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._slugs: dict[str, None] = {}
        self.experiments: dict[str, int] = {}

    def add(self, reason: str, items: int = 1, *, slug: str = "rejected-points") -> None:
        """Count `items` as rejected for `reason`, a whole sentence; it may quote what was sent, and is cut then.

        `slug` is its section in the catalogue.
        """
        reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"
        if reason not in self._counts and len(self._counts) >= _REASONS:
            reason = _OTHER
        self._counts[reason] = self._counts.get(reason, 0) + items
        self._slugs[slug] = None

    def blame(self, experiment: str, items: int) -> None:
        """Note that `items` of those counted are of this run."""
        self.experiments[experiment] = self.experiments.get(experiment, 0) + items

    @property
    def total(self) -> int:
        """All rejected items."""
        return sum(self._counts.values())

    @property
    def reasons(self) -> Mapping[str, int]:
        """Reason → items."""
        return self._counts

    @property
    def message(self) -> str:
        """The reasons with their counts, the most frequent first; empty where nothing was rejected."""
        reasons = " ".join(f"{count} × {reason}" for reason, count in Counter(self._counts).most_common(5))
        return explained(reasons, " ".join(self._slugs))
