"""Whose run it is in programs and children that a run starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import services_of, until
from tests.integration.recorded_by import ids_of, values_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

STARTS = """
    import os, subprocess, sys, otel_ml
    with otel_ml.init("sweep", name="driver") as run:
        for n in (1, 2):
            child = {child!r}.replace("{{n}}", str(n))
            subprocess.run([sys.executable, "-c", child], check=True, env={environ})
            otel_ml.log({{"best": n}}, step=n)
"""


@pytest.mark.parametrize(
    "begin",
    ["otel_ml.init('sweep', name='trial-{n}')", "otel_ml.init('sweep')", "otel_ml.init()", "otel_ml.init('other')"],
)
def test_a_program_that_a_run_starts_and_that_begins_one_itself_is_a_run_of_its_own(
    server: OtlpServer, tmp_path: Path, begin: str
) -> None:
    child = f"import otel_ml; {begin}; otel_ml.log({{'loss': 1}}, step=0)"

    run(STARTS.format(child=child, environ="None"), environment(tmp_path, variables(server)), tmp_path)

    assert len(ids_of(server, "loss")) == 2
    assert not ids_of(server, "loss") & ids_of(server, "best")
    assert all("ml.parent" not in point.resource for point in server.points("loss"))


@pytest.mark.long
@pytest.mark.parametrize("begin", ["otel_ml.init('sweep', params={'lr': sys.argv[1]})", "otel_ml.init()"])
def test_a_launch_that_a_run_starts_is_a_run_of_its_own_with_all_its_ranks(
    server: OtlpServer, tmp_path: Path, begin: str
) -> None:
    (tmp_path / "train.py").write_text(
        f"import os, sys, otel_ml\n{begin}\notel_ml.log({{'loss': float(os.environ['RANK'])}}, step=0)\n"
    )
    program = """
        import subprocess, sys, otel_ml
        with otel_ml.init("sweep", name="study"):
            for n in (1, 2):
                launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
                subprocess.run([*launch, "train.py", str(n)], check=True)
                otel_ml.log({"best": n}, step=n)
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    trials = ids_of(server, "loss")
    assert len(trials) == 2
    assert not trials & ids_of(server, "best")
    for trial in trials:
        of_trial = [point for point in server.points("loss") if point.resource["ml.experiment.id"] == trial]
        assert sorted(point.value for point in of_trial) == [0.0, 1.0]


def test_a_script_that_lightning_starts_again_for_its_ranks_is_one_run_whatever_time_is_in_its_name(
    server: OtlpServer, tmp_path: Path
) -> None:
    """As its launcher does: rank 0 is the script itself, which begins its run before anything tells of a launch."""
    program = """
        import os, subprocess, sys, time, otel_ml
        with otel_ml.init("digits", name=f"resnet-{time.time_ns()}"):
            otel_ml.log({"loss": float(os.environ.get("LOCAL_RANK", 0))}, step=0)
            if "LOCAL_RANK" not in os.environ:
                launch = {"WORLD_SIZE": "2", "NODE_RANK": "0", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1"}
                subprocess.run([sys.executable, *sys.argv], check=True, env={**os.environ, **launch})
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert len(ids_of(server, "loss")) == 1
    assert sorted(point.value for point in server.points("loss")) == [0.0, 1.0]


def test_a_program_that_asks_for_the_id_of_the_run_that_started_it_is_a_part_of_it(
    server: OtlpServer, tmp_path: Path
) -> None:
    child = """
import os, otel_ml
otel_ml.init("sweep", id=os.environ["RUN"], name="trial")
otel_ml.log({"loss": 1}, step=0)
"""

    given = '{**os.environ, "RUN": run.id}'
    run(STARTS.format(child=child, environ=given), environment(tmp_path, variables(server)), tmp_path)

    assert ids_of(server, "loss") == ids_of(server, "best") != set()
    assert all("ml.parent" in point.resource for point in server.points("loss"))


def test_a_program_that_is_given_the_variables_of_a_run_joins_it_unless_it_asks_for_another(
    server: OtlpServer, tmp_path: Path
) -> None:
    child = """
import otel_ml
otel_ml.init("sweep")
otel_ml.log({"joined": 1}, step=0)
otel_ml.shutdown()
otel_ml.init("sweep", name="evaluation")
otel_ml.log({"own": 1}, step=0)
"""

    given = "{**os.environ, **run.child_env()}"
    run(STARTS.format(child=child, environ=given), environment(tmp_path, variables(server)), tmp_path)

    assert ids_of(server, "joined") == ids_of(server, "best")
    assert len(ids_of(server, "own")) == 2
    assert not ids_of(server, "own") & ids_of(server, "best")


def test_programs_that_are_given_the_variables_and_no_rank_add_to_what_the_giver_records(tmp_path: Path) -> None:
    program = """
    import os, subprocess, sys, otel_ml
    with otel_ml.init("exp", exporters="jsonl") as run:
        otel_ml.log({"first": 1.0}, step=0)
        for step in range(2):
            evaluation = f"import otel_ml; otel_ml.log({{'evaluated': {step}}}, step={step})"
            environ = {**os.environ, **otel_ml.child_env()}
            subprocess.run([sys.executable, "-c", evaluation], env=environ, check=True)
            otel_ml.log({"best": float(step)}, step=step)
    """
    environ = environment(tmp_path)

    _, errors = run(program, environ, tmp_path)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    (folder,) = (tmp_path / "runs" / "exp").iterdir()
    found = otel_ml.read(folder)
    assert {name: found[name] for name in ("first", "evaluated", "best")} == {
        "first": ([0], [1.0]),
        "evaluated": ([0, 1], [0.0, 1.0]),
        "best": ([0, 1], [0.0, 1.0]),
    }
    assert "1 process, 5 values recorded, 5 delivered, 0 lost" in errors, errors
    assert "run exp/" in errors
    assert errors.count("otel_ml:") == 2, errors  # its first line and its last: nothing is wrong


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_joins_unless_it_asks_for_another_run(
    server: OtlpServer, tmp_path: Path, method: str
) -> None:
    program = f"""
    import multiprocessing, otel_ml

    def joins():
        otel_ml.init("sweep")
        otel_ml.log({{"joined": 1}}, step=0)

    def begins(n):
        with otel_ml.init("sweep", name=f"trial-{{n}}"):
            otel_ml.log({{"own": n}}, step=0)

    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        otel_ml.init("sweep", name="driver")
        otel_ml.log({{"best": 1}}, step=0)
        children = [context.Process(target=joins), *(context.Process(target=begins, args=(n,)) for n in (1, 2))]
        [child.start() for child in children]
        [child.join() for child in children]
        assert [child.exitcode for child in children] == [0, 0, 0]
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert ids_of(server, "joined") == ids_of(server, "best")
    assert values_of(server, "own") == {"trial-1": [1.0], "trial-2": [2.0]}
    assert len(ids_of(server, "own") | ids_of(server, "best")) == 3


def test_a_child_that_is_forked_in_a_step_of_a_loop_has_steps_of_its_own(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    import multiprocessing, otel_ml

    def evaluate():
        for n in otel_ml.steps(range(3)):
            otel_ml.log({"score": n})

    otel_ml.init("exp")
    for step in otel_ml.steps(range(1)):
        child = multiprocessing.get_context("fork").Process(target=evaluate)
        child.start()
        child.join()
        otel_ml.log({"loss": step})
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert sorted((point.step, point.value) for point in server.points("score")) == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_a_program_that_a_rank_starts_is_no_rank_of_the_launch(server: OtlpServer, tmp_path: Path) -> None:
    rank = """
import subprocess, sys, otel_ml
otel_ml.init("train")
otel_ml.log({"loss": 1}, step=0)
child = "import otel_ml; otel_ml.init('evaluation'); otel_ml.log({'score': 1}, step=0)"
subprocess.run([sys.executable, "-c", child], check=True)
"""
    program = f"""
    import os, subprocess, sys
    launch = {{**os.environ, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2"}}
    ranks = [
        subprocess.Popen([sys.executable, "-c", {rank!r}], env={{**launch, "RANK": str(i), "LOCAL_RANK": str(i)}})
        for i in range(2)
    ]
    sys.exit(sum(process.wait() for process in ranks))
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert len(ids_of(server, "loss")) == 1
    assert len(ids_of(server, "score")) == 2
    assert not ids_of(server, "score") & ids_of(server, "loss")
    assert {point.resource["ml.world_size"] for point in server.points("score")} == {1}


LAUNCHER = """
import os, subprocess, sys
launch = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **LAUNCH}
ranks = [
    subprocess.Popen([sys.executable, "-c", RANK], env={**launch, **dict.fromkeys(RANK_IN, str(i))}) for i in range(2)
]
sys.exit(sum(process.wait() for process in ranks))
"""

TORCHRUN = ({"TORCHELASTIC_RUN_ID": "none"}, ["RANK", "LOCAL_RANK"])
MPIRUN = ({"OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": ""}, ["OMPI_COMM_WORLD_RANK"])


def launcher(rank: str, told: tuple[dict[str, str], list[str]]) -> str:
    """Return a program that starts two ranks, and tells them what a launcher does."""
    launch, rank_in = told
    return LAUNCHER.replace("LAUNCH}", f"{launch!r}}}").replace("RANK_IN", repr(rank_in)).replace("RANK]", f"{rank!r}]")


SWEEP = """
    import subprocess, sys, otel_ml
    with otel_ml.init("sweep", name="study"):
        for n in (1, 2):
            subprocess.run([sys.executable, "-c", {launcher!r}, str(n)], check=True)
            otel_ml.log({{"best": n}}, step=n)
"""


@pytest.mark.parametrize("told", [TORCHRUN, MPIRUN], ids=["torchrun", "mpirun"])
def test_a_launch_that_a_run_starts_is_a_run_of_its_own_for_all_its_ranks(
    server: OtlpServer, tmp_path: Path, told: tuple[dict[str, str], list[str]]
) -> None:
    rank = "import otel_ml; otel_ml.init('sweep', params={'lr': 1}); otel_ml.log({'loss': 1}, step=0)"

    run(SWEEP.format(launcher=launcher(rank, told)), environment(tmp_path, variables(server)), tmp_path)

    assert len(ids_of(server, "loss")) == 2, "one for each launch"
    assert not ids_of(server, "loss") & ids_of(server, "best")
    assert len(server.points("loss")) == 4
    assert {point.resource["ml.world_size"] for point in server.points("loss")} == {2}


def test_ranks_that_only_record_are_in_the_run_that_rank_0_of_their_launch_begins(
    server: OtlpServer, tmp_path: Path
) -> None:
    rank = """
import os, otel_ml
if os.environ["RANK"] == "0":
    otel_ml.init("sweep")
otel_ml.log({"loss": 1}, step=0)
"""

    run(SWEEP.format(launcher=launcher(rank, TORCHRUN)), environment(tmp_path, variables(server)), tmp_path)

    assert len(ids_of(server, "loss")) == 2
    assert not ids_of(server, "loss") & ids_of(server, "best")
    assert len(server.points("loss")) == 4


def test_a_launch_that_only_records_is_in_the_run_that_started_it(server: OtlpServer, tmp_path: Path) -> None:
    rank = "import otel_ml; otel_ml.log({'loss': 1}, step=0)"

    run(SWEEP.format(launcher=launcher(rank, TORCHRUN)), environment(tmp_path, variables(server)), tmp_path)

    assert ids_of(server, "loss") == ids_of(server, "best") != set()


RESTARTS = """
import os, subprocess, sys, time, otel_ml
run = otel_ml.init("digits", name=f"resnet-{time.time_ns()}")
otel_ml.log({"loss": 1}, step=0)
if "LOCAL_RANK" not in os.environ:  # as Lightning does
    os.environ.update(NODE_RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
    subprocess.run([sys.executable, *sys.argv], env={**os.environ, "LOCAL_RANK": "1"}, check=True)
    otel_ml.log({"loss": 1}, step=1)
"""

SPAWNS = """
import multiprocessing, time, otel_ml
otel_ml.init("digits", name=f"resnet-{time.time_ns()}")

def record():
    otel_ml.log({"loss": 1}, step=0)

if __name__ == "__main__":
    record()
    child = multiprocessing.get_context("spawn").Process(target=record)
    child.start()
    child.join()
"""


@pytest.mark.parametrize(
    ("script", "counted"),
    [(RESTARTS, "2 processes, 3 values recorded"), (SPAWNS, "1 process, 2 values recorded")],
    ids=["lightning", "spawn"],
)
def test_a_script_that_is_started_again_for_another_rank_is_in_the_run_whatever_name_it_makes_up(
    tmp_path: Path, script: str, counted: str
) -> None:
    _, errors = run(script, environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"}), tmp_path)

    assert len(list(tmp_path.glob("runs/*/*/metrics.jsonl"))) == 1
    assert counted in errors, errors
    assert errors.count("has another name") == 1, errors


def test_a_fork_of_a_program_with_two_runs_records_into_the_current_one_and_nothing_of_the_other_into_it(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import os, otel_ml

    first, second = otel_ml.init("exp", name="first"), otel_ml.init("exp", name="second")
    first.log({"theirs": 1}, step=0)
    second.log({"theirs": 1}, step=0)
    pid = os.fork()
    if pid == 0:
        first.log({"of_first": 1}, step=0)
        with first.use():
            otel_ml.log({"of_first": 2}, step=0)
        with first.timed("of_first"):
            pass
        second.log({"its": 2}, step=0)
        otel_ml.flush(10)
        os._exit(0)
    os.waitpid(pid, 0)
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "theirs") == {"first": [1.0], "second": [1.0]}
    assert values_of(server, "its") == {"second": [2.0]}
    assert not server.points("of_first")
    assert not server.points("time/of_first")
    assert errors.count("explain after-shutdown") == 1, errors


def test_a_fork_in_a_thread_with_a_run_of_its_own_is_a_child_of_that_run(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    import os, threading, otel_ml

    def trial():
        with otel_ml.init("exp", name="trial"):
            otel_ml.log({"mine": 1}, step=0)
            pid = os.fork()
            if pid == 0:
                otel_ml.log({"its": 2}, step=0)
                otel_ml.flush(10)
                os._exit(0)
            os.waitpid(pid, 0)

    otel_ml.init("exp", name="main")
    otel_ml.log({"main": 1}, step=0)
    thread = threading.Thread(target=trial)
    thread.start()
    thread.join()
    otel_ml.log({"main": 1}, step=1)
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    (its,) = server.points("its")
    (mine,) = server.points("mine")
    assert its.resource["ml.run.name"] == "trial"
    assert its.resource["ml.parent"] == mine.resource["service.instance.id"]
    assert list(values_of(server, "main")) == ["main"]
