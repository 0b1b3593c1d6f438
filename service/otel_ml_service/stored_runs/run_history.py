"""What a run's records amount to: the last value of every series at every step, and what there is besides scalars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from otel_ml.wire.attributes import DEFAULT_AXIS, RESERVED_PREFIX
from otel_ml.wire.columns import SeriesKey as SeriesName
from otel_ml.wire.published_name import ascii_spelling, is_own
from otel_ml_exporters.records import Artifact, JsonValue, Params, Record, RunStatus, StepRecord, Summary, Text
from otel_ml_service.stored_runs.failure import Failure, failure_of

__all__ = ["History", "Series", "SeriesName", "ascending", "history"]


Series = Mapping[int, float]
"""Step → last value, ascending."""


@dataclass
class History:
    """A run, read once.

    Attributes:
        series: the last value of every (series, step); those of a newer attempt replace older ones.
        amendments: values that were corrected or added after their step had been exported, without otel_ml's own.
        rows: step records, corrections included.
        others: records of each kind that is not a step (`Text`, `Image`, …).
        failures: what processes failed with, as they came.
        status: of the last `RunStatus`; `running` where there is none.
        last_seq: of the last record.
        seconds: from the first step record's time to the last one's.
    """

    series: dict[SeriesName, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    params: dict[str, JsonValue] = field(default_factory=dict)
    summary: dict[str, float] = field(default_factory=dict)
    artifacts: dict[tuple[str, str], Artifact] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failures: list[Failure] = field(default_factory=list)
    amendments: int = 0
    rows: int = 0
    status: str = "running"
    last_seq: int = 0
    began: float | None = None
    ended: float | None = None
    _row: tuple[tuple[str, ...], Sequence[dict[int, float]]] = field(default=((), ()), repr=False)

    def add(self, record: Record) -> None:
        """Take one record, in the order of `seq`."""
        self.last_seq = max(self.last_seq, record.seq)
        if isinstance(record, StepRecord):
            self._add_step(record)
            return
        self.others[type(record).__name__] += 1
        if isinstance(record, Params):
            self.params.update(record.params)
        elif isinstance(record, Summary):
            self._add_summary(record)
        elif isinstance(record, Artifact):
            self.artifacts[record.name, record.path_in] = record
        elif isinstance(record, RunStatus):
            self.status = record.status
        elif isinstance(record, Text) and (failure := failure_of(record)) is not None:
            self._add_failure(failure)

    def _add_failure(self, failure: Failure) -> None:
        if not failure.takes_back:
            if failure not in self.failures:  # each end of a run says again who was killed
                self.failures.append(failure)
            return
        who = failure.role, failure.rank
        said = [at for at, one in enumerate(self.failures) if one.was_killed and (one.role, one.rank) == who]
        if said:
            del self.failures[said[-1]]

    def _add_summary(self, record: Summary) -> None:
        if f"{RESERVED_PREFIX}recorded" in record.values:
            # What an end tells of the run is whole: a run that went on after one has the newer end's account alone.
            self.summary = {name: value for name, value in self.summary.items() if not is_own(name)}
        self.summary.update(record.values)

    def _add_step(self, record: StepRecord) -> None:
        self.rows += 1
        if record.amendment:
            self.amendments += sum(not is_own(name) for name in record.values)
        self.began = record.time if self.began is None or record.time < self.began else self.began
        self.ended = record.time if self.ended is None or record.time > self.ended else self.ended
        for series, value in zip(self._columns(record), record.values.values(), strict=True):
            # A correction, or a newer attempt, comes later in `seq` and replaces what was there.
            series[record.step] = value

    def _columns(self, record: StepRecord) -> Sequence[dict[int, float]]:
        """Return the series of a row's values: most rows have the same ones as the one before."""
        names = record.axis, *record.values
        if names != self._row[0]:
            self._row = names, [self.series[SeriesName(record.axis, name)] for name in record.values]
        return self._row[1]

    @property
    def steps(self) -> int:
        """How many steps have values of the user: of the axis `step`, or of the longest one where there is no such."""
        axes: dict[str, set[int]] = {DEFAULT_AXIS: set()}
        for key, series in self.series.items():
            if not is_own(key.name):
                axes.setdefault(key.axis, set()).update(series)
        return len(axes[DEFAULT_AXIS]) or max(map(len, axes.values()))

    @property
    def seconds(self) -> float:
        """From the first step to the last, as recorded."""
        return 0.0 if self.began is None or self.ended is None else self.ended - self.began

    def get(self, name: str) -> Series:
        """Return the series of a published name, on whichever axis; empty where there is none."""
        found = [series for key, series in self.series.items() if key.name == name]
        return dict(sorted(found[0].items())) if found else {}

    def matching(self, pattern: str) -> Iterator[tuple[SeriesName, Series]]:
        """Yield the series whose name is `pattern`; where there is none, those that match it as a glob, by name.

        In runs of before names stayed as they were written, `pattern` is found under the name it was given then.
        """
        exact = {pattern, ascii_spelling(pattern)}
        found = [key for key in self.series if key.name in exact]
        found = found or [key for key in self.series if fnmatchcase(key.name, pattern)]
        for key in sorted(found, key=lambda key: key.name):
            yield key, dict(sorted(self.series[key].items()))


def ascending(series: Series) -> Series:
    """Return a series by its steps; itself, where it is so: nearly all are, and may be long.

    Examples:
        >>> ascending({3: 0.5, 1: 0.25})
        {1: 0.25, 3: 0.5}
    """
    steps = sorted(series)
    return series if steps == list(series) else {step: series[step] for step in steps}


def history(records: Iterable[Record]) -> History:
    """Return what `records` amount to.

    Examples:
        >>> rows = [StepRecord(1, "trainer", "step", 0, 0, 10.0, {"loss": 2.0}),
        ...         StepRecord(2, "trainer", "step", 0, 0, 10.5, {"loss": 1.5}, amendment=True)]
        >>> read = history(rows)
        >>> read.get("loss"), read.amendments, read.seconds
        ({0: 1.5}, 1, 0.5)
    """
    read = History()
    for record in records:
        read.add(record)
    return read
