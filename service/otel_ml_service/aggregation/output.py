"""What the engine has decided since it was last asked: records in order, sentences once, files, late points."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from otel_ml.explanation import explained
from otel_ml_exporters.records import Artifact, Record
from otel_ml_service.aggregation.observation import Sent

__all__ = ["NamedFile", "Output"]

MAX_SAID = 10_000
"""Sentences remembered; a run that has said more has said enough."""


class NamedFile(NamedTuple):
    """An artifact whose file did not come with it: it is looked for, which may take long, before it is a record.

    Attributes:
        artifact: as it was announced; its `seq` is given later.
        kept: the name that the worker gave the file for the service of its host, or "".
        modified_ns: when the file that is meant was written last, where `kept` says which it is.
    """

    artifact: Artifact
    kept: str = ""
    modified_ns: int = 0


class Output:
    """Collects until `Engine.take()`.

    Attributes:
        seq: of the newest record.
        records, notices, too_late, files, named: what is handed over next, see `Outcome`.
        awaited: artifacts of `named`, of earlier outcomes too, that have not come back.
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
        self.named: list[NamedFile] = []
        self.awaited = 0

    def name(self, file: NamedFile) -> None:
        """Have a file looked for; its artifact comes back by `found()`."""
        self.named.append(file)
        self.awaited += 1

    def expect(self, artifacts: int) -> None:
        """Wait for artifacts that an earlier service had named; they come back by `found()`."""
        self.awaited += artifacts

    def found(self, artifact: Artifact) -> None:
        """Append an artifact that was looked for."""
        self.awaited -= 1
        self.add(artifact)

    def add(self, artifact: Artifact) -> int:
        """Append an artifact with the next `seq`, and return that."""
        self.seq += 1
        self.records.append(replace(artifact, seq=self.seq))
        return self.seq

    def emit(self, kind: Callable[..., Record], **fields: Any) -> int:
        """Append a record with the next `seq`, and return that."""
        self.seq += 1
        self.records.append(kind(seq=self.seq, **fields))
        return self.seq

    def say(self, slug: str, sentence: str) -> None:
        """Say a sentence with the section of the catalogue that explains it, unless it was said before."""
        self.repeat(explained(sentence, slug))

    def say_first(self, slug: str, sentence: str) -> None:
        """Say a sentence, unless one of that section was said before: the first of a kind stands for all."""
        mark = explained("", slug)
        if not any(said.endswith(mark) for said in self.said):
            self.say(slug, sentence)

    def repeat(self, sentence: str) -> None:
        """Say what a writer said, unless it was said before."""
        if sentence not in self.said and len(self.said) < MAX_SAID:
            self.said[sentence] = None
            self.notices.append(sentence)
            self.fresh_said = True

    def note_committed(self) -> None:
        """Note that everything said is committed."""
        self.fresh_said = False

    def number_after(self, seq: int) -> None:
        """Go on with the numbers of records after `seq`."""
        self.seq = seq

    def restore_said(self, sentences: Iterable[str]) -> None:
        """Know again what was said."""
        self.said = dict.fromkeys(sentences)

    def clear(self) -> None:
        """Forget what was taken."""
        self.records, self.notices, self.too_late, self.files, self.named = [], [], [], {}, []
