"""What the engine has decided since it was last asked: records in order, sentences once, files, late points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_ml.explanation import explained
from otel_ml_exporters.aggregation.observation import Sent
from otel_ml_exporters.records import Record

__all__ = ["Output"]

MAX_SAID = 10_000
"""Sentences remembered; a run that has said more has said enough."""


class Output:
    """Collects until `Engine.take()`.

    Attributes:
        seq: of the newest record.
        records, notices, too_late, files: what is handed over next, see `Outcome`.
        said: every sentence ever said in this run.
        fresh_said: whether `said` changed since it was committed.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.records: list[Record] = []
        self.notices: list[str] = []
        self.said: dict[str, None] = {}
        self.fresh_said = False
        self.too_late: list[Sent] = []
        self.files: dict[int, bytes] = {}

    def emit(self, kind: Callable[..., Record], **fields: Any) -> int:
        """Append a record with the next `seq`, and return that."""
        self.seq += 1
        self.records.append(kind(seq=self.seq, **fields))
        return self.seq

    def say(self, slug: str, sentence: str) -> None:
        """Say a sentence with the section of the catalogue that explains it, unless it was said before."""
        self.repeat(explained(sentence, slug))

    def repeat(self, sentence: str) -> None:
        """Say what a writer said, unless it was said before."""
        if sentence not in self.said and len(self.said) < MAX_SAID:
            self.said[sentence] = None
            self.notices.append(sentence)
            self.fresh_said = True

    def clear(self) -> None:
        """Forget what was taken."""
        self.records, self.notices, self.too_late, self.files = [], [], [], {}
