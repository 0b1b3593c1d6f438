"""What came too late for its step is kept in `late.otlp`; what finds no room there is counted and said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from otel_ml.quantities import size
from otel_ml.variable import size_text
from otel_ml_service.aggregation.observation import Sent
from otel_ml_service.live_runs.late_file import LateFile
from otel_ml_service.live_runs.late_requests import as_request
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.telemetry import Telemetry

__all__ = ["TooLate"]

_LENGTH = "late.otlp"
"""The fact that tells how many bytes of the file belong to what is committed."""


class TooLate:
    """`late.otlp` of a run.

    Args:
        folder: of the run.
        outbox: of the run: it knows how much of the file is committed.
        limit: most bytes of the file.
        say: takes the slug of a notice, and its sentence.
    """

    def __init__(
        self, folder: Path, outbox: Outbox, limit: int, telemetry: Telemetry, say: Callable[[str, str], None]
    ) -> None:
        # A damaged `run.db` may have lost the length: then all that is whole in the file counts.
        counted = outbox.facts.get(_LENGTH, None if outbox.damage else "0")
        self._file = LateFile(folder / "late.otlp", None if counted is None else int(counted), limit)
        self._limit = limit
        self._telemetry = telemetry
        self._say = say

    def keep(self, late: Sequence[Sent]) -> dict[str, str]:
        """Append what came too late, and return the length of the file, which counts once it is committed."""
        if not late:
            return {}
        gone = self._file.gone
        # May raise where the disk is full: nothing of it counts then, and the same comes again.
        left_out = self._file.append(as_request(one).SerializeToString() for one in late)
        if self._file.gone > gone:
            self._say(
                "store-gone",
                f"late.otlp was deleted or cut by another program: {size(self._file.gone - gone)} of what came too "
                "late are lost with it.",
            )
        if left_out:
            self._telemetry.count("dropped", left_out, reason="late.otlp is full")
            self._say(
                "late-full",
                f"late.otlp has its {size_text(self._limit)} (OTEL_ML_LATE_MAX): what comes too late "
                "from now on is dropped and counted.",
            )
        return {_LENGTH: str(self._file.length)}
