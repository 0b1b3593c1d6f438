"""Each launcher, how it is started, and how many runs of how many ranks that is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """A launcher.

    Attributes:
        name: in the table of docs/deployment.md.
        command: a line of bash; `{folder}` is an empty one, `{port}` a free port.
        runs: how many it is right to have.
        ranks: of each run.
    """

    name: str
    command: str
    runs: int = 1
    ranks: int = 2

    @property
    def needs_slurm(self) -> bool:
        """Whether a cluster has to be there."""
        return any(word in self.command for word in ("srun", "sbatch", "salloc", "slurm"))


PYTHON = sys.executable
PROGRAMS = Path(__file__).parent / "programs"
JOB = f"{PROGRAMS}/job.py"
TORCHRUN = f"{PYTHON} -m torch.distributed.run"
AGENT = f"{TORCHRUN} --nnodes {{nodes}} --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{{{{port}}}}"
TWO_AGENTS = AGENT.format(nodes=2)
OPEN_MPI = "mpirun.openmpi --allow-run-as-root --oversubscribe"
MPICH = "mpirun.mpich"
SWEEP = f"{PYTHON} {PROGRAMS}/sweep.py -m +x=1,2"
BY_HAND = f"for r in 0 1; do RANK=$r WORLD_SIZE=2 {PYTHON} {JOB}"
IN_SHELLS = f"bash -c '{PYTHON} {JOB}; true'"

CASES = (
    Case("no launcher", f"{PYTHON} {JOB}", ranks=1),
    Case("ranks by hand: `RANK`, `WORLD_SIZE`", f"{BY_HAND} & done; wait"),
    Case("ranks by hand, twice in one shell", f"for i in 1 2; do {BY_HAND} & done; wait; done", 2),
    Case(
        "ranks by hand, in copies of a shell",
        f"for r in 0 1; do (export RANK=$r WORLD_SIZE=2; {PYTHON} {JOB} | cat) & done; wait",
    ),
    Case("torchrun", f"{TORCHRUN} --nproc-per-node 2 {JOB}"),
    Case("torchrun, ranks in shells", f"{TORCHRUN} --no-python --nproc-per-node 2 {IN_SHELLS}"),
    Case(
        "torchrun, one `--rdzv-id`, twice", f"for i in 1 2; do {TORCHRUN} --rdzv-id a --nproc-per-node 2 {JOB}; done", 2
    ),
    Case("torchrun, two agents", f"for i in 1 2; do {TWO_AGENTS} --rdzv-id a {JOB} & done; wait"),
    Case("`torch.multiprocessing.spawn`", f"{PYTHON} -m tests.launchers.programs.spawned {{folder}}/store"),
    Case('Lightning, `strategy="ddp"`', f"{PYTHON} {PROGRAMS}/lightning_ddp.py"),
    Case("SLURM: `srun`", f"srun -N2 -n2 {PYTHON} {JOB}"),
    Case("SLURM: `srun`, ranks in shells", f"srun -n2 {IN_SHELLS}"),
    Case("SLURM: two programs in the shell of `srun`", f"srun -n1 bash -c '{PYTHON} {JOB}; {PYTHON} {JOB}'", 2, 1),
    Case(
        "SLURM: two at once in the shell of `srun`", f"srun -n1 bash -c '{PYTHON} {JOB} & {PYTHON} {JOB}; wait'", 2, 1
    ),
    Case("SLURM: two programs in the shell of `salloc`", f"salloc bash -c '{PYTHON} {JOB}; {PYTHON} {JOB}'", 2, 1),
    Case("SLURM: two steps of one job", f"salloc -n2 bash -c 'srun {PYTHON} {JOB}; srun {PYTHON} {JOB}'", 2),
    Case(
        "SLURM: two torchruns in a shell",
        f"srun -n1 bash -c 'for i in 1 2; do {TORCHRUN} --nproc-per-node 2 {JOB}; done'",
        2,
    ),
    Case(
        "SLURM: torchrun on two nodes, one `--rdzv-id` in two jobs",
        f"for i in 1 2; do salloc -N2 srun --ntasks-per-node=1 {TWO_AGENTS} --rdzv-id 100 {JOB}; done",
        2,
    ),
    Case(
        "SLURM: spawned in the shell of `srun`",
        f"srun -n1 bash -c '{PYTHON} -m tests.launchers.programs.spawned {{folder}}/s'",
    ),
    Case("SLURM: `mpirun` in the shell of `srun`", f"srun -n1 bash -c '{MPICH} -launcher fork -n 2 {PYTHON} {JOB}'"),
    Case("Open MPI", f"{OPEN_MPI} -n 2 {PYTHON} {JOB}"),
    Case("Open MPI, ranks in shells", f"{OPEN_MPI} -n 2 {IN_SHELLS}"),
    Case("Open MPI, twice", f"for i in 1 2; do {OPEN_MPI} -n 2 {PYTHON} {JOB}; done", 2),
    Case("MPICH", f"{MPICH} -n 2 {PYTHON} {JOB}"),
    Case("MPICH, ranks in shells", f"{MPICH} -n 2 {IN_SHELLS}"),
    Case("submitit, local", f"{PYTHON} -m tests.launchers.programs.submitted local {{folder}}"),
    Case("submitit, SLURM", f"{PYTHON} -m tests.launchers.programs.submitted slurm {{folder}}"),
    Case("Ray Tune, two trials", f"{PYTHON} -m tests.launchers.programs.ray_jobs tune {{folder}}", 2, 1),
    Case("Ray Tune, two trials of a class", f"{PYTHON} -m tests.launchers.programs.ray_jobs class {{folder}}", 2, 1),
    Case("Ray Train", f"{PYTHON} -m tests.launchers.programs.ray_jobs train {{folder}}"),
    Case("Ray Train in two trials of Ray Tune", f"{PYTHON} -m tests.launchers.programs.ray_jobs both {{folder}}", 2),
    Case("Dask, two workers", f"{PYTHON} -m tests.launchers.programs.dask_tasks"),
    Case("Hydra, a sweep of two", f"{SWEEP} hydra.sweep.dir={{folder}}", 2, 1),
    Case(
        "Hydra, a sweep of two by joblib",
        f"{SWEEP} hydra/launcher=joblib hydra.launcher.n_jobs=2 hydra.sweep.dir={{folder}}",
        2,
        1,
    ),
    Case(
        "Hydra, a sweep of two on two ranks",
        f"{TORCHRUN} --nproc-per-node 2 {PROGRAMS}/sweep.py -m +x=1,2 hydra.sweep.dir={{folder}}/$RANDOM",
        2,
    ),
)
