"""What every run of a service is made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from otel_ml_exporters.exporter import Exporter
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.live_runs.wait_for_name import UNNAMED

__all__ = ["RunSettings"]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What every run of a service is made with.

    Attributes:
        exporters: name → builds the exporter; called on the exporter's own thread.
        experiment_name: of runs whose writers do not say it.
        run_name: the same; where it is empty, a readable one is made of the id.
        late_max: bytes of `late.otlp`.
        served: what is kept in its folder of how it is served; None keeps what is there.
        unavailable: name → why, of exporters that were asked for and cannot be used: what they lack stays to be said.
        all_self_telemetry: backends get all of `otel_ml/…`, and not only what is not as it should be.
        log: name of the log in the run's folder; empty in embedded mode, where the process' output is that file.
    """

    exporters: Mapping[str, Callable[[], Exporter]]
    engine: EngineSettings = field(default_factory=EngineSettings)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    experiment_name: str = UNNAMED
    run_name: str = ""
    late_max: int = 2**30
    served: ServedSettings | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    all_self_telemetry: bool = False
    log: str = "service.log"
