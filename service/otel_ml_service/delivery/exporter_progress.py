"""How far one exporter is: what it has delivered and lost, and with what it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.records import Record
from otel_ml_service.delivery.failure_message import problem_of, say_failure
from otel_ml_service.delivery.losses import Losses
from otel_ml_service.delivery.refused_records import Refused

__all__ = ["PipelineStatus", "Progress"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """What `otel-ml runs` shows of an exporter.

    Attributes:
        state: `starting`, `running`, `retrying`, `failed` (cannot start), `stopped`, `unavailable` (left out).
        delivered: `seq` up to which everything is in the backend, or counted as lost.
        lost: reason → values, and records without values, that the backend will never have.
        problem: the last failure, while it lasts.
    """

    state: str
    delivered: int
    lost: Mapping[str, int] = field(default_factory=dict)
    url: str | None = None
    problem: str | None = None


class Progress:
    """Written by the thread of one exporter alone; others read `status`, which is the old or the new one.

    Args:
        name: of the exporter.
        run_id: of the run.
        delivered: the position and losses kept from before.
        mark: called with (`seq`, lost) after each batch.
        say: called with a slug of the catalogue and a sentence for a person.
        surprises: how often is tried again what no exporter should raise.
        seq_offset: called with the position that a backend tells; returns by how much its numbers are above the run's
            own, where it has records of the run from another folder.

    Attributes:
        certain: the position that the backend told, as a number of the run's own; None where it cannot tell how far it
            is.
    """

    def __init__(
        self,
        name: str,
        run_id: str,
        delivered: int,
        lost: Mapping[str, int],
        *,
        mark: Callable[[int, Mapping[str, int]], None],
        say: Callable[[str, str], None],
        surprises: int,
        seq_offset: Callable[[int], int],
    ) -> None:
        self._name = name
        self._run_id = run_id
        self._mark = mark
        self._say = say
        self._surprises = surprises
        self._seq_offset = seq_offset
        self._shift = 0
        self._losses = Losses(lost)
        self._is_gone = False
        self.certain: int | None = None
        self.status = PipelineStatus("starting", delivered, self._losses.counts)

    def change(self, **changes: object) -> None:
        """Say something else of the exporter."""
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]  # the names are checked by replace

    def resume(self, position: int | None, last_seq: int) -> None:
        """Begin with a new exporter, whose backend has everything up to `position`."""
        if position is not None:
            self._shift = self._seq_offset(position)
            position = max(0, position - self._shift)
        self.certain = position
        # The backend's word counts more than our mark: a mark is stored after the export, so it may be behind after a
        # kill, and ahead where the backend lost its end.
        if position is not None and not self._is_gone:
            self.change(delivered=min(position, last_seq))
        self._is_gone = False
        self._losses.take_back(self.status.delivered)
        self.change(lost=self._losses.counts)

    def numbered(self, records: Sequence[Record]) -> list[Record]:
        """Return records with the numbers that they have in the backend."""
        if not self._shift:
            return [*records]
        return [replace(record, seq=record.seq + self._shift) for record in records]

    def go_back(self, *, is_gone: bool) -> None:
        """Count on what the backend said it has: what it was given since may be gone with the exporter."""
        if is_gone:
            # Of all that follows the exporter leaves out what it still has.
            self._is_gone = True
            self._losses.forget()
            self.change(lost={})
            self.advance(0)
        elif self.certain is not None:
            self.advance(min(self.certain, self.status.delivered))

    def advance(self, seq: int) -> None:
        """Note that everything up to `seq` is stored, or counted as lost."""
        # First: who sees that all is delivered has to see what is not stored.
        self._mark(seq, self._losses.up_to(seq))
        self.change(delivered=seq)

    def failed(self, error: BaseException, *, state: str, is_passing: bool = True) -> None:
        """Say what it fails with, once for as long as it is the same."""
        problem = problem_of(error)
        if self.status.problem != problem:
            _log.warning("Exporter %s: %s", self._name, problem, exc_info=_is_unforeseen(error))
            tries_left = None if is_passing else self._surprises
            say_failure(self._say, self._name, error, state, tries_left=tries_left)
        self.change(state=state, problem=problem)

    def recovered(self) -> None:
        """Note that it works."""
        if self.status.problem is not None:
            self.change(state="running", problem=None)

    def quarantine(self, refused: Refused) -> None:
        """Count what the backend will never take; it stays among the run's records."""
        is_new = refused.reason not in self._losses
        self.lose(refused.seq, refused.reason, refused.values)
        _log.error("Exporter %s does not take %s: %s", self._name, refused.what, refused.reason)
        if is_new:  # what follows for the same reason is counted, and in the log
            why = refused.reason.rstrip(".")
            self._say(
                "records-refused",
                f"Exporter {self._name!r} does not take {refused.what}: {why}. It is set aside and counted as lost; "
                f"the run keeps it: otel-ml replay {self._run_id} --to {self._name} --experiment NAME",
            )

    def lose(self, seq: int, reason: str, count: int) -> None:
        """Count what the record `seq`, and those before it, had."""
        self._losses.add(seq, reason, count)
        self.change(lost=self._losses.counts)


def _is_unforeseen(error: BaseException) -> bool:
    return not isinstance(error, RetryableExportError)
