"""What a process of a run failed with, or was killed in, as its text says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from otel_ml.quantities import seconds
from otel_ml_exporters.records import Text
from otel_ml_service.aggregation.failures import FAILURE, KILLED, NOT_KILLED, place_in, who_failed

__all__ = ["Failure", "failure_lines", "failure_of"]

_NAME = re.compile(rf"(?:(?P<role>.+)/)?(?P<how>{re.escape(FAILURE)}|{re.escape(KILLED)})(?:/rank_(?P<rank>\d+))?")

_SHOWN = 3
"""Of many ranks most fail because the first one did."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a process' part of a run: an exception, or a kill.

    Attributes:
        time: seconds since the epoch, by the clock of its host.
        step: the one that the process was in, or was in last; None before the first.
        what: type and message, in one line.
        place: where it was raised, `train.py:88 in step`; "" where nothing tells.
        text: Markdown, with the whole traceback.
        was_killed: it said nothing; `what` is what it was in, as far as that is known.
    """

    time: float
    role: str
    rank: int
    axis: str
    step: int | None
    what: str
    place: str
    text: str
    was_killed: bool = False

    @property
    def takes_back(self) -> bool:
        """Whether it says that the process was not killed, of which that was said."""
        return self.was_killed and self.text == NOT_KILLED

    @property
    def sentence(self) -> str:
        """Who failed, where, and with what."""
        step = "" if self.step is None else f" at {self.axis} {self.step}"
        place = f" ({self.place})" if self.place else ""
        how = f"was killed{step}{self._was_in}" if self.was_killed else f"failed{step}: {self.what}{place}"
        return f"{who_failed(self.role, self.rank)} {how}"

    @property
    def _was_in(self) -> str:
        return self.what.partition(". ")[0].removeprefix("Killed").removesuffix(".")


def failure_of(record: Text) -> Failure | None:
    r"""Return the failure that a text tells of, if it is such a text.

    Examples:
        >>> text = "RuntimeError: no memory\n\n      File \"/job/train.py\", line 88, in step\n"
        >>> failure_of(Text(9, 1.5, "generator/otel_ml/failure/rank_3", "step", 412, text)).sentence
        'Rank 3 of generator failed at step 412: RuntimeError: no memory (train.py:88 in step)'
        >>> text = "Killed in forward, 12 s after it began. Nothing was heard of it since."
        >>> failure_of(Text(9, 1.5, "otel_ml/killed/rank_3", "step", 412, text)).sentence
        'Rank 3 was killed at step 412 in forward, 12 s after it began'
    """
    name = _NAME.fullmatch(record.name)
    if name is None:
        return None
    what = " ".join(record.text.partition("\n\n")[0].split())
    role, rank, place = name["role"] or "trainer", int(name["rank"] or 0), place_in(record.text)
    was_killed = name["how"] == KILLED
    return Failure(record.time, role, rank, record.axis, record.step, what, place, record.text, was_killed)


def failure_lines(failures: Iterable[Failure]) -> list[str]:
    """Return a line for each of the first that failed, in the order of time.

    Examples:
        >>> first = Failure(5.0, "trainer", 3, "step", 412, "RuntimeError: no memory", "train.py:88 in step", "")
        >>> second = Failure(35.5, "trainer", 0, "step", 412, "TimeoutError", "", "")
        >>> for line in failure_lines([second, first]):
        ...     print(line)
        Rank 3 failed at step 412: RuntimeError: no memory (train.py:88 in step)
        30.5 s later: Rank 0 failed at step 412: TimeoutError
    """
    ordered = sorted(failures, key=lambda failure: failure.time)
    lines = [
        failure.sentence if not number else f"{seconds(failure.time - ordered[0].time)} later: {failure.sentence}"
        for number, failure in enumerate(ordered[:_SHOWN])
    ]
    more = len(ordered) - len(lines)
    return [*lines, f"… and {more:,} more"] if more else lines
