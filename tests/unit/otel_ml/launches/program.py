"""A program that prints the id of its run, and what shells start it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

PROGRAM = (
    "from otel_ml._internal.identity.run_identity import identify; from otel_ml.config import Config; import os; "
    "print(identify(Config.from_env(os.environ), os.environ).run_id)"
)


STEP = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}


HELD = """
import os, sys, time
from pathlib import Path
sys.stdout.flush()
begun = Path(os.environ["FOLDER"])
(begun / str(os.getpid())).touch()
while len(list(begun.iterdir())) < MANY:
    time.sleep(0.01)  # between two looks
"""


def held(many: int) -> str:
    """Return a program that prints its id and stays until as many have begun, each of which leaves a file."""
    return f"{PROGRAM}\n{HELD.replace('MANY', str(many))}"


CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork")
"""Starts what is process 1 of a PID namespace of its own."""


def ids(shell: str, *, within: Sequence[str] = (), **variables: str) -> list[str]:
    """Return the run ids of the programs that a script starts; `$P` is one that prints its id."""
    environ = {**os.environ, "PROGRAM": PROGRAM, "P": f"{sys.executable} -c", **variables}
    command = [*within, "bash", "-c", shell]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


SPAWNED = """
import json, os, sys
import torch.distributed as dist
from torch import multiprocessing
import otel_ml

def work(rank, folder, before):
    if before:
        os.environ.update({name: value.format(rank=rank) for name, value in before.items()})
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    ids = []
    for _ in range(2):
        with otel_ml.init("spawned", exporters="jsonl") as run:
            ids.append([run.id, run.rank])
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(ids, file)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    multiprocessing.spawn(work, args=(sys.argv[1], json.loads(sys.argv[2])), nprocs=2)
"""
"""Two ranks of `mp.spawn`, each of which writes the ids of its two runs into a file."""
