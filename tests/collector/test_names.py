"""Names as people write them pass the Collector: ASCII is a rule of OpenTelemetry's APIs, not of OTLP."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collector.pipeline import Collector, Service, experiment_of, training
from tests.e2e.jobs import answer_of, environment, scalars_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NAMES = ["training loss", "损失/训练", "mfu(%)", "mAP@[0.5:0.95]", "prep", "prep/weights", "🔥 loss", " x ", "n" * 600]


def test_what_was_written_on_a_rank_is_in_the_run_behind_a_collector(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path)
    (tmp_path / "host").mkdir(mode=0o700)
    with Service(tmp_path) as service, Collector(tmp_path, "gateway", OTEL_ML_SERVICE=service.grpc) as collector:
        env = environment(
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
            OTEL_ML_EXPERIMENT_ID=experiment,
            XDG_RUNTIME_DIR=tmp_path / "host",
        )
        with training([([sys.executable, "-m", "tests.collector.named", *NAMES], env)], tmp_path):
            pass
        service.wait_for_the_end_of(experiment)
        run = service.run_of(experiment)

        shown = {name: values for name, values in scalars_in("jsonl", run).items() if name in NAMES}
        assert shown == {name: dict.fromkeys(range(3), float(at)) for at, name in enumerate(NAMES)}
        stored = answer_of("jsonl", run)
        assert set(NAMES) <= stored["params"].keys()
        assert {name for name, _, text in stored["texts"] if text == name} == set(NAMES)
        assert {f"final {name}" for name in NAMES} <= stored["summary"].keys()
        assert not [notice for notice in service.account(experiment)["notices"] if "name-changed" in notice]
