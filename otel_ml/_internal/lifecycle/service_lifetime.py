"""Whether the service that this process has started goes on when the process has left.

Usually it does: it is a process of its own session. Some who start jobs end all that a job has started with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from otel_ml.wire.pid_namespace import is_in_container

__all__ = ["ends_with_job"]

_BATCH_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
"""Variables of schedulers that end the processes of a job with it."""


def ends_with_job(environ: Mapping[str, str]) -> bool:
    """Whether everything ends with the job: in a batch job, or in a container whose process 1 is or has started us.

    When process 1 of a container ends, the kernel ends all others of it.
    """
    if any(environ.get(name) for name in _BATCH_JOBS):
        return True
    return os.getpid() == 1 or (os.getppid() == 1 and is_in_container())
