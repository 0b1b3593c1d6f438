"""A sweep with submitit: each job is a run, of all its tasks.

    python examples/submitit_jobs.py

The local executor runs the jobs on this machine; with `cluster="slurm"` they are jobs of Slurm, and the code stays as
it is. Expected: two runs in the experiment `sweep`, each with `loss` at the steps 0…19 of its own job, the mean of its
two tasks, and its rate as a parameter.
"""

from __future__ import annotations

import submitit

import otel_ml


def train(rate: float) -> None:
    """Be one task of a job: submitit tells its rank."""
    with otel_ml.init("sweep", name=f"rate={rate}", params={"rate": rate}):
        weight = 4.0
        for _ in otel_ml.steps(range(20)):
            weight -= rate * 2 * weight
            otel_ml.log({"loss": weight**2})
            otel_ml.log({"tasks": 1}, reduce="sum")


if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder="submitit-logs", cluster="local")
    executor.update_parameters(tasks_per_node=2, timeout_min=5)
    for job in [executor.submit(train, rate) for rate in (0.05, 0.1)]:
        job.results()
