"""Ranks that a person, a shell or a program starts by hand are one run, and the next ones another."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.otel_ml.launches.program import PROGRAM, STEP, held, ids


def test_ranks_by_hand_in_an_interactive_slurm_shell_are_one_run_and_the_next_ones_another() -> None:
    ranks = 'for r in 0 1; do RANK=$r WORLD_SIZE=2 $P "$PROGRAM" & done; wait'

    found = ids(f"{ranks}; {ranks}", **STEP, SLURM_TASK_PID="1")

    assert found[0] == found[1] != found[2] == found[3]


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
    begun = 'until [ "$(ls $FOLDER)" ]; do :; done'
    job = f'RANK=0 WORLD_SIZE=2 $P "$HELD" & {begun}; {killed}; {killed}; : >$FOLDER/1; wait'

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


@pytest.mark.parametrize("left", ['echo "[{"', "printf '\\377'"], ids=["half", "no text"])
def test_what_is_damaged_keeps_no_start_from_being_one(tmp_path: Path, left: str) -> None:
    (tmp_path / f"otel-ml-{os.getuid()}").mkdir(mode=0o700)
    first = (
        f'RANK=0 WORLD_SIZE=2 $P "$PROGRAM" >/dev/null; for file in $XDG_RUNTIME_DIR/*/*.json; do {left} >$file; done'
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


def test_a_rank_that_finds_the_disk_full_costs_the_others_no_run() -> None:
    rank = 'RANK=$r WORLD_SIZE=3 $P "$PROGRAM"'

    first, without, last = ids(f"r=0; {rank}; r=1; (ulimit -f 0; {rank}); r=2; {rank}; true")

    assert first == last != without


def test_a_program_that_a_rank_starts_where_the_disk_is_full_is_in_its_run() -> None:
    full = "subprocess.run(['bash', '-c', 'ulimit -f 0; exec \"$0\" -c \"$SAID\"', sys.executable])"
    said = f"from otel_ml._internal.error_reporting import reporter; {PROGRAM}; reporter.connect(print)"
    child = f"import os, subprocess, sys; {PROGRAM}; sys.stdout.flush(); {full}"

    first, *words = ids('RANK=0 WORLD_SIZE=2 $P "$CHILD"; true', CHILD=child, SAID=said)

    assert words == [first], "and nothing is said: it has nothing to write"


SEEN_AS = "unshare --user --map-current-user --mount bash -c 'mount --bind $FOLDER/seen {file}; $0 $1 \"$2\"'"
"""Starts a program that sees another file in the place of one of the kernel's."""


@pytest.mark.parametrize("variables", ["RANK={r} WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK={r} OMPI_COMM_WORLD_SIZE=2"])
def test_ranks_between_which_the_clock_is_set_are_one_run(tmp_path: Path, variables: str) -> None:
    stat = re.sub("(?m)^btime .*", "btime 1000000000", Path("/proc/stat").read_text())
    (tmp_path / "seen").write_text(stat)  # when the clock is set, so is what the kernel says of the time of the boot
    first, second = (variables.format(r=r) for r in (0, 1))
    clock_is_set = SEEN_AS.format(file="/proc/stat")

    found = ids(f'{first} $P "$PROGRAM"; {second} {clock_is_set} $P "$PROGRAM"; true', FOLDER=str(tmp_path))

    assert len(found) == 2
    assert len(set(found)) == 1


def test_ranks_of_two_boots_whose_files_are_in_one_folder_are_two_runs(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text("2c0c8acb-0000-4000-8000-000000000000\n")
    another_boot = SEEN_AS.format(file="/proc/sys/kernel/random/boot_id")

    rank = '$P "$PROGRAM"'
    found = ids(f"RANK=0 WORLD_SIZE=2 {rank}; RANK=1 WORLD_SIZE=2 {another_boot} {rank}; true", FOLDER=str(tmp_path))

    assert len(set(found)) == 2, "the numbers of its processes, and when they started, may be the same again"


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
    while not Path(sys.argv[1], "0").exists():  # a rank that comes again is of a start of which others run
        os.sched_yield()
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
