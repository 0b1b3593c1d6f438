"""`mlflow.log_metric(run_id=…)` into many runs of other processes: few of them are open at a time, and each has all."""

from __future__ import annotations

from pathlib import Path

from tests.integration.worker_process import environment, start, variables
from tests.otlp_server import OtlpServer

RUNS, OPEN = 72, 64

PROGRAM = """
    from otel_ml.compat import mlflow

    with mlflow.start_run() as own:
        for step in range(2):
            for number in range({runs}):
                mlflow.log_metric("eval", number, step=step, run_id=f"run-{{number}}")
                mlflow.log_metric("loss", 1.0)
        mlflow.log_text("what it was", "note.txt", run_id="run-0")
        assert mlflow.active_run() is own
        print("recorded", flush=True)
        input()
"""


def test_of_many_runs_that_a_process_joins_few_are_open_and_each_has_everything(
    server: OtlpServer, tmp_path: Path
) -> None:
    environ = environment(tmp_path, {**variables(server), "OTEL_ML_EXIT_WAIT": "60"})
    with start(PROGRAM.format(runs=RUNS), environ, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "recorded\n"
        left = [event.resource["ml.experiment.id"] for event in server.events("ml.writer.end")]
        _, errors = process.communicate("\n", timeout=100)

    # Once each but the newest, and in the second round again.
    assert len(left) == 2 * RUNS + 1 - OPEN
    assert set(left) == {f"run-{number}" for number in range(RUNS)}
    points = [(point.resource["ml.experiment.id"], point.step, point.value) for point in server.points("eval")]
    assert sorted(points) == sorted((f"run-{number}", step, number) for number in range(RUNS) for step in range(2))
    assert len(server.points("loss")) == 2 * RUNS
    [note] = server.events("ml.text")
    assert (note.resource["ml.experiment.id"], note.body) == ("run-0", "what it was")
    assert "has ended" not in errors
