"""A launch is one start: what is in the environment twice is not the same run twice, and what is in parts is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from otel_ml._internal.identity.ranks import detect

PROGRAM = (
    "from otel_ml._internal.identity.run_identity import identify; from otel_ml.config import Config; import os; "
    "print(identify(Config.from_env(os.environ), os.environ).run_id)"
)
STEP = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}


@pytest.fixture(autouse=True)
def runtime_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks by hand write down their start where nobody else does."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))


HELD = """
import os, sys, time
from pathlib import Path
sys.stdout.flush()
begun = Path(os.environ["FOLDER"])
(begun / str(len(list(begun.iterdir())))).touch()
while len(list(begun.iterdir())) < MANY:
    time.sleep(0.01)  # between two looks
"""


def held(many: int) -> str:
    """Return a program that prints its id and stays until as many have begun, each of which leaves a file."""
    return f"{PROGRAM}\n{HELD.replace('MANY', str(many))}"


def ids(shell: str, **variables: str) -> list[str]:
    """Return the run ids of the programs that a script starts; `$P` is one that prints its id."""
    environ = {**os.environ, "PROGRAM": PROGRAM, "P": f"{sys.executable} -c", **variables}
    done = subprocess.run(["bash", "-c", shell], env=environ, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


def test_every_program_of_an_interactive_slurm_shell_is_a_run() -> None:
    first, second = ids('$P "$PROGRAM"; $P "$PROGRAM"', **STEP, SLURM_TASK_PID="1")

    assert first != second
    assert {first.rpartition("-")[0], second.rpartition("-")[0]} == {"slurm-77.0"}


def test_ranks_by_hand_in_an_interactive_slurm_shell_are_one_run_and_the_next_ones_another() -> None:
    ranks = 'for r in 0 1; do RANK=$r WORLD_SIZE=2 $P "$PROGRAM" & done; wait'

    found = ids(f"{ranks}; {ranks}", **STEP, SLURM_TASK_PID="1")

    assert found[0] == found[1] != found[2] == found[3]


def test_the_one_task_that_slurm_starts_itself_keeps_its_run_when_it_is_requeued() -> None:
    start = 'SLURM_TASK_PID=$BASHPID exec $P "$PROGRAM"'

    assert ids(f"({start}); ({start})", **STEP) == ["slurm-77.0", "slurm-77.0"]


def test_tasks_that_slurm_starts_in_shells_of_their_own_are_one_run() -> None:
    found = ids(
        'for r in 0 1; do SLURM_PROCID=$r SLURM_TASK_PID=$r bash -c "$P \\"\\$PROGRAM\\"; true"; done',
        **{**STEP, "SLURM_STEP_NUM_TASKS": "2"},
    )

    assert found == ["slurm-77.0", "slurm-77.0"]


def test_two_torchruns_of_one_slurm_shell_are_two_runs() -> None:
    agents = 'for i in 1 2; do bash -c "TORCHELASTIC_RUN_ID=none $P \\"\\$PROGRAM\\"; true"; done'

    assert len(set(ids(agents, **STEP, SLURM_TASK_PID="1", RANK="0", WORLD_SIZE="2"))) == 2


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD", "PMI"])
def test_ranks_of_mpi_in_shells_of_their_own_are_one_run(variable: str) -> None:
    found = ids(
        f'for r in 0 1; do {variable}_RANK=$r {variable}_SIZE=2 bash -c "$P \\"\\$PROGRAM\\"; true"; done',
    )

    assert len(found) == 2
    assert len(set(found)) == 1


def test_ranks_by_hand_in_shells_of_their_own_are_one_run_and_the_next_ones_another() -> None:
    ranks = 'bash -c \'for r in 0 1; do RANK=$r WORLD_SIZE=2 bash -c "$P \\"\\$PROGRAM\\"; true"; done; true\''

    found = ids(f"{ranks}; {ranks}")

    assert found[0] == found[1] != found[2] == found[3]


def test_the_same_ranks_started_by_hand_again_from_one_shell_are_another_run() -> None:
    ranks = 'for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_PORT=29500 $P "$PROGRAM" & done; wait'

    found = ids(f"{ranks}; {ranks}")

    assert found[0] == found[1] != found[2] == found[3]


def test_a_shell_with_a_rank_and_a_size_starts_a_run_with_each_program() -> None:
    found = ids('export RANK=0 WORLD_SIZE=1; $P "$PROGRAM"; $P "$PROGRAM"')

    assert len(set(found)) == 2


def test_ranks_by_hand_that_come_one_after_the_other_are_one_run_and_again_another() -> None:
    shards = 'for r in 0 1 2; do RANK=$r WORLD_SIZE=3 $P "$PROGRAM"; done'

    found = ids(f"{shards}; {shards}")

    assert len(set(found[:3])) == len(set(found[3:])) == 1
    assert found[0] != found[3]


@pytest.mark.parametrize("rank", ['(cd /; $P "$PROGRAM"; true) &', '{ $P "$PROGRAM"; true; } | cat &'])
def test_ranks_by_hand_in_copies_of_a_shell_are_one_run(rank: str) -> None:
    found = ids(f"export WORLD_SIZE=2; for r in 0 1; do export RANK=$r; {rank} done; wait")

    assert len(found) == 2
    assert len(set(found)) == 1


def test_trials_in_copies_of_a_shell_that_run_at_once_are_a_run_each(tmp_path: Path) -> None:
    rank = 'RANK=$r WORLD_SIZE=2 $P "$HELD"'
    trials = f"for t in 0 1; do (for r in 0 1; do {rank} & done; wait) >$FOLDER/of-$t & done; wait; cat $FOLDER/of-*"

    found = ids(trials, HELD=held(4), FOLDER=str(tmp_path))

    assert found[0] == found[1] != found[2] == found[3]


def test_a_rank_by_hand_that_is_started_again_while_others_run_is_in_their_run(tmp_path: Path) -> None:
    killed = 'RANK=1 WORLD_SIZE=2 $P "$PROGRAM"'
    job = f'RANK=0 WORLD_SIZE=2 $P "$HELD" & until [ -e $FOLDER/0 ]; do :; done; {killed}; {killed}; : >$FOLDER/1; wait'

    found = ids(job, HELD=held(2), FOLDER=str(tmp_path))

    assert len(found) == 3
    assert len(set(found)) == 1


def test_two_starts_by_hand_at_once_from_one_shell_are_two_runs(tmp_path: Path) -> None:
    rank = 'RANK=$r WORLD_SIZE=2 $P "$HELD" & until [ "$(ls $FOLDER | wc -l)" = $n ]; do :; done'
    starts = f"n=0; for start in 1 2; do for r in 0 1; do n=$((n + 1)); {rank}; done; done; wait"

    found = ids(starts, HELD=held(4), FOLDER=str(tmp_path))

    assert sorted(map(found.count, set(found))) == [2, 2]


def test_a_program_that_a_rank_by_hand_starts_is_in_the_run_of_that_rank() -> None:
    child = (
        "import os, subprocess, sys; "
        + PROGRAM
        + "; sys.stdout.flush(); subprocess.run([sys.executable, '-c', os.environ['PROGRAM']])"
    )

    found = ids('for r in 0 1; do RANK=$r WORLD_SIZE=2 $P "$CHILD" & done; wait', CHILD=child)

    assert len(found) == 4
    assert len(set(found)) == 1


def test_what_a_killed_rank_has_left_half_written_keeps_no_start_from_being_one(tmp_path: Path) -> None:
    (tmp_path / f"otel-ml-{os.getuid()}").mkdir(mode=0o700)
    first = (
        'RANK=0 WORLD_SIZE=2 $P "$PROGRAM" >/dev/null; for file in $XDG_RUNTIME_DIR/*/*.json; do echo "[{" >$file; done'
    )

    found = ids(f'{first}; for r in 0 1; do RANK=$r WORLD_SIZE=2 $P "$PROGRAM"; done', XDG_RUNTIME_DIR=str(tmp_path))

    assert len(set(found)) == 1


def test_ranks_that_cannot_write_down_their_start_say_so_and_are_the_run_of_their_shell(tmp_path: Path) -> None:
    for folder in (f"otel-ml-{os.getuid()}", ".cache"):
        (tmp_path / folder).touch()  # is none
    said = f"from otel_ml._internal.error_reporting import reporter; {PROGRAM}; reporter.connect(print)"
    ranks = 'for r in 0 1; do RANK=$r WORLD_SIZE=2 $P "$SAID"; done'

    first, *words = ids(ranks, XDG_RUNTIME_DIR=str(tmp_path), HOME=str(tmp_path), SAID=said)

    assert first in words, "one run"
    assert words.count("write") == words.count("NotADirectoryError:") == 2, words


@pytest.mark.parametrize(("name", "begins"), [("none", ""), ("rl", "rl-")])
def test_the_same_torchrun_command_twice_is_two_runs(name: str, begins: str) -> None:
    ranks = f'for r in 0 1; do TORCHELASTIC_RUN_ID={name} RANK=$r $P \\"\\$PROGRAM\\"; done; true'

    found = ids(f'for i in 1 2; do bash -c "{ranks.replace("$r", chr(92) + "$r")}"; done', WORLD_SIZE="2")

    assert found[0] == found[1] != found[2] == found[3]
    assert all(run_id.startswith(begins) for run_id in found)


def test_two_slurm_jobs_with_one_rendezvous_id_are_two_runs() -> None:
    named = {**STEP, **TORCHRUN, "TORCHELASTIC_RUN_ID": "100", "GROUP_WORLD_SIZE": "2"}

    jobs = [ids('$P "$PROGRAM"', **{**named, "SLURM_JOB_ID": job}) for job in ("77", "78")]

    assert jobs == [["slurm-77-100"], ["slurm-78-100"]]


AGENT = 'bash -c "TORCHELASTIC_RUN_ID=$NAME $P \\"\\$PROGRAM\\"; true" agent $ASKED'
STEP_OF_AGENT = f"SLURM_TASK_PID=$BASHPID; export SLURM_TASK_PID; exec {AGENT}"


@pytest.mark.parametrize("hosts", ["1", "2"])
def test_two_torchruns_of_one_name_in_two_steps_of_a_slurm_job_are_two_runs(hosts: str) -> None:
    steps = f"for s in 0 1 0; do (export SLURM_STEP_ID=$s; {STEP_OF_AGENT}); done"
    variables = {**STEP, "SLURM_STEP_NUM_TASKS": hosts, "SLURM_STEP_NUM_NODES": hosts, "GROUP_WORLD_SIZE": hosts}

    first, second, requeued = ids(steps, NAME="77", RANK="0", WORLD_SIZE="2", **variables)

    assert (first, second, requeued) == ("slurm-77.0-77", "slurm-77.1-77", "slurm-77.0-77")


@pytest.mark.parametrize(("name", "run_id"), [("77", "slurm-77-77"), ("none", "slurm-77")])
def test_agents_of_one_launch_in_steps_of_their_own_are_one_run(name: str, run_id: str) -> None:
    steps = f"for s in 0 1; do (export SLURM_STEP_ID=$s GROUP_WORLD_SIZE=$((s + 1)); {STEP_OF_AGENT}); done"

    found = ids(steps, NAME=name, ASKED="--nnodes 1:2", RANK="0", WORLD_SIZE="2", **STEP)

    assert found == [run_id, run_id]


def test_an_elastic_job_has_one_id_however_many_agents_have_come() -> None:
    elastic = 'bash -c "TORCHELASTIC_RUN_ID=job77 $P \\"\\$PROGRAM\\"; true" agent'
    variables = {"RANK": "0", "WORLD_SIZE": "2"}

    one = ids(f"{elastic} --nnodes 1:2", **variables, GROUP_WORLD_SIZE="1")
    two = ids(f"{elastic} --nnodes=1:2", **variables, GROUP_WORLD_SIZE="2")
    by_variable = ids(elastic, **variables, PET_NNODES="1:2")

    assert one == two == by_variable == ["job77"]
    assert ids(f"{elastic} --nnodes 1:1", **variables) != ["job77"]


def test_mpirun_within_a_slurm_step_says_the_ranks() -> None:
    place = detect({**STEP, "PMI_RANK": "1", "PMI_SIZE": "4"})

    assert (place.launcher, place.rank, place.world_size) == ("mpi", 1, 4)


def test_srun_that_speaks_mpis_protocol_is_slurm() -> None:
    assert detect({**STEP, "SLURM_STEP_NUM_TASKS": "4", "PMI_RANK": "0", "PMI_SIZE": "4"}).launcher == "slurm"


def test_the_shell_of_salloc_is_one_process_whatever_the_job_has() -> None:
    assert detect({**STEP, "SLURM_NTASKS": "16"}).world_size == 1


def test_submitits_local_executor_says_the_ranks() -> None:
    place = detect(
        {
            "SUBMITIT_EXECUTOR": "local",
            "SUBMITIT_LOCAL_JOB_ID": "4711",
            "SUBMITIT_LOCAL_NTASKS": "4",
            "SUBMITIT_LOCAL_GLOBALID": "3",
            "SUBMITIT_LOCAL_LOCALID": "3",
        }
    )

    assert (place.launcher, place.rank, place.world_size, place.local_rank, place.job) == (
        "submitit",
        3,
        4,
        3,
        "submitit-4711",
    )


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


@pytest.mark.parametrize("told", [{}, {"SLURM_TASK_PID": "1", **STEP}], ids=["by nobody", "by srun of their parent"])
def test_spawned_ranks_agree_on_each_run_in_the_store_of_their_group(tmp_path: Path, told: Mapping[str, str]) -> None:
    program = tmp_path / "spawned.py"
    program.write_text(textwrap.dedent(SPAWNED))
    subprocess.run([sys.executable, program, tmp_path, json.dumps(told)], check=True, timeout=110, cwd=tmp_path)

    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))

    assert [rank for _, rank in first + second] == [0, 0, 1, 1]
    assert [run for run, _ in first] == [run for run, _ in second]
    assert first[0][0] != first[1][0]


MPI_ON_TWO_HOSTS = {"SLURM_JOB_ID": "77", "PMI_RANK": "{rank}", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1"}


def test_two_mpiruns_on_several_hosts_of_one_slurm_job_are_two_runs(tmp_path: Path) -> None:
    found = []
    for start in ("1", "2"):
        (tmp_path / start).mkdir()
        (tmp_path / "spawned.py").write_text(SPAWNED)
        command = [sys.executable, tmp_path / "spawned.py", tmp_path / start, json.dumps(MPI_ON_TWO_HOSTS)]
        subprocess.run(command, check=True, timeout=110, cwd=tmp_path)
        found.append({json.loads((tmp_path / start / f"{rank}.json").read_text())[0][0] for rank in (0, 1)})

    assert len(found[0]) == len(found[1]) == 1
    assert found[0] != found[1]


def test_mpiruns_whose_proxies_slurm_starts_have_the_step_of_them_for_their_name() -> None:
    steps = [{**STEP, "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": step} for step in ("3", "4")]
    hosts = {"PMI_RANK": "0", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}

    assert [ids('$P "$PROGRAM"', **step, **hosts) for step in steps] == [["slurm-77.3"], ["slurm-77.4"]]


def test_mpiruns_on_several_hosts_that_nothing_tells_apart_are_the_run_of_their_slurm_job() -> None:
    ranks = 'for r in 0 1; do PMI_RANK=$r PMI_SIZE=2 MPI_LOCALNRANKS=1 bash -c "$P \\"\\$PROGRAM\\"; true"; done'

    assert ids(ranks, SLURM_JOB_ID="77") == ["slurm-77", "slurm-77"]


LAUNCHES = """
import os, sys
from pathlib import Path
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from otel_ml._internal.identity.run_identity import identify
from otel_ml.config import Config

def config():
    return LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, run_id=sys.argv[2], rdzv_backend="c10d",
                        rdzv_endpoint="localhost:0", max_restarts=1, monitor_interval=0.1, start_method="fork")

def train(launch):
    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    run_id = identify(Config.from_env(os.environ), os.environ).run_id
    Path(sys.argv[1], f"{launch}-{attempt}-{rank}").write_text(run_id)
    while len(list(Path(sys.argv[1]).glob(f"{launch}-{attempt}-*"))) < 2:
        os.sched_yield()
    assert "fails" not in sys.argv or attempt == "1"

if __name__ == "__main__":
    same = config()
    for launch in range(2):
        elastic_launch(same if "same" in sys.argv else config(), train)(launch)
"""


def ids_of_launches(folder: Path, *arguments: str, **variables: str) -> list[set[str]]:
    """Return the ids of the ranks of each of two launches of one program, over all attempts."""
    program, found = folder / "launches.py", folder / "found"
    program.write_text(LAUNCHES)
    found.mkdir()
    command = f"exec {sys.executable} {program} {found} {' '.join(arguments)}"
    ids(f"export SLURM_TASK_PID=$BASHPID; {command}", **variables)
    return [{path.read_text() for path in found.glob(f"{launch}-*")} for launch in range(2)]


@pytest.mark.parametrize("variables", [{}, STEP], ids=["by nobody", "as a task of slurm"])
@pytest.mark.parametrize("name", ["none", "digits"])
def test_two_launches_of_functions_by_one_program_or_notebook_are_two_runs(
    tmp_path: Path, name: str, variables: Mapping[str, str]
) -> None:
    first, second = ids_of_launches(tmp_path, name, **variables)

    assert len(first) == len(second) == 1
    assert first != second


@pytest.mark.parametrize("config", ["same", "another"])
def test_functions_that_torch_starts_again_are_in_the_run_of_their_launch(tmp_path: Path, config: str) -> None:
    first, second = ids_of_launches(tmp_path, "none", config, "fails")

    assert len(first) == len(second) == 1
    assert first != second


RANKS_BY_US = 'for r in 0 1; do OTEL_ML_RANK=$r OTEL_ML_WORLD_SIZE=2 $P "$PROGRAM" & done; wait'


def test_ranks_by_our_variables_that_are_started_again_from_one_shell_are_another_run() -> None:
    found = ids(f"{RANKS_BY_US}; {RANKS_BY_US}")

    assert found[0] == found[1] != found[2] == found[3]


def test_ranks_by_our_variables_in_copies_of_a_shell_are_one_run() -> None:
    rank = '(cd /; $P "$PROGRAM"; true) &'

    found = ids(f"export OTEL_ML_WORLD_SIZE=2; for r in 0 1; do export OTEL_ML_RANK=$r; {rank} done; wait")

    assert len(found) == 2
    assert len(set(found)) == 1


STARTS_ANOTHER = """
import os, subprocess, sys
import otel_ml
with otel_ml.init("launched", exporters="jsonl") as run:
    print(run.id, run.rank, flush=True)
    if "CHILD" in os.environ:
        child = os.environ.pop("CHILD")
        subprocess.run([sys.executable, "-c", child], check=True)
"""


@pytest.mark.parametrize(
    "rank",
    [
        "OTEL_ML_RANK=1 OTEL_ML_WORLD_SIZE=2",
        "RANK=1 WORLD_SIZE=2",
        "NODE_RANK=0 LOCAL_RANK=1 WORLD_SIZE=2",
        "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_JOB_ID=f1",
        "SUBMITIT_EXECUTOR=local SUBMITIT_LOCAL_GLOBALID=1 SUBMITIT_LOCAL_NTASKS=2",
    ],
)
def test_a_program_that_a_rank_starts_is_no_rank_and_a_run_of_its_own(tmp_path: Path, rank: str) -> None:
    found = ids(f'{rank} $P "$CHILD"', CHILD=STARTS_ANOTHER, OTEL_ML_DIR=str(tmp_path / "runs"))

    (run_id, first), (other_id, second) = found[:2], found[2:]
    assert (first, second) == ("1", "0")
    assert run_id != other_id


@pytest.mark.parametrize("by", ["OTEL_ML_", ""], ids=["by our variables", "by those of torch"])
def test_roles_that_each_have_a_rank_0_are_one_run(tmp_path: Path, by: str) -> None:
    rank = f'OTEL_SERVICE_NAME=$role {by}RANK=$r {by}WORLD_SIZE=2 $P "$HELD" &'
    roles = f"for role in actor learner; do for r in 0 1; do {rank} done; done; wait"

    found = ids(roles, HELD=held(4), FOLDER=str(tmp_path))

    assert len(found) == 4
    assert len(set(found)) == 1


FOLDS = """
import json, os, sys
from torch import multiprocessing
import otel_ml

def train(rank, folder, fold):
    with otel_ml.init("cv", rank=rank, world_size=2, exporters="jsonl") as run:
        with open(f"{folder}/{fold}-{rank}.json", "w") as file:
            json.dump(run.id, file)

if __name__ == "__main__":
    for fold in range(2):
        multiprocessing.spawn(train, args=(sys.argv[1], fold), nprocs=2)
"""


def test_ranks_that_a_program_gives_their_numbers_are_a_run_for_each_fold(tmp_path: Path) -> None:
    program = tmp_path / "folds.py"
    program.write_text(FOLDS)
    subprocess.run([sys.executable, program, tmp_path], check=True, timeout=110, cwd=tmp_path)

    first, second = ({json.loads((tmp_path / f"{fold}-{rank}.json").read_text()) for rank in (0, 1)} for fold in (0, 1))

    assert len(first) == len(second) == 1
    assert first != second


RESTARTED = """
import multiprocessing, os, sys
from pathlib import Path
from otel_ml._internal.identity.run_identity import identify
from otel_ml.config import Config

def train(rank, name, until):
    run_id = identify(Config.from_env(os.environ, rank=rank, world_size=2), os.environ).run_id
    Path(sys.argv[1], name).write_text(run_id)
    while until and not Path(sys.argv[1], until).exists():
        os.sched_yield()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    stays = context.Process(target=train, args=(0, "0", "again"))
    stays.start()
    for name in ("1", "again"):
        comes = context.Process(target=train, args=(1, name, None))
        comes.start()
        comes.join()
    stays.join()
"""


def test_a_process_that_a_program_starts_again_as_a_rank_while_others_run_is_in_their_run(tmp_path: Path) -> None:
    program, found = tmp_path / "restarted.py", tmp_path / "found"
    program.write_text(RESTARTED)
    found.mkdir()
    subprocess.run([sys.executable, program, found], check=True, timeout=110)

    run_ids = [path.read_text() for path in found.iterdir()]
    assert len(run_ids) == 3
    assert len(set(run_ids)) == 1
