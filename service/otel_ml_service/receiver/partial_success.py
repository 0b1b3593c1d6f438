"""What a request holds that will never be accepted, and why: the `partial_success` of the answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from otel_ml.explanation import explained
from otel_ml_service.aggregation.observation import Writer

__all__ = ["Rejected", "Rejections", "Unacceptable", "UndecodableError", "sender_of"]


_LONGEST = 300
"""Characters of a reason: an answer, a log line and a label must not be a copy of a hostile request."""

_REASONS = 50
"""Reasons of one request that are told apart."""

_OTHER = "further reasons are not told apart."


class UndecodableError(Exception):
    """The request is not OTLP; the sender must not send it again."""


class Unacceptable(NamedTuple):
    """A resource of which nothing can be taken.

    Attributes:
        experiment: id of the run, "" where it is not known.
        sender: who it is, for people.
    """

    experiment: str
    sender: str
    reason: str


class Rejected(NamedTuple):
    """What somebody is told about items that were rejected: whose they are, and why."""

    experiment: str
    sender: str
    reason: str
    slug: str

    @property
    def kind(self) -> tuple[str, str]:
        """The sender, and the reason without what it quotes: a text, a whole number or another one."""
        return self.sender, _DIGITS.sub("0", _QUOTED.sub("''", self.reason))

    @property
    def sentence(self) -> str:
        """All of it, for a log or a run."""
        return explained(f"What {self.sender} sends is rejected, and lost: {self.reason}", self.slug)


# The backslash only keeps its quote apart from the three that end the literal.
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_DIGITS = re.compile(r"\d+")

_LONGEST_NAME = 100
"""Characters of a sender's name that are shown."""


def sender_of(service: str, instance: str, host: str) -> str:
    """Return how a sender is called in a sentence."""
    named = (("instance", instance), ("host", host))
    details = ", ".join(f"{what} {name[:_LONGEST_NAME]}" for what, name in named if name)
    who = service[:_LONGEST_NAME] or "a sender without service.name"
    return f"{who} ({details})" if details else who


class Rejections:
    """Counts items by reason.

    Attributes:
        experiments: experiment id → items, where the resource tells whose they are.
        told: for people → items; as many as reasons are told apart.
        sender: whose items are being looked at.
    """

    # Every request has one, and nearly none rejects anything: two `Counter`s were 2 % of the service's time.
    __slots__ = ("_counts", "_slugs", "experiments", "sender", "told")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._slugs: dict[str, None] = {}
        self.experiments: dict[str, int] = {}
        self.told: dict[Rejected, int] = {}
        self.sender: Writer | Unacceptable | None = None

    def add(self, reason: str, items: int = 1, *, slug: str = "rejected-points") -> None:
        """Count `items` as rejected for `reason`, a whole sentence; it may quote what was sent, and is cut then.

        `slug` is its section in the catalogue.
        """
        reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"
        if reason not in self._counts and len(self._counts) >= _REASONS:
            reason = _OTHER
        self._counts[reason] = self._counts.get(reason, 0) + items
        self._slugs[slug] = None
        if self.sender is not None and items:
            self._blame(self.sender, reason, items, slug)

    def _blame(self, sender: Writer | Unacceptable, reason: str, items: int, slug: str) -> None:
        experiment = sender.experiment
        if experiment:
            self.experiments[experiment] = self.experiments.get(experiment, 0) + items
        named = sender.sender if isinstance(sender, Unacceptable) else _named(sender)
        rejected = Rejected(experiment, named, reason, slug)
        if rejected in self.told or len(self.told) < _REASONS:
            self.told[rejected] = self.told.get(rejected, 0) + items

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


def _named(writer: Writer) -> str:
    is_substitute = writer.instance.startswith(f"{writer.host}/")  # of a sender that gives none (resource.py)
    return sender_of(writer.role, "" if is_substitute else writer.instance, writer.host)
