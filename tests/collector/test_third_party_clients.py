"""Programs that know nothing of otel_ml, through the real Collector: their steps are in the run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import otel_ml
from tests.collector.pipeline import Collector, Service, experiment_of
from tests.e2e.jobs import ROOT, all_finished, environment, processes, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

CLIENTS = ROOT / ".cache" / "clients"
STEPS = 30


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[tuple[Service, Collector]]:
    assert (CLIENTS / "node_modules").is_dir(), "The clients of others are not installed. Run: .ci/clients"
    with ExitStack() as stack:
        service = stack.enter_context(Service(tmp_path, OTEL_ML_ALLOWED_LATENESS=2000))
        yield service, stack.enter_context(Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc))


@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf"])
def test_the_javascript_sdk_trains_on_two_ranks(
    pipeline: tuple[Service, Collector], tmp_path: Path, protocol: str
) -> None:
    service, collector = pipeline
    commands = [
        (
            ["node", CLIENTS / "train.cjs", protocol, STEPS],
            environment(
                OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint, OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path), RANK=rank
            ),
        )
        for rank in range(2)
    ]

    with processes(commands, tmp_path) as started:
        all_finished(started)

    wanted = {
        "loss": (list(range(STEPS)), [step + 0.5 for step in range(STEPS)]),
        "tokens": (list(range(STEPS)), [20.0] * STEPS),
    }
    until(lambda: shown_in(service, tmp_path, wanted) == wanted, seconds=60)


def shown_in(
    service: Service, folder: Path, names: dict[str, tuple[list[int], list[float]]]
) -> dict[str, tuple[list[int], list[float]]]:
    """Return name → (steps, values) of these names, as far as they are written."""
    [run] = list(service.runs.glob(f"*/{experiment_of(folder)}")) or [None]
    if run is None or not (run / "metrics.jsonl").exists():
        return {}
    shown = otel_ml.read(run)
    return {name: shown[name] for name in names if name in shown}


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_what_telemetrygen_sends_is_in_the_run(
    pipeline: tuple[Service, Collector], tmp_path: Path, transport: str
) -> None:
    service, collector = pipeline
    address = ["--otlp-http", "--otlp-endpoint", collector.http] if transport == "http" else []
    address = address or ["--otlp-endpoint", collector.grpc]
    command = [
        CLIENTS / "telemetrygen", "metrics", *address, "--otlp-insecure", "--metrics", "20", "--rate", "0",
        "--service", "trainer",
        "--metric-type", "Sum", "--otlp-metric-name", "tokens", "--aggregation-temporality", "delta",
        "--otlp-attributes", f'ml.experiment.id="{experiment_of(tmp_path)}"',
        "--telemetry-attributes", "ml.step=7", "--telemetry-attributes", 'ml.reduction="sum"',
    ]  # fmt: skip

    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    until(lambda: shown_in(service, tmp_path, {"tokens": ([], [])}) == {"tokens": ([7], [190.0])}, seconds=60)
