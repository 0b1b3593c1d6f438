"""What the agent scrapes from engines is in the same run, on the axis `time`, beside the training step of then."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.collector.pipeline import Collector, Service, experiment_of
from tests.e2e.jobs import environment, processes, reach, rows_in, scalars_in, until
from tests.fakes.vllm_metrics import VllmMetrics

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

LABELS = "engine/0/model_name/tiny"


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[tuple[Service, Collector, Path]]:
    """An agent in front of a service that takes at most 500 series."""
    targets, config = tmp_path / "targets", tmp_path / "otel-ml.yaml"
    targets.mkdir()
    config.write_text("scraped: {deny: ['scrape_*', 'system.*'], max_series: 500}\nallowed_lateness: 1000\n")
    with ExitStack() as stack:
        service = stack.enter_context(Service(tmp_path, options=["--config", config]))
        agent = Collector(
            tmp_path, "agent", OTEL_ML_GATEWAY=service.grpc, OTEL_ML_SCRAPE=targets, OTEL_ML_SCRAPE_INTERVAL="500ms",
            OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path),
        )  # fmt: skip
        yield service, stack.enter_context(agent), targets


def windows_of(service: Service, folder: Path) -> dict[str, dict[int, float]]:
    """Return published name → window → value, of the axis `time`."""
    files = list(service.runs.glob(f"*/{experiment_of(folder)}/metrics.jsonl"))
    shown: dict[str, dict[int, float]] = {}
    for row in (row for file in files for row in rows_in(file)):
        if row.get("axis") == "time":
            for name, value in row["values"].items():
                shown.setdefault(name, {})[row["step"]] = float(value)
    return shown


@pytest.mark.feature("N31", "better", "scraped beside the engine, with rates, quantiles and the training step")
def test_a_vllm_engine_is_in_the_run_with_rates_quantiles_and_the_training_step(
    pipeline: tuple[Service, Collector, Path], tmp_path: Path
) -> None:
    service, agent, targets = pipeline
    training = environment(
        OTEL_EXPORTER_OTLP_ENDPOINT=agent.endpoint, OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path),
    )  # fmt: skip
    with VllmMetrics() as engine:
        (targets / "vllm.json").write_text(json.dumps([{"targets": [engine.address], "labels": {"job": "vllm"}}]))
        command = [sys.executable, "-m", "tests.e2e.loop", 2000, 0.1]
        with processes([(command, training)], tmp_path) as [rank]:
            reach(rank, 5)
            seen = engine.scrapes
            until(lambda: engine.scrapes > seen + 1)
            engine.serve(first_tokens_s=[0.3] * 95 + [4.0] * 5, tokens=10)
            shown = until(lambda: complete(windows_of(service, tmp_path)), seconds=60)

    rates = shown[f"vllm/generation_tokens_total/rate/{LABELS}"]
    assert sum(rates.values()) * 10 == pytest.approx(100 * 10)
    assert set(shown[f"vllm/num_requests_running/{LABELS}"].values()) == {3.0}
    assert set(shown[f"vllm/kv_cache_usage_perc/{LABELS}"].values()) == {0.25}
    [(window, mean)] = shown[f"vllm/time_to_first_token_seconds/{LABELS}"].items()
    assert mean == pytest.approx(0.95 * 0.3 + 0.05 * 4.0)
    assert 0.25 < shown[f"vllm/time_to_first_token_seconds/{LABELS}/p50"][window] <= 0.5
    assert 2.5 < shown[f"vllm/time_to_first_token_seconds/{LABELS}/p99"][window] <= 5.0
    assert shown["vllm/otel_ml/step"][window] > 0


def complete(shown: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """Return what is shown once a window with requests has closed."""
    return shown if f"vllm/time_to_first_token_seconds/{LABELS}/p99" in shown else {}


@pytest.mark.full
def test_ten_thousand_series_do_not_drown_the_run(pipeline: tuple[Service, Collector, Path], tmp_path: Path) -> None:
    service, _, targets = pipeline
    with VllmMetrics(series=10_000) as engine:
        (targets / "vllm.json").write_text(json.dumps([{"targets": [engine.address], "labels": {"job": "vllm"}}]))
        shown = until(lambda: overflowed(windows_of(service, tmp_path)), seconds=150)

    users = [name for name in shown if "otel_ml/" not in name]
    assert 400 < len(users) <= 500


def overflowed(shown: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """Return what is shown once a window that all series came in has closed: the first may have had some of them."""
    return shown if max(shown.get("vllm/otel_ml/overflow", {}).values(), default=0.0) >= 9_500 else {}


def test_a_ray_job_its_actors_and_the_endpoints_that_ray_announces_are_one_run(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path)
    # Ray puts sockets below this folder, whose paths may have 107 characters only.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as ray, ExitStack() as stack:
        service = stack.enter_context(Service(tmp_path, OTEL_ML_ALLOWED_LATENESS=1000))
        agent = stack.enter_context(
            Collector(
                tmp_path, "agent", OTEL_ML_GATEWAY=service.grpc, OTEL_ML_SCRAPE=ray, OTEL_ML_SCRAPE_INTERVAL="1s",
                OTEL_ML_EXPERIMENT_ID=experiment,
            )
        )  # fmt: skip
        variables = environment(
            RAY_USAGE_STATS_ENABLED=0, RAY_raylet_start_wait_time_s=200,
            OTEL_EXPORTER_OTLP_ENDPOINT=agent.endpoint, OTEL_ML_EXPERIMENT_ID=experiment,
        )  # fmt: skip
        with (tmp_path / "ray_job.log").open("wb") as log:
            job = subprocess.Popen(
                [sys.executable, "-m", "tests.collector.ray_job", ray],
                env=variables, stdin=subprocess.PIPE, stdout=log, stderr=log,
            )  # fmt: skip
            try:
                until(lambda: shows_ray(job, service, tmp_path), seconds=300)
            finally:
                job.communicate(timeout=90)
        service.wait_for_the_end_of(experiment)
        service.stop()

    shown = scalars_in("jsonl", service.run_of(experiment))
    assert service.run_of(experiment).parent.name == "ray-job"
    assert shown["driver/queued"] == {step: float(step) for step in range(5)}
    assert shown["generator/tokens"] == {step: 100.0 * step for step in range(5)}


def shows_ray(job: subprocess.Popen[bytes], service: Service, folder: Path) -> bool:
    assert job.poll() is None, (folder / "ray_job.log").read_text()
    return any(name.startswith("ray/ray_node_mem") for name in windows_of(service, folder))
