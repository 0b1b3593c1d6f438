"""The writers of this process that are open, and the run that the first one began."""

from __future__ import annotations

from typing import Protocol

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.compat.tracking.step_axes import StepCounts

__all__ = ["WRITERS", "Writer"]


class Writer(Protocol):
    """A writer, of which only the name is looked at."""

    run_name: str


class OpenWriters:
    """The writers of this process that are open, and the run they began.

    Attributes:
        sessions: names of sets of hyper-parameters after the first one; None before there is one.
    """

    def __init__(self) -> None:
        self.open: list[Writer] = []
        self.sessions: list[str] | None = None
        self.counts: StepCounts = StepCounts()
        self._begun: otel_ml.Run | None = None
        self._run_id: str | None = None

    def enter(self, writer: Writer, run_id: str | None) -> tuple[otel_ml.Run, str]:
        """Begin the run, or join it; return it with the prefix of this writer's names."""
        # A run that the program itself has begun, or one of these writers: both are joined.
        run = otel_ml.init() if RUNTIME.is_chosen else self._begin(writer, run_id)
        if run.id != self._run_id:  # the program has ended the run of the writers before
            self._run_id, self.open, self.sessions = run.id, [], None
            self.counts.forget()
        first = self.open[0] if self.open else None
        self.open.append(writer)
        # Two folders are two curves of one name in TensorBoard; here the second one's names begin with its folder.
        return run, "" if first is None or first.run_name == writer.run_name else f"{writer.run_name}/"

    def _begin(self, writer: Writer, run_id: str | None) -> otel_ml.Run:
        self._begun = otel_ml.init(name=writer.run_name, id=run_id)
        return self._begun

    def leave(
        self, writer: Writer, kind: type[BaseException] | None = None, error: BaseException | None = None
    ) -> None:
        """Close a writer; the last one ends the run that writers began, as `error` says."""
        if writer in self.open:
            self.open.remove(writer)
        # Where the program has begun the run itself there is none to end.
        if not self.open and self._begun is not None:
            begun, self._begun = self._begun, None
            begun.__exit__(kind, error, None)


WRITERS = OpenWriters()
"""The writers of this process."""
