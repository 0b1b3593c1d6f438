from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.config import EmbeddedRun, Limits, ScrapedSeries, ServiceConfig
from otel_ml_service.configured_runs import configured_runs
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.live_runs.run_settings import RunSettings

EMBEDDED = EmbeddedRun("run-1", "digits", "big", Path("rendezvous"))


def made(config: ServiceConfig, **further: Any) -> tuple[RunSettings, tuple[str, ...]]:
    arguments = {"makers": None, "served": None, "retry": None, "console": None}
    return configured_runs(config, **{**arguments, **further})


def test_every_setting_of_a_service_is_that_of_its_runs() -> None:
    config = ServiceConfig(
        exporters={"jsonl": {}}, dir_max=1_000, allowed_lateness_s=0.5, end_silence_s=7.0, top_ranks=3, findings=False,
        limits=Limits(queue=1, open=2, retained=3, closed=4, closed_hours=5, late=6, series=7),
        scraped=ScrapedSeries(("vllm/*",), ("go_*",), 9), self_telemetry="full",
    )  # fmt: skip

    runs, problems = made(config)

    assert problems == ()
    assert runs.engine == EngineSettings(
        allowed_lateness_s=0.5, end_silence_s=7.0, resume_wait_s=60.0, scraped_series=9, scraped_allow=("vllm/*",),
        scraped_deny=("go_*",), open_bytes=2, retained_bytes=3, closed_bytes=4, closed_s=18_000.0, series=7,
        top_ranks=3, findings=False,
    )  # fmt: skip
    assert (runs.late_max, runs.all_self_telemetry, runs.log) == (6, True, "service.log")
    assert (list(runs.exporters), runs.unavailable, runs.retry) == (["jsonl"], {}, RetryPolicy())


@pytest.mark.parametrize(("dir_max", "closed"), [(800, 100), (799, 99), (8_000, 500)])
def test_closed_steps_take_an_eighth_of_all_that_is_kept_on_the_disk_at_most(dir_max: int, closed: int) -> None:
    runs, _ = made(ServiceConfig(dir_max=dir_max, limits=Limits(closed=500)))

    assert runs.engine.closed_bytes == closed


def test_backends_get_only_problems_of_the_service_where_nothing_else_is_asked_for() -> None:
    assert not made(ServiceConfig())[0].all_self_telemetry


def test_the_run_of_a_job_has_its_names_and_nobody_to_wait_for() -> None:
    runs, _ = made(ServiceConfig(embedded=EMBEDDED))

    assert (runs.experiment_name, runs.run_name, runs.log) == ("digits", "big", "")
    assert runs.engine.resume_wait_s == 0.0


def test_an_exporter_that_cannot_be_used_keeps_serve_from_starting_and_not_the_service_of_a_job() -> None:
    wrong = {"jsonl": {"evry": 2}, "console": {}}

    with pytest.raises(ConfigError, match="evry is not an option") as caught:
        made(ServiceConfig(exporters=wrong))
    runs, problems = made(ServiceConfig(exporters=wrong, embedded=EMBEDDED))

    assert list(runs.exporters) == ["console"]
    assert problems == caught.value.problems
    assert list(runs.unavailable) == ["jsonl"]
    assert "evry" in runs.unavailable["jsonl"]


def test_a_job_of_whose_exporters_none_can_be_used_is_written_by_one_that_needs_nothing() -> None:
    alone, problems = made(ServiceConfig(exporters={"tensorbord": {}}, embedded=EMBEDDED))
    none, none_problems = made(ServiceConfig(exporters={}, embedded=EMBEDDED))
    brought, _ = made(ServiceConfig(exporters={"nowhere": {}}, embedded=EMBEDDED), makers={"own": RecordingExporter})

    assert (list(alone.exporters), len(problems)) == (["jsonl"], 1)
    assert alone.unavailable == {}  # a name that nobody has is a mistake, and lacks nothing
    assert (dict(none.exporters), none_problems) == ({}, ())
    assert list(brought.exporters) == ["own"]


def test_only_exporters_that_print_are_told_where_to() -> None:
    config = ServiceConfig(exporters={"console": {}, "console/second": {}, "jsonl": {}})
    printed = io.StringIO()

    runs, _ = made(config, console=printed)

    assert list(runs.exporters) == ["console", "console/second", "jsonl"]
    for name in ("console", "console/second"):
        assert runs.exporters[name]()._stream is printed  # type: ignore[attr-defined]


def test_a_retry_policy_that_is_given_is_taken() -> None:
    assert made(ServiceConfig(), retry=RetryPolicy(initial_s=3.0))[0].retry == RetryPolicy(initial_s=3.0)
