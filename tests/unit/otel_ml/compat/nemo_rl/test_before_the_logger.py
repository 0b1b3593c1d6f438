"""What is measured where no `Logger` was made: before it in a driver, and in an actor, which never makes one."""

from __future__ import annotations

import json
import re
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


MEASURING = """
    import json, math
    from otel_ml.compat.nemo_rl import Logger, ThreadSafeTimer
    from otel_ml.compat.nemo_rl import log_container_init_timing, print_message_log_samples, warn_if_inf_grad_norm

    log_container_init_timing()
    timer = ThreadSafeTimer(context={"worker": "driver"})
    with timer.time("config"):
        timer.start("cluster")
        timer.stop("cluster")
    timer.record("idle/total", 2.5)
    timer.mark("restored")
    warn_if_inf_grad_norm(math.inf)
    print_message_log_samples([[{"role": "user", "content": "1 + 1"}]], [1.0], num_samples=1, step=0)
"""

DRIVER = f"""{MEASURING}
    counts = timer.get_timing_metrics("count")
    logger = Logger({{"log_dir": "logs", "mlflow": {{"experiment_name": "grpo-dev", "run_name": "addition"}}}})
    with timer.time("generation"):
        logger.log_metrics({{"loss": 0.5}}, 1, prefix="train", step_finished=True)
    print(json.dumps([logger.run.id, counts, list(timer.get_markers()), timer.get_latest_elapsed("idle/total")]))
    logger.finish()
"""

EVENTS = {"timer.mark", "grad_norm.not_finite", "ml.table", "ml.params"}


def runs_of(server: OtlpServer) -> set[str]:
    """Return all runs of which something came: `experiment/id`."""
    told = [sent.resource for sent in (*server.points(), *server.events())]
    return {f"{resource['ml.experiment.name']}/{resource['ml.experiment.id']}" for resource in told}


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"OTEL_ML_EXPERIMENT_ID": "job-7"},
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
    ],
    ids=["by itself", "going on with a run", "under srun"],
)
def test_what_a_driver_measures_before_its_logger_begins_no_run_and_can_be_read(
    server: OtlpServer, tmp_path: Path, told: dict[str, str]
) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "NRL_JOB_START_EPOCH": "100", **told}

    output, errors = run(DRIVER, environment(tmp_path, variables), tmp_path)

    run_id, counts, marks, latest_s = json.loads(output.splitlines()[-1])
    assert runs_of(server) == {f"grpo-dev/{run_id}"}
    assert {point.name for point in server.points()} >= {"train/loss", "time/generation"}
    assert not re.search("explain init-(late|again)", errors)
    assert (counts, marks, latest_s) == ({"config": 1, "cluster": 1, "idle/total": 1}, ["restored"], 2.5)
    assert "total: " in output


def test_a_process_that_was_told_of_its_jobs_run_records_what_it_measures(server: OtlpServer, tmp_path: Path) -> None:
    program = f"""
        import os, subprocess, sys, otel_ml
        otel_ml.init("grpo-dev", id="job-7")
        told = otel_ml.child_env()
        otel_ml.shutdown()
        subprocess.run([sys.executable, "-c", {dedent(MEASURING)!r}], env={{**os.environ, **told}}, check=True)
    """
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "NRL_JOB_START_EPOCH": "100"}

    run(program, environment(tmp_path, variables), tmp_path)

    assert runs_of(server) == {"grpo-dev/job-7"}
    assert {point.name for point in server.points()} >= {"time/config", "time/cluster", "time/idle/total"}
    assert {event.name for event in server.events()} >= EVENTS
