"""What a request holds that will never be accepted, and why: the `partial_success` of the answer."""

from __future__ import annotations

from collections import Counter

from otel_ml.explanation import explained

__all__ = ["Rejections", "UndecodableError"]


class UndecodableError(Exception):
    """The request is not OTLP; the sender must not send it again."""


class Rejections:
    """Counts items by reason."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.experiments: Counter[str] = Counter()
        """Experiment id → items, where the resource tells whose they are."""
        self._slugs: dict[str, None] = {}

    def add(self, reason: str, items: int = 1, *, slug: str = "rejected-points") -> None:
        """Count `items` as rejected for `reason`, a whole sentence; `slug` is its section in the catalogue."""
        self._counts[reason] += items
        self._slugs[slug] = None

    @property
    def total(self) -> int:
        """All rejected items."""
        return self._counts.total()

    @property
    def reasons(self) -> Counter[str]:
        """Reason → items."""
        return self._counts

    @property
    def message(self) -> str:
        """The reasons with their counts, the most frequent first; empty where nothing was rejected."""
        reasons = " ".join(f"{count} × {reason}" for reason, count in self._counts.most_common(5))
        return explained(reasons, " ".join(self._slugs))
