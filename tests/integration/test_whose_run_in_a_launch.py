"""Whose run it is in a launch of several ranks: a launch is one start, and rank 0 decides."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.jobs import services_of, until
from tests.integration.recorded_by import ids_of, rows_of
from tests.integration.worker_process import ROOT, environment, run, variables
from tests.otlp_server import OtlpServer
from tests.rank_variables import LAUNCHERS, told

LAUNCH = """
    import os, subprocess, sys
    launch = {{**os.environ, "WORLD_SIZE": "3", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}}
    ranks = [
        subprocess.Popen([sys.executable, "-c", {rank!r}], env={{**launch, "RANK": str(i), "LOCAL_RANK": str(i)}})
        for i in range(3)
    ]
    sys.exit(sum(process.wait() for process in ranks))
"""


RANK_0_DECIDES = """
import atexit, os, pathlib, time
rank = int(os.environ["RANK"])
def touch(name):
    pathlib.Path(f"{name}_{rank}").touch()
def wait_for(name, ranks=(0, 1, 2)):
    while not all(pathlib.Path(f"{name}_{i}").exists() for i in ranks):
        time.sleep(0.01)  # between two looks
atexit.register(touch, "left")  # after otel_ml's own
import otel_ml
touch("imported")
wait_for("imported")  # nobody's patience ends while another one still imports
if rank:
    otel_ml.log({"loss": 10.0 * rank}, step=0)
    touch("recorded")
    wait_for("begun", [0])
else:
    wait_for("recorded", [1, 2])
    BEGIN
    touch("begun")
    otel_ml.log({"loss": 0.0}, step=0)
otel_ml.log({"loss": 10.0 * rank + 1}, step=1)
if not rank:
    wait_for("left", [1, 2])
"""


@pytest.mark.parametrize("asked", [{}, {"OTEL_ML_EXPORTERS": "parquet"}], ids=["nothing-asks", "the-environment-asks"])
@pytest.mark.parametrize("begin", ["otel_ml.init('exp', exporters='jsonl')", "otel_ml.init('exp', id='one')"])
def test_rank_0_decides_on_the_run_of_a_launch_and_what_others_recorded_before_belongs_to_it(
    tmp_path: Path, begin: str, asked: dict[str, str]
) -> None:
    environ = environment(tmp_path, asked)
    del environ["OTEL_ML_DIR"]
    if "exporters" not in begin:
        environ["OTEL_ML_EXPORTERS"] = "jsonl"

    run(LAUNCH.format(rank=RANK_0_DECIDES.replace("BEGIN", begin)), environ, tmp_path)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    (folder,) = tmp_path.glob("otel-ml-runs/*/*/metrics.jsonl")
    assert folder.parents[1].name == "exp"
    rows = [json.loads(line) for line in folder.read_text().splitlines()]
    assert [row["values"]["loss"] for row in rows if "loss" in row.get("values", {})] == [10.0, 11.0]


LEAVES_WHILE_IT_JOINS = """
import os, pathlib, sys, threading, time
rank = int(os.environ["RANK"])
import otel_ml
def wait_for(name):
    while not all(pathlib.Path(f"{name}_{other}").exists() for other in (1, 2)):
        time.sleep(0.01)  # between two looks
def hold_up(event, arguments):
    # Joining sets variables for children: the thread that does it is held up there.
    if event == "os.putenv" and threading.current_thread() is not threading.main_thread():
        pathlib.Path(f"joins_{rank}").touch()
        HOLD
if rank:
    sys.addaudithook(hold_up)
    otel_ml.log({"loss": 10.0 * rank}, step=0)
    pathlib.Path(f"recorded_{rank}").touch()
else:
    wait_for("recorded")
    otel_ml.init("exp", exporters="jsonl")
    otel_ml.log({"loss": 0.0}, step=0)
wait_for("joins")
LEAVE
"""


@pytest.mark.parametrize("leave", ["", "if rank: os.kill(os.getpid(), 15)"], ids=["returns", "is-terminated"])
def test_a_rank_that_ends_while_another_thread_of_it_joins_the_run_is_in_it(tmp_path: Path, leave: str) -> None:
    environ = environment(tmp_path)
    program = LAUNCH.replace("sum(process.wait()", "sum(process.wait() > 0")

    joins_late = LEAVES_WHILE_IT_JOINS.replace("HOLD", "time.sleep(0.1)  # each: main leaves meanwhile")
    run(program.format(rank=joins_late.replace("LEAVE", leave)), environ, tmp_path)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    (folder,) = (tmp_path / "runs" / "exp").iterdir()
    assert [row["values"]["loss"] for row in rows_of(folder) if "loss" in row.get("values", {})] == [10.0]


def test_a_rank_that_ends_before_its_run_could_begin_says_how_many_values_are_lost(tmp_path: Path) -> None:
    hangs = LEAVES_WHILE_IT_JOINS.replace("HOLD", "threading.Event().wait()").replace("LEAVE", "")

    _, errors = run(LAUNCH.format(rank=hangs), environment(tmp_path), tmp_path)

    assert errors.count("its run has not begun within 5 s. Values lost: 1.") == 2, errors


RANKS_OF_A_SHELL = """
for start in 1 2; do
  mkdir $start
  for r in 0 1 2; do (cd $start; export RANK=$r WORLD_SIZE=3 MASTER_PORT=29500; $PYTHON ../rank.py | cat) & done
  wait
done
"""


def test_of_ranks_that_a_shell_starts_rank_0_decides_for_those_of_its_own_start(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK_0_DECIDES.replace("BEGIN", "otel_ml.init('exp', exporters='jsonl')"))
    (tmp_path / "start.sh").write_text(RANKS_OF_A_SHELL)
    environ = environment(tmp_path, {"PYTHON": sys.executable})

    subprocess.run(["bash", "start.sh"], cwd=tmp_path, env=environ, check=True, timeout=100)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    folders = list((tmp_path / "runs" / "exp").iterdir())
    losses = [[row["values"]["loss"] for row in rows_of(one) if "loss" in row.get("values", {})] for one in folders]
    assert losses == [[10.0, 11.0], [10.0, 11.0]]


ONE_OF_TWO = """
import pathlib, sys, time, otel_ml
rank, recorded, begun = int(sys.argv[1]), pathlib.Path("recorded"), pathlib.Path("begun")
def wait_for(file):
    while not file.exists():
        time.sleep(0.01)  # between two looks
if rank:
    otel_ml.log({"loss": 20.0}, step=0)
    recorded.touch()
    wait_for(begun)
else:
    wait_for(recorded)
    otel_ml.init("exp", exporters="jsonl")
    otel_ml.log({"loss": 0.0}, step=0)
    begun.touch()
"""


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_a_rank_of_any_launcher_records_before_rank_0_begins_the_run_is_in_it(
    tmp_path: Path, launcher: str
) -> None:
    environ = environment(tmp_path)
    del environ["OTEL_ML_DIR"]  # nothing but the launcher says that there is a run

    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", ONE_OF_TWO, str(rank)], cwd=tmp_path, env={**environ, **told(launcher, rank)}
        )
        for rank in (0, 1)
    ]

    assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    (folder,) = tmp_path.glob("otel-ml-runs/exp/*")
    assert [row["values"]["loss"] for row in rows_of(folder) if "loss" in row.get("values", {})] == [10.0]


SHELL_OF_SRUN = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_TASK_PID": "1",
    "SLURM_JOB_NAME": "interactive",
}  # fmt: skip


def test_lightning_in_the_interactive_shell_of_a_slurm_job_is_one_run_of_all_its_ranks(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OMP_NUM_THREADS": "1", **SHELL_OF_SRUN})

    script = ROOT / "tests/launchers/programs/lightning_ddp.py"
    subprocess.run([sys.executable, script], cwd=tmp_path, env=environ, check=True, timeout=100)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    (folder,) = (tmp_path / "runs" / "launched").iterdir()
    tokens = {row["step"]: row["values"]["tokens"] for row in rows_of(folder) if "tokens" in row.get("values", {})}
    assert tokens == dict.fromkeys(range(5), 2.0)


def test_where_no_rank_begins_a_run_and_nothing_asks_for_one_nothing_is_left_but_a_count(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    del environ["OTEL_ML_DIR"]

    for _ in range(2):
        _, errors = run(LAUNCH.format(rank=RANK_0_DECIDES.replace("BEGIN", "pass")), environ, tmp_path)

        assert not errors
        assert not list(tmp_path.glob("otel-ml-runs"))
        left = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        (count,) = (path for path in left if not path.match("boot-*.txt"))  # that of the launch before is gone
        assert len(left) <= 2, "one of the boot for all launches"
        assert count.stat().st_size < 1_000


def test_ranks_that_the_environment_asks_to_record_do_so_without_any_init(server: OtlpServer, tmp_path: Path) -> None:
    program = LAUNCH.format(rank=RANK_0_DECIDES.replace("BEGIN", "pass"))

    run(program, environment(tmp_path, variables(server, OTEL_ML_EXPERIMENT_NAME="exp")), tmp_path)

    assert len(ids_of(server, "loss")) == 1
    assert {point.resource.get("ml.rank", 0) for point in server.points("loss")} == {0, 1, 2}
