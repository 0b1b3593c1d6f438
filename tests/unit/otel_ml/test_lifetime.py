"""Whether a service outlives the job; containers are in `tests/integration/test_last_process.py`."""

from __future__ import annotations

import pytest

from otel_ml._internal.lifecycle.service_lifetime import ends_with_job


@pytest.mark.parametrize("variable", ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"])
def test_in_a_batch_job_everything_ends_with_the_job(variable: str) -> None:
    assert ends_with_job({variable: "77"})


def test_elsewhere_the_service_goes_on() -> None:
    assert not ends_with_job({"SLURM_JOB_ID": "", "PATH": "/bin"})
