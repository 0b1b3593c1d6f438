"""What is recorded where no backends were made: before them in a controller, and in an actor, which never makes any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.integration.worker_process import environment, run
from tests.otlp_server import OtlpServer, otlp_server


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with otlp_server() as running:
        yield running


RECORDING = """
    from otel_ml.compat.forge import Tracer, record_episode_sample, record_metric

    record_metric("queue/size", 1.0)
    record_episode_sample("rollouts", {"reward": 0.5})
    tracer = Tracer("weights")
    tracer.start()
    tracer.stop()
"""

CONTROLLER = f"""{RECORDING}
    import asyncio
    from otel_ml.compat.forge import get_or_create_metric_logger

    async def main():
        logger = await get_or_create_metric_logger(process_name="Controller")
        await logger.init_backends.call_one({{"mlflow": {{"project": "grpo", "name": "addition"}}}})
        record_metric("loss", 0.5)
        await logger.flush.call_one(1)
        await logger.shutdown.call_one()

    asyncio.run(main())
"""


def experiments_of(server: OtlpServer) -> set[str]:
    return {str(sent.resource["ml.experiment.name"]) for sent in (*server.points(), *server.events())}


@pytest.mark.parametrize(
    "told",
    [{}, {"OTEL_ML_EXPERIMENT_ID": "job-7"}, {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}],
    ids=["by itself", "going on with a run", "under srun"],
)
def test_what_a_controller_records_before_its_backends_begins_no_run_and_is_said_once(
    server: OtlpServer, tmp_path: Path, told: dict[str, str]
) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, **told}

    _, errors = run(CONTROLLER, environment(tmp_path, variables), tmp_path)

    assert experiments_of(server) == {"grpo"}
    assert {point.name for point in server.points() if "otel_ml/" not in point.name} == {"loss"}
    assert "ml.table" not in {event.name for event in server.events()}
    assert errors.count("before init_backends()") == 1
    assert "explain init-" not in errors


def test_an_actor_that_was_told_of_its_jobs_run_records_without_backends(server: OtlpServer, tmp_path: Path) -> None:
    program = f"""
        import os, subprocess, sys, otel_ml
        from otel_ml.compat.forge import child_env
        otel_ml.init("grpo", id="job-7")
        told = child_env()
        otel_ml.shutdown()
        subprocess.run([sys.executable, "-c", {dedent(RECORDING)!r}], env={{**os.environ, **told}}, check=True)
    """

    _, errors = run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    assert experiments_of(server) == {"grpo"}
    assert {point.name for point in server.points()} >= {"queue/size", "weights/total_duration_max_s"}
    assert "ml.table" in {event.name for event in server.events()}
    assert "before init_backends()" not in errors
