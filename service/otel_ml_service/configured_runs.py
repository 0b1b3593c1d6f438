"""What the configuration of a service says of its runs: which exporters write them, and within which bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from io import TextIOBase
from typing import Any

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.registry import split_name
from otel_ml_service import env
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.config import ServiceConfig
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.exporter_makers import exporter_makers
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.live_runs.served_settings import ServedSettings

__all__ = ["FALLBACK", "configured_runs"]

Options = Mapping[str, Any]

FALLBACK = "jsonl"
"""The exporter of a job's own service where none that was asked for can be used: it needs no package, and no server."""

_CLOSED_SHARE = 8
"""Of all that a service may keep on the disk, a run's closed steps take one part of so many: records come first."""

_RESUME_WAIT_S = 60.0
"""Seconds that `otel-ml serve`, which may have been down for long, waits for those who are still there: workers try
again every 5 s, a Collector may take a minute. A job's own service is started by those who are there."""


def configured_runs(
    config: ServiceConfig,
    makers: Mapping[str, Callable[[], Exporter]] | None,
    served: ServedSettings | None,
    retry: RetryPolicy | None,
    console: TextIOBase | None,
) -> tuple[RunSettings, tuple[str, ...]]:
    """Return what runs are made with, and what is wrong with exporters that are left out of a job's own service.

    Args:
        config: of the service.
        makers: name → builds the exporter, in addition to those `config` names.
        served: what is kept of it in the folders of runs; None keeps what is there.
        retry: of the exporters.
        console: what exporters that print are to print to, where that is not the process' output.

    Raises:
        ConfigError: exporters cannot be used, of a service that is not a job's own.
    """
    configured, left_out = exporter_makers(_printing_to(console, config.exporters))
    if left_out.problems and config.embedded is None:
        raise ConfigError(*left_out.problems)
    makers = {**configured, **(makers or {})}
    # Where nothing is wrong and there are none, none were asked for.
    if left_out.problems and not makers:
        makers, _ = exporter_makers({FALLBACK: {}})
    unavailable = left_out.unavailable(() if served is None else served.exporters)
    settings = RunSettings(
        makers,
        EngineSettings(
            allowed_lateness_s=config.allowed_lateness_s,
            end_silence_s=config.end_silence_s,
            resume_wait_s=_RESUME_WAIT_S if config.embedded is None else 0.0,
            scraped_series=config.scraped.max_series,
            scraped_allow=config.scraped.allow,
            scraped_deny=config.scraped.deny,
            open_bytes=config.limits.open,
            retained_bytes=config.limits.retained,
            closed_bytes=min(config.limits.closed, config.dir_max // _CLOSED_SHARE),
            closed_s=config.limits.closed_hours * 3600.0,
            series=config.limits.series,
            top_ranks=config.top_ranks,
            findings=config.findings,
        ),
        retry or RetryPolicy(),
        late_max=config.limits.late,
        all_self_telemetry=config.self_telemetry == env.FULL,
        served=served,
        unavailable={name: problem for name, problem in unavailable.items() if name not in makers},
    )
    if config.embedded is not None:
        names = config.embedded
        settings = replace(settings, experiment_name=names.experiment_name, run_name=names.run_name, log="")
    return settings, left_out.problems


def _printing_to(stream: TextIOBase | None, exporters: Mapping[str, Options]) -> Mapping[str, Options]:
    """Return exporters with their options, those that print with the stream to print to."""
    if stream is None:
        return exporters
    printing = {name for name in exporters if split_name(name)[0] == "console"}
    return {name: {**options, "stream": stream} if name in printing else options for name, options in exporters.items()}
