"""What a point of the OpenTelemetry SDK costs the service: CPU time of decoding it, and of the engine.

`python -m tests.benchmarks.third_party` says it of each kind of instrument. It measures CPU time, so that other
programs on the machine matter little; the best of several turns counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics import _Gauge as Gauge
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource

from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.receiver.decode import Decoder
from tests.otlp import SECOND, START

__all__ = ["KINDS", "Program", "decoding", "recorded", "reducing"]

EXPORTS = 20
TURNS = 7


class Program(NamedTuple):
    """A program with the SDK.

    Attributes:
        instrument: `counter`, `updown`, `gauge`, `histogram`, `exponential`.
        has_step: each record has `ml.step` among its attributes.
        steps: of an export, where records have one.
        varies: each export has attributes that none before it had.
    """

    instrument: str
    temporality: AggregationTemporality
    has_step: bool
    steps: int = 1
    varies: bool = False


_CUMULATIVE, _DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA

KINDS: Mapping[str, Program] = {
    "gauge with a step, delta": Program("gauge", _DELTA, has_step=True),
    "histogram with a step, delta": Program("histogram", _DELTA, has_step=True),
    "gauge": Program("gauge", _CUMULATIVE, has_step=False),
    "counter, cumulative": Program("counter", _CUMULATIVE, has_step=False),
    "counter, delta": Program("counter", _DELTA, has_step=False),
    "up-down counter": Program("updown", _CUMULATIVE, has_step=False),
    "histogram, cumulative": Program("histogram", _CUMULATIVE, has_step=False),
    "exponential, cumulative": Program("exponential", _CUMULATIVE, has_step=False),
    "exponential with a step, delta": Program("exponential", _DELTA, has_step=True),
    "gauge of five steps, delta": Program("gauge", _DELTA, has_step=True, steps=5),
    "counter of new attributes, delta": Program("counter", _DELTA, has_step=False, varies=True),
}


def recorded(program: Program, streams: int, *, attributes: bool, exports: int = EXPORTS) -> Sequence[bytes]:
    """Return what the SDK sends in `exports` exports of `streams` streams, a second apart."""
    reader = _reader(program)
    about = {"ml.experiment.id": "exp", "service.name": "trainer", "service.instance.id": "sdk-0", "ml.rank": 0}
    provider = MeterProvider([reader], resource=Resource(about), shutdown_on_exit=False)
    records = [_record(provider.get_meter("my.library"), program.instrument, number) for number in range(streams)]
    return list(_exports(reader, records, program, exports, attributes=attributes))


def _reader(program: Program) -> InMemoryMetricReader:
    kinds: dict[type, AggregationTemporality] = dict.fromkeys(
        (Counter, Gauge, Histogram, UpDownCounter), program.temporality
    )
    kinds[UpDownCounter] = _CUMULATIVE
    is_exponential = program.instrument == "exponential"
    return InMemoryMetricReader(kinds, {Histogram: ExponentialBucketHistogramAggregation()} if is_exponential else {})


def _record(meter: Any, instrument: str, number: int) -> Callable[..., None]:
    name = f"train/metric_{number}"
    if instrument in {"counter", "updown"}:
        make = meter.create_counter if instrument == "counter" else meter.create_up_down_counter
        record: Callable[..., None] = make(name).add
    else:
        make = meter.create_gauge if instrument == "gauge" else meter.create_histogram
        record = make(name).set if instrument == "gauge" else make(name).record
    return record


def _exports(
    reader: InMemoryMetricReader,
    records: Sequence[Callable[..., None]],
    program: Program,
    exports: int,
    *,
    attributes: bool,
) -> Iterator[bytes]:
    for number in range(exports):
        for index, record in enumerate(records):
            said: dict[str, Any] = {"layer": f"block {index}", "kind": "attention"} if attributes else {}
            if program.varies:
                said["request"] = f"{number:08d}"
            for step in range(number * program.steps, (number + 1) * program.steps):
                if program.has_step:
                    said["ml.step"] = 1_000 + step
                for repeat in range(3):
                    record(0.37 + (step * 13 + index * 7 + repeat * 3) % 97, said)
        data = reader.get_metrics_data()
        assert data is not None
        request = encode_metrics(data)
        _at(request, number)
        yield request.SerializeToString()


def _at(request: Any, number: int) -> None:
    for scope in request.resource_metrics[0].scope_metrics:
        for metric in scope.metrics:
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                point.start_time_unix_nano, point.time_unix_nano = START, START + (number + 1) * SECOND


def decoding(bodies: Sequence[bytes]) -> float:
    """Return the seconds of CPU that decoding took."""
    decoder = Decoder()
    begun = time.process_time()
    for body in bodies:
        decoder.protobuf("metrics", body)
    return time.process_time() - begun


def reducing(bodies: Sequence[bytes]) -> float:
    """Return the seconds of CPU that the engine took for what was decoded, its commits included."""
    decoder, engine = Decoder(), Engine("exp", EngineSettings())
    decoded: list[list[Observation]] = [
        decoder.protobuf("metrics", body).observations.get("exp", []) for body in bodies
    ]
    now = START / SECOND
    begun = time.process_time()
    for observations in decoded:
        now += 1
        for one in observations:
            engine.observe(one, now)
        engine.advance(now)
        engine.take()
    return time.process_time() - begun


def _told() -> Iterator[str]:
    for kind, program in KINDS.items():
        for streams in (1, 50):
            for attributes in (False, True):
                bodies = recorded(program, streams, attributes=attributes)
                points = streams * len(bodies) * program.steps
                best = [min(measure(bodies) for _ in range(TURNS)) / points * 1e6 for measure in (decoding, reducing)]
                what = f"{kind}, {streams} stream{'s' * (streams > 1)}{' with attributes' * attributes}"
                yield f"{what:<62} {best[0]:6.1f} µs decoding {best[1]:6.1f} µs engine, a point"


if __name__ == "__main__":
    for line in _told():
        print(line, flush=True)
