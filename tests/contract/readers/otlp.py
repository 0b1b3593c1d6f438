"""What a metrics backend holds: of points that are equal in name, attributes and time, one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.contract.otlp_sink import received
from tests.contract.readers import main, number
from tests.otlp_server import attributes_of


def points(requests: Iterator[bytes]) -> Iterator[tuple[str, Mapping[str, Any], float]]:
    seen = set()
    for content in requests:
        for resource in ExportMetricsServiceRequest.FromString(content).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.gauge.data_points:
                    attributes = attributes_of(point.attributes)
                    identity = metric.name, tuple(sorted(attributes.items())), point.time_unix_nano
                    if identity not in seen:
                        seen.add(identity)
                        yield metric.name, attributes, point.as_double


def read(run_dir: Path, run_id: str) -> Mapping[str, object]:
    found = sorted(points(received(run_dir)), key=lambda point: point[1]["ml.seq"])
    shown = [([name, at["ml.step.axis"], at["ml.step"], number(value)], at) for name, at, value in found]
    return {
        "scalars": [[*point, at["ml.attempt"]] for point, at in shown if "ml.amendment" not in at],
        "amendments": [point for point, at in shown if "ml.amendment" in at],
    }


if __name__ == "__main__":
    main(read)
