"""submitit: a job of two tasks by the executor that is named."""

import sys

import submitit

from tests.launchers.programs.job import train

if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder=sys.argv[2], cluster=sys.argv[1])
    executor.update_parameters(tasks_per_node=2, timeout_min=2)
    executor.submit(train).results()
