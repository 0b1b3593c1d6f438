"""What a load consists of: for each round and rank one request, and at the end a goodbye."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Protocol

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml.wire import attributes as keys
from otel_ml.wire.protobuf import key_value, key_values
from otel_ml.wire.spool_format import request_body
from tests.benchmarks.payload import FIRST, VARIANTS, goodbye, metric_name, resource_of, step_template, value_of
from tests.otlp import START, set_attributes

__all__ = ["SOURCES", "Foreign", "Own", "Source", "Spans"]

Request = tuple[str, bytes]


class Source(Protocol):
    """Makes requests; `rank` is among those given to the constructor.

    Attributes:
        steps: of a round.
    """

    steps: int

    def items(self, rank: int) -> int:
        """Return the points, or spans, that a rank sends in a round."""

    def requests(self, number: int, rank: int) -> Iterator[Request]:
        """Yield what a rank sends in a round."""

    def goodbye(self, rounds: int, rank: int) -> Iterator[Request]:
        """Yield what a rank still has to send after the last round."""


class Own:
    """Steps of our own workers: metrics with reductions, timers, a watermark each; their spans are `Spans`.

    Args:
        behind: so many rounds the last rank is late, which keeps that many steps open.
        late: percent of the ranks that record every step once more, `LATE_ROUNDS` later, when it has closed.
    """

    LATE_ROUNDS = 50
    CATCH_UP = 20
    """Rounds in a request of the rank that was behind."""

    def __init__(
        self,
        experiment: str,
        world: int,
        ranks: range,
        *,
        metrics: int,
        timers: int = 0,
        per_request: int = 1,
        behind: int = 0,
        late: int = 0,
        **more: Any,
    ) -> None:
        self.templates = [step_template(metrics, timers, variant, **more) for variant in range(VARIANTS)]
        self.steps = per_request
        self._world = world
        self._behind = behind
        self._late = world * late // 100
        self._resources = {rank: resource_of(experiment, rank, world) for rank in ranks}
        self._scopes = len(self.templates[0].scopes)
        self._payload = lru_cache(4 * VARIANTS)(self._steps)

    def items(self, rank: int) -> int:
        once = self.templates[0].points * self.steps
        return 2 * once if rank < self._late else once

    def requests(self, number: int, rank: int) -> Iterator[Request]:
        number -= self._behind if rank == self._world - 1 else 0
        if number < 0:
            return
        again = rank < self._late
        yield self._request(rank, self._payload(number, rank % VARIANTS, again))
        if again and number >= self.LATE_ROUNDS:
            seq = self._first_seq(number, again=True) + self.steps * self._scopes
            yield self._again(number - self.LATE_ROUNDS, rank, seq)

    def together(self, rounds: range, rank: int) -> Request:
        """Return several rounds of a rank that is neither behind nor late as one request."""
        return self._request(rank, b"".join(self._payload(number, rank % VARIANTS, False) for number in rounds))

    def goodbye(self, rounds: int, rank: int) -> Iterator[Request]:
        if rank == self._world - 1:
            owed = [
                self._payload(number, rank % VARIANTS, rank < self._late)
                for number in range(max(0, rounds - self._behind), rounds)
            ]
            for first in range(0, len(owed), self.CATCH_UP):
                yield self._request(rank, b"".join(owed[first : first + self.CATCH_UP]))
        seq = self._first_seq(rounds, again=rank < self._late)
        if rank < self._late:
            for number in range(max(0, rounds - self.LATE_ROUNDS), rounds):
                yield self._again(number, rank, seq)
                seq += self.steps * (self._scopes - 1)
        points = rounds * self.items(rank)
        yield "/v1/logs", goodbye(self._resources[rank], points, points, seq)

    def _request(self, rank: int, payload: bytes) -> Request:
        return "/v1/metrics", request_body(self._resources[rank], [payload])

    def _first_seq(self, number: int, *, again: bool) -> int:
        """Return the first `ml.seq` of a round: they ascend without gaps, in the order sent."""
        repeated = max(0, number - self.LATE_ROUNDS) if again else 0
        return 1 + self.steps * (number * self._scopes + repeated * (self._scopes - 1))

    def _steps(self, number: int, variant: int, again: bool) -> bytes:
        template, first, seq = (
            self.templates[variant],
            FIRST + number * self.steps,
            self._first_seq(number, again=again),
        )
        return b"".join(template.metrics_at(first + step, seq + step * self._scopes) for step in range(self.steps))

    def _again(self, number: int, rank: int, seq: int) -> Request:
        """Return a round's steps once more; no watermark says so, for it would say as many points as before."""
        template, first, scopes = self.templates[rank % VARIANTS], FIRST + number * self.steps, self._scopes - 1
        parts = (template.metrics_at(first + step, seq + step * scopes, scopes) for step in range(self.steps))
        return self._request(rank, b"".join(parts))


class Foreign:
    """Gauges of another SDK: every point carries its step and `attributes` of the user's."""

    def __init__(
        self, experiment: str, world: int, ranks: range, *, metrics: int, attributes: int = 2, per_request: int = 1
    ) -> None:
        self.steps = per_request
        self._items = metrics * per_request
        pairs = {"ml.experiment.id": experiment, "service.name": "trainer", "ml.world_size": world}
        self._resources = {
            rank: key_values(1, {**pairs, "ml.rank": rank, "service.instance.id": f"foreign-{rank}"}) for rank in ranks
        }
        self._template = _foreign_step(metrics, attributes)
        self._payload = lru_cache(4)(self._steps)

    def items(self, rank: int) -> int:
        del rank
        return self._items

    def requests(self, number: int, rank: int) -> Iterator[Request]:
        yield "/v1/metrics", request_body(self._resources[rank], [self._payload(number)])

    def goodbye(self, rounds: int, rank: int) -> Iterator[Request]:
        """Say nothing: no SDK does."""
        return iter(())

    def _steps(self, number: int) -> bytes:
        first, old = number * self.steps, key_value(keys.STEP, FIRST)
        steps = range(FIRST + first, FIRST + first + self.steps)
        return b"".join(self._template.replace(old, key_value(keys.STEP, step)) for step in steps)


class Spans:
    """Finished timers of our own workers, each with ids of its own."""

    def __init__(self, experiment: str, world: int, ranks: range, *, spans: int, per_request: int = 1) -> None:
        self.steps = per_request
        self._template = step_template(1, spans, 0)
        self._resources = {rank: resource_of(experiment, rank, world) for rank in ranks}
        self._spans = spans
        self._cut = lru_cache(8 * per_request)(self._template.spans_at)

    def items(self, rank: int) -> int:
        del rank
        return self._spans * self.steps

    def requests(self, number: int, rank: int) -> Iterator[Request]:
        payloads = []
        for step in range(number * self.steps, (number + 1) * self.steps):
            first_id = (rank + 1 << 40) + step * self._spans
            payloads.append(self._template.with_ids(self._cut(FIRST + step), first_id))
        yield "/v1/traces", request_body(self._resources[rank], payloads)

    def goodbye(self, rounds: int, rank: int) -> Iterator[Request]:
        del rounds
        yield "/v1/logs", goodbye(self._resources[rank], 0, 0, 1)


SOURCES: dict[str, type[Own] | type[Foreign] | type[Spans]] = {"own": Own, "foreign": Foreign, "spans": Spans}


def _foreign_step(metrics: int, attributes: int) -> bytes:
    """Return one encoded ScopeMetrics with its tag, as the protocol's own classes write it."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    scope = resource.scope_metrics.add()
    scope.scope.name = "my.library"
    own = {f"layer_{index}": f"block {index}" for index in range(attributes)}
    for index in range(metrics):
        point = scope.metrics.add(name=metric_name(index)).gauge.data_points.add(as_double=value_of(0, index))
        point.time_unix_nano = START
        set_attributes(point.attributes, {keys.STEP: FIRST, keys.REDUCTION: "mean", **own})
    return resource.SerializeToString()
