"""The ways from a rank to the backends that are disturbed, one a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

RANKS = {"trainer": 3, "generator": 3}
AXES = {"trainer": "step", "generator": "rollout"}


@dataclass(frozen=True)
class Layout:
    """What stands between a rank and a backend.

    Attributes:
        served: `otel-ml serve` by hand; else the job starts its embedded service.
        protocol: of OTLP.
        through_collector: workers send to the real Collector, that one to the service.
        counted: the launcher counts restarts, as torchrun does.
        mlflow_server: MLflow is behind its own HTTP server; else a SQLite file.
    """

    served: bool
    protocol: Literal["http/protobuf", "grpc"]
    through_collector: bool
    counted: bool
    mlflow_server: bool


LAYOUTS: Mapping[str, Layout] = {
    "embedded": Layout(False, "http/protobuf", through_collector=False, counted=False, mlflow_server=False),
    "http": Layout(True, "http/protobuf", through_collector=False, counted=True, mlflow_server=False),
    "grpc": Layout(True, "grpc", through_collector=False, counted=False, mlflow_server=True),
    "collector": Layout(True, "http/protobuf", through_collector=True, counted=True, mlflow_server=False),
}
