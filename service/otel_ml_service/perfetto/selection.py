"""Which part of a run is asked for, and what of it is found there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml_exporters.records import Record, StepRecord, Table, Text
from otel_ml_service.perfetto.span_table import SpanTable
from otel_ml_service.stored_runs.read_spans import SpanRow

__all__ = ["Found", "Steps", "gather"]

_LAST_NS = 2**63 - 1

_HELD = 20_000
"""Of what is beside the steps, until it is known when these were: of more the run is read again."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps from `first` to `last` of an axis, of one role or of all.

    Examples:
        >>> some = Steps("step", 48, 52)
        >>> some.has("step", 50), some.has("rollout", 50), Steps("step").has("step", 9)
        (True, False, True)
    """

    axis: str
    first: int = 0
    last: int | None = None
    role: str | None = None

    def has(self, axis: str | None, step: int | None) -> bool:
        """Whether something at a step is asked for by that."""
        if axis != self.axis or step is None:
            return False
        return self.first <= step and (self.last is None or step <= self.last)

    @property
    def is_all(self) -> bool:
        """Whether the whole run is asked for."""
        return not self.first and self.last is None


class Point(NamedTuple):
    """Where a published value belongs: a name on an axis, at a step of an attempt."""

    name: str
    axis: str
    step: int
    attempt: int


class Value(NamedTuple):
    """A published value, and when its step was."""

    time_ns: int
    value: float


@dataclass
class Found:
    """What there is of these steps, and what happened at that time on other axes and without a step.

    Attributes:
        spans: those of the steps, those of another axis or of none at that time, and those they link to.
        values: of published metrics; a correction replaces the value, not its time.
        texts: recorded then.
        findings: the newest table of each name.
        begin_ns, end_ns: when the steps were.
        axes: axis → first and last step of the run.
        roles: all of the run.
        without_time: spans whose times cannot be.
    """

    spans: SpanTable = field(default_factory=SpanTable)
    values: dict[Point, Value] = field(default_factory=dict)
    texts: list[Text] = field(default_factory=list)
    findings: dict[str, Table] = field(default_factory=dict)
    begin_ns: int = _LAST_NS
    end_ns: int = 0
    axes: dict[str, tuple[int, int]] = field(default_factory=dict)
    roles: set[str] = field(default_factory=set)
    without_time: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing at all."""
        return not (self.spans.count or self.values)

    def is_then(self, begin_ns: float, end_ns: float) -> bool:
        """Whether something overlaps the steps in time."""
        return begin_ns <= self.end_ns and end_ns >= self.begin_ns


def gather(read: Callable[[], Iterable[SpanRow | Record]], steps: Steps, check: Callable[[int], None]) -> Found:
    """Return what there is of these steps.

    Args:
        read: reads the run; called again where steps link to something, or much is on another axis or on none: when the
            steps were, and what they link to, is known then.
        steps: that are asked for.
        check: is told how many spans there are, and raises where these are too many.
    """
    gathered = _Gathered(steps, check)
    for item in read():
        gathered.take(item)
    if gathered.is_more:
        for item in gathered.held or read():
            gathered.take_then(item)
    return gathered.found


class _Gathered:
    def __init__(self, steps: Steps, check: Callable[[int], None]) -> None:
        self.found = Found()
        self._is_left_out = False
        self._beside: list[SpanRow | Record] = []
        self._steps = steps
        self._check = check
        self._linked: set[str] = set()

    @property
    def is_more(self) -> bool:
        """Whether there may be something that `take_then` takes."""
        return self.found.end_ns > 0 and self._is_left_out and bool(self._beside or self._linked)

    @property
    def held(self) -> Sequence[SpanRow | Record]:
        """All that may be; nothing where it is too much, or where what is linked to has to be looked for."""
        return () if self._linked or len(self._beside) > _HELD else self._beside

    def take(self, item: SpanRow | Record) -> None:
        """Take what is at one of the steps."""
        if isinstance(item, dict):
            self._take_span(item)
        elif isinstance(item, StepRecord):
            self._note(item.role, item.axis, item.step)
            if self._is_chosen(item, item.axis, item.step):
                time_ns = round(item.time * 1e9)
                # A correction may come long after its step.
                if not item.amendment:
                    self._widen(time_ns, time_ns)
                self._add_values(item, time_ns)
        elif isinstance(item, Text):
            if self._is_chosen(item, item.axis, item.step):
                self.found.texts.append(item)
        elif isinstance(item, Table) and item.name.endswith(f"{RESERVED_PREFIX}findings"):
            self.found.findings[item.name] = item

    def take_then(self, item: SpanRow | Record) -> None:
        """Take what is on another axis, or without a step, at the time of the steps; and what they link to."""
        if isinstance(item, dict):
            # What is at one of the steps was taken in the first pass.
            if not _is_timed(item) or self._steps.has(item["axis"], item["step"]):
                return
            is_then = item["axis"] != self._steps.axis and self.found.is_then(item["start_ns"], item["end_ns"])
            if is_then or item["trace_id"] + item["span_id"] in self._linked:
                self._add_span(item)
        elif isinstance(item, StepRecord):
            if self._is_beside(item):
                self._add_values(item, round(item.time * 1e9))
        elif isinstance(item, Text) and self._is_beside(item):
            self.found.texts.append(item)

    def _take_span(self, span: SpanRow) -> None:
        if not _is_timed(span):
            self.found.without_time += 1
            return
        self._note(span["role"], span["axis"], span["step"])
        if self._is_chosen(span, span["axis"], span["step"]):
            self._widen(span["start_ns"], span["end_ns"])
            self._linked.update(link["trace_id"] + link["span_id"] for link in span.get("links") or ())
            self._add_span(span)

    def _is_beside(self, record: StepRecord | Text) -> bool:
        return record.axis != self._steps.axis and self.found.is_then(record.time * 1e9, record.time * 1e9)

    def _is_chosen(self, item: SpanRow | Record, axis: str | None, step: int | None) -> bool:
        if self._steps.is_all or self._steps.has(axis, step):
            return True
        self._is_left_out = True
        if axis != self._steps.axis and len(self._beside) <= _HELD:  # one more says that it is not all
            self._beside.append(item)
        return False

    def _note(self, role: str, axis: str | None, step: int | None) -> None:
        if role:  # what the service says of itself has none
            self.found.roles.add(role)
        if axis is not None and step is not None:
            first, last = self.found.axes.get(axis, (step, step))
            if step <= first or step >= last:
                self.found.axes[axis] = min(first, step), max(last, step)

    def _widen(self, begin_ns: int, end_ns: int) -> None:
        self.found.begin_ns = min(self.found.begin_ns, begin_ns)
        self.found.end_ns = max(self.found.end_ns, end_ns)

    def _add_span(self, span: SpanRow) -> None:
        if self._is_of_role(span["role"]):
            self.found.spans.add(span)
            self._check(self.found.spans.count)

    def _add_values(self, record: StepRecord, time_ns: int) -> None:
        if not self._is_of_role(record.role):
            return
        for name, value in record.values.items():
            point = Point(name, record.axis, record.step, record.attempt)
            before = self.found.values.get(point)
            self.found.values[point] = Value(time_ns if before is None else before.time_ns, value)

    def _is_of_role(self, role: str) -> bool:
        return self._steps.role in {None, role}


def _is_timed(span: SpanRow) -> bool:
    begin_ns: int = span["start_ns"]
    end_ns: int = span["end_ns"]
    return 0 < begin_ns <= _LAST_NS and 0 < end_ns <= _LAST_NS
