"""What a report is made of: a run's records, read once, with the newest of everything that is not a scalar."""

from __future__ import annotations

import gc
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from otel_ml.wire.attributes import TIME_AXIS
from otel_ml.wire.published_name import is_own, published_name
from otel_ml_exporters.records import HistogramValue, Image, Record, Span, SpanBatch, StepRecord, Table, Text
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.report.rank_times import RankTimes
from otel_ml_service.stored_runs.deliveries import deliveries, not_taken
from otel_ml_service.stored_runs.follow_spans import newest_spans
from otel_ml_service.stored_runs.losses import values_lost
from otel_ml_service.stored_runs.missing_ranks import silences, steps_without_a_rank
from otel_ml_service.stored_runs.rank_places import hosts_of
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.read_spans import SpanRow
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import History
from otel_ml_service.why.facts import Place, RunFacts

__all__ = ["Contents", "contents", "read_contents", "without_collecting"]

_FINDINGS = "otel_ml/findings"

_SPANS = 20_000
"""Newest spans that are kept: the views of steps show them."""

_WHOSE = itemgetter("role", "rank", "axis")
"""Of the row of a span."""


@dataclass
class Contents:
    """A run.

    Attributes:
        texts, tables, images, histograms: name → the newest one.
        times: (role, axis) → how slow each rank was in each step.
        workers: (role, rank) that sent spans.
        attempts: lives of the job that closed steps.
        steps: (role, axis) → step → the last attempt that did it, of those with values of the user.
        facts: of the run as `otel-ml why` knows them, so that the page says what that says.
        redone: steps that an attempt did again.
        lacking: (role, axis) → steps whose row says that a rank was missing.
        energy: (axis, step, attempt) → what was measured of energy then: a step that was done again used it again.
        name: what people call it; empty where nobody has said.
        notes: what they wrote about it.
        not_taken: exporter → values that its backend does not have, and never will.
        hosts: role → rank → its host, as far as it is known: not while a service has the run open.
    """

    id: str
    experiment: str
    texts: dict[str, Text] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    images: dict[str, Image] = field(default_factory=dict)
    histograms: dict[str, HistogramValue] = field(default_factory=dict)
    _newest: deque[SpanLines] = field(default_factory=deque)
    _held: int = 0
    _made: list[Span] | None = None
    times: dict[tuple[str, str], RankTimes] = field(default_factory=lambda: defaultdict(RankTimes))
    workers: set[tuple[str, int]] = field(default_factory=set)
    attempts: set[int] = field(default_factory=set)
    steps: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    redone: int = 0
    lacking: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    energy: dict[tuple[str, int, int], dict[str, float]] = field(default_factory=dict)
    not_taken: dict[str, int] = field(default_factory=dict)
    hosts: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    name: str = ""
    notes: str = ""
    facts: RunFacts = field(default_factory=lambda: RunFacts(""))

    def __post_init__(self) -> None:
        self.facts.id = self.id

    @property
    def history(self) -> History:
        """All series, texts and parameters."""
        return self.facts.history

    @property
    def recorded(self) -> Mapping[Place, dict[int, float]]:
        """Role and axis → step → when it was recorded, in seconds since the epoch."""
        return self.facts.times

    def add(self, record: Record) -> None:
        """Note what `History` does not keep."""
        self.facts.add(record)
        if isinstance(record, StepRecord):
            self._add_step(record)
        elif isinstance(record, Text):
            self.texts[record.name] = record
        elif isinstance(record, Table):
            self.tables[record.name] = record
        elif isinstance(record, Image):
            self.images[record.name] = record
        elif isinstance(record, HistogramValue):
            self.histograms[record.name] = record
        elif isinstance(record, SpanBatch):
            self._add_spans(SpanLines.of(record.spans))

    def _add_spans(self, spans: SpanLines) -> None:
        # Of a batch that is larger than what is kept, the end.
        self._hold(spans.newest(_SPANS))
        # Of a long run a million: rows, not spans, of which only the newest are made.
        of_steps: dict[tuple[str, str], list[SpanRow]] = defaultdict(list)
        # `groupby` begins a new group whenever one of these changes, so a batch may have several of one place.
        for (role, rank, axis), found in groupby(spans.rows(), _WHOSE):
            self.workers.add((role, rank))
            of_steps[role, axis] += [row for row in found if row["step"] is not None]
        for (role, axis), timed in of_steps.items():
            if axis is not None and timed:
                self.times[role, axis].add(timed)

    def _hold(self, spans: SpanLines) -> None:
        """Keep the newest spans, as text: of a long run nearly all go again, and a row takes three times the memory."""
        self._newest.append(spans)
        self._held += len(spans)
        self._made = None
        # Whole batches go, and only where enough is left without them: `spans` cuts off the rest.
        while self._held - len(self._newest[0]) >= _SPANS:
            self._held -= len(self._newest.popleft())

    @property
    def spans(self) -> list[Span]:
        """The newest ones, oldest first: made once, as several parts of a page look at them."""
        if self._made is None:
            self._made = list(SpanLines.joined(self._newest).newest(_SPANS))
        return self._made

    @property
    def is_cut(self) -> bool:
        """Whether there may have been older spans than `spans`: of the oldest steps there are not all, then."""
        return self._held >= _SPANS

    def _add_step(self, record: StepRecord) -> None:
        self.attempts.add(record.attempt)
        if not record.amendment:
            lacking = self.lacking[record.role, record.axis]
            (lacking.add if record.writers_missing else lacking.discard)(record.step)
        energy, has_users = _looked_at(tuple(record.values))
        if energy:
            measured = self.energy.setdefault((record.axis, record.step, record.attempt), {})
            measured.update((name, record.values[name]) for name in energy)
        if has_users:
            done = self.steps.get((record.role, record.axis))
            if done is None:
                done = self.steps[record.role, record.axis] = {}
            # The attempt that is there already; where there is none, this one, which has then redone nothing.
            before = done.setdefault(record.step, record.attempt)
            if record.attempt > before:
                self.redone += record.axis != TIME_AXIS  # whose windows are not steps that somebody does again
                done[record.step] = record.attempt

    @property
    def roles(self) -> dict[str, int]:
        """How many ranks of each role sent spans."""
        found = Counter(role for role, _ in self.workers)
        return dict(sorted(found.items(), key=lambda entry: (entry[0] != "trainer", entry[0])))

    @property
    def ranks(self) -> int | None:
        """How many processes trained: those that sent spans, else what a parameter says; None where neither does."""
        sizes = self.roles
        if sizes:
            return sizes.get("trainer", max(sizes.values()))
        said = (self.history.params.get(name) for name in ("world_size", "ranks", "num_gpus", "gpus"))
        return next((int(value) for value in said if isinstance(value, (int, float)) and 1 <= value < math.inf), None)

    @property
    def missing(self) -> int:
        """How many steps are not of all ranks."""
        missing = 0
        for place, recorded in self.recorded.items():
            silent = silences(self.tables.get(published_name(*place, _FINDINGS)))
            missing += len(steps_without_a_rank(recorded, self.lacking[place], silent))
        return missing

    @property
    def unheard(self) -> int:
        """Ranks of which nothing was heard, as the run's end tells: they recorded nothing, or it did not arrive."""
        return int(self.history.summary.get("otel_ml/ranks_unheard", 0))

    @property
    def lost(self) -> int | None:
        """Values that were recorded and are not in the run, as its end tells; None where nobody has said so yet."""
        if "otel_ml/recorded" not in self.history.summary:
            return None
        return values_lost(self.history)


@lru_cache(maxsize=256)
def _looked_at(names: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Return which values of a row are of energy, and whether any is the user's: most rows have the same ones."""
    return tuple(name for name in names if "hw.energy" in name), not all(map(is_own, names))


def contents(run_id: str, experiment: str, found: Iterable[Record]) -> Contents:
    """Return what records, in the order of `seq`, amount to."""
    read = Contents(run_id, experiment)
    for record in found:
        read.add(record)
        read.history.add(record)
    return read


def read_contents(run: RunFolder) -> Contents:
    """Return what a run's folder holds.

    Raises:
        RunUnreadableError: it is being recorded without the exporter `jsonl`, or is damaged.
    """
    read = contents(run.id, run.experiment, records(run))
    if not read.workers:  # while the service has the run open
        read.add(SpanBatch(0, newest_spans(run.path / "spans.jsonl")))
    read.not_taken, read.hosts = not_taken(deliveries(run) or ()), hosts_of(run)
    read.name, read.notes = run.name, run.notes
    read.facts.reads(run)
    return read


@contextmanager
def without_collecting() -> Iterator[None]:
    """Keep the garbage collector from looking at millions of rows again and again: none of them is in a circle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
