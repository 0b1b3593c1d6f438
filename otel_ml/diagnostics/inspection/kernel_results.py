"""What kernels have found in a step becomes statistics: on the host, of one arrival, by the thread that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from otel_ml._internal.device_tensor import Deferred
from otel_ml._internal.series.definition import Series
from otel_ml.diagnostics.inspection.fp8 import Fp8State
from otel_ml.diagnostics.inspection.inspected_tensor import InspectedTensor
from otel_ml.diagnostics.inspection.statistics import TensorState, Value
from otel_ml.diagnostics.inspection.text_log import TextLog
from otel_ml.diagnostics.tensor_statistics.copy_to_host import CopyToHost
from otel_ml.diagnostics.tensor_statistics.kernel_jobs import COLUMNS, SUMMARY, Job
from otel_ml.diagnostics.tensor_statistics.tensor_batches import SeenTensor

__all__ = ["Findings", "Held"]

SeriesOf = Callable[[InspectedTensor, str, tuple[str, ...]], Series | None]


class Held(NamedTuple):
    """A watched tensor, and how ranks hold it.

    Attributes:
        watched: what is shown of it.
        copies: ranks that hold the same.
        parts: different ones that all ranks together hold.
    """

    watched: InspectedTensor
    copies: int
    parts: int


class _Alike(NamedTuple):
    """Tensors of which the same is shown in the same way, so that they are computed together."""

    stats: tuple[str, ...]
    jobs: tuple[tuple[str, Job], ...]
    is_plain: bool
    copies: int
    parts: int
    number: int


class Findings(Deferred):
    """All statistics of a step that kernels have found.

    Args:
        arrivals: what was found of which tensors.
        held: by owner of what was seen.
        series_of: of what is recorded.
        index: of the step, for the text log.
        log: that text log.
    """

    __slots__ = ("_arrivals", "_held", "_index", "_log", "_series_of")

    def __init__(
        self,
        arrivals: list[tuple[CopyToHost, list[SeenTensor]]],
        held: dict[int, Held],
        series_of: SeriesOf,
        index: int,
        log: TextLog | None,
    ) -> None:
        self._arrivals = arrivals
        self._held = held
        self._series_of = series_of
        self._index = index
        self._log = log

    @property
    def size(self) -> int:
        """How many statistics these are."""
        return sum(len(held.watched.rule.stats) for held in self._held.values())

    def ready(self) -> bool:
        """Whether all have arrived."""
        return all(arrival.ready() for arrival, _ in self._arrivals)

    def read(self) -> list[Any]:
        """Return nothing: there is a record for each statistic of each tensor."""
        return []

    def records(self, series: Any, step: Any, time_ns: int) -> Iterable[Any]:
        """Return a record of each statistic."""
        del series
        found: list[Any] = []
        for owners, name, value in self._values():
            for owner, shown, item in zip(owners, value.shown.tolist(), _items(value), strict=True):
                watched = self._held[owner].watched
                # None where this process has too many series: the text log has the value all the same.
                known = self._series_of(watched, name, value.reduce)
                if known is not None:
                    found += (known, step, item, time_ns)
                if self._log is not None:
                    self._log.line(f"{watched.layer}_{watched.rule.tensor}_{name}", self._index, shown)
        return found

    def _values(self) -> Iterator[tuple[list[int], str, Value]]:
        import torch

        flat = [*chain.from_iterable(arrival.numbers() for arrival, _ in self._arrivals)]
        # Jobs (of all arrivals, one behind the other) × COLUMNS.
        numbers = torch.tensor(flat, dtype=torch.float64, device="cpu").view(-1, COLUMNS)
        for alike, owners in self._groups().items():
            seen = [owners[owner] for owner in owners]
            # Tensors × micro-batches.
            sizes = [[one.size for one in several] for several in seen]
            counts = torch.tensor(sizes, dtype=torch.float64, device="cpu")

            # As a default: the next turn of the loop has another `seen`.
            def found(job: Job, seen: list[list[SeenTensor]] = seen) -> Any:
                rows = [[one.rows[job] for one in several] for several in seen]
                # Tensors × micro-batches × COLUMNS.
                return numbers[torch.tensor(rows, device="cpu")]

            if alike.is_plain:
                plain = _merged(_summaries(counts, found(SUMMARY)))
                for name, value in plain.values(alike.stats, copies=alike.copies, parts=alike.parts):
                    yield [*owners], name, value
            for prefix, job in alike.jobs:
                rounded = _merged(_roundings(counts, found(job)))
                for name, value in rounded.values(prefix, alike.stats):
                    yield [*owners], name, value

    def _groups(self) -> dict[_Alike, dict[int, list[SeenTensor]]]:
        seen: dict[int, list[SeenTensor]] = {}
        before = 0
        for arrival, sightings in self._arrivals:
            for one in sightings:
                if one.owner in self._held:
                    rows = {job: before + row for job, row in one.rows.items()}
                    seen.setdefault(one.owner, []).append(one._replace(rows=rows))
            # Rows count within their arrival; `numbers` has all arrivals one behind the other.
            before += len(arrival.numbers()) // COLUMNS
        groups: dict[_Alike, dict[int, list[SeenTensor]]] = {}
        for owner, several in seen.items():
            watched, copies, parts = self._held[owner]
            jobs = tuple(watched.jobs_by_prefix.items())
            alike = _Alike(watched.rule.stats, jobs, watched.is_plain, copies, parts, len(several))
            groups.setdefault(alike, {})[owner] = several
        return groups


def _summaries(counts: Any, numbers: Any) -> Iterator[TensorState]:
    """Yield the states of all tensors: those of the first micro-batch, of the second, and so on."""
    import torch

    for count, (mean, m2, low, high, l1, least, *_) in _by_micro_batch(counts, numbers):
        squares = m2 + count * mean * mean
        # Of infinite elements the deviation is not a number, but the norm is infinite.
        squares = torch.where(squares.isnan() & ~low.isnan() & ~high.isnan(), torch.inf, squares)
        yield TensorState(count, mean, m2, low, high, l1, squares, least)


def _roundings(counts: Any, numbers: Any) -> Iterator[Fp8State]:
    for count, (under, over, square, low, high, *_) in _by_micro_batch(counts, numbers):
        yield Fp8State(count, under, over, square, low, high)


def _by_micro_batch(counts: Any, numbers: Any) -> Iterator[tuple[Any, Any]]:
    return zip(counts.unbind(1), (part.unbind(1) for part in numbers.unbind(1)), strict=True)


def _merged(states: Iterator[Any]) -> Any:
    first = next(states)
    for state in states:
        first = first.merged(state)
    return first


def _items(value: Value) -> list[Any]:
    """Return what is recorded of each tensor: a number, with its weight, or two of them."""
    numbers = value.records.tolist()
    if value.records.dim() == 2:
        # Two records × tensors.
        weights = [None] * len(numbers[0]) if value.weight is None else value.weight.tolist()
        both = zip(*numbers, strict=True)
        return [
            [*several] if weight is None else [(number, weight) for number in several]
            for several, weight in zip(both, weights, strict=True)
        ]
    return numbers if value.weight is None else [*zip(numbers, value.weight.tolist(), strict=True)]
