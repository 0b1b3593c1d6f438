"""Whose run it is: a start is a run, a launch is one start, an explicit other experiment, name or id is another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import services_of, until
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer


def values_of(server: OtlpServer, name: str) -> dict[str, list[float]]:
    """Return the values of a metric by run name, in the order of their steps."""
    found: dict[str, list[tuple[int, float]]] = {}
    for point in server.points(name):
        found.setdefault(point.resource["ml.run.name"], []).append((point.step or 0, point.value))
    return {run_name: [value for _, value in sorted(values)] for run_name, values in found.items()}


def ids_of(server: OtlpServer, name: str) -> set[str]:
    return {str(point.resource["ml.experiment.id"]) for point in server.points(name)}


TRIAL = """
    def trial(n):
        with otel_ml.init("sweep", name=f"trial-{n}", params={"lr": n}) as run:
            started.wait(30)  # all of them are active now
            otel_ml.define_metric("loss", reduce="mean")
            for s in otel_ml.steps(range(3)):
                with otel_ml.timed("forward"):
                    otel_ml.log({"loss": 100.0 * n + s})
            run.summary({"best": n})
"""


def test_trials_in_threads_are_runs_of_their_own(server: OtlpServer, tmp_path: Path) -> None:
    program = f"""
    import threading, otel_ml
    started = threading.Barrier(3)
    {TRIAL}
    threads = [threading.Thread(target=trial, args=(n,)) for n in (1, 2, 3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "loss") == {f"trial-{n}": [100.0 * n + s for s in range(3)] for n in (1, 2, 3)}
    assert len(ids_of(server, "loss")) == 3
    params = {event.resource["ml.run.name"]: event.body for event in server.events("ml.params")}
    assert params == {f"trial-{n}": {"lr": n} for n in (1, 2, 3)}
    summaries = {event.resource["ml.run.name"]: event.body for event in server.events("ml.summary")}
    assert summaries == {f"trial-{n}": {"best": float(n)} for n in (1, 2, 3)}
    ends = {end.resource["ml.run.name"]: end.attributes for end in server.events("ml.writer.end")}
    assert {end["otel_ml.recorded"] for end in ends.values()} == {12}  # 3 × loss, forward, data, step; of it alone
    assert all(not end.get("otel_ml.dropped") for end in ends.values())
    assert sum(span.name == "forward" for span, _ in server.spans()) == 9


@pytest.mark.parametrize("end", ["shutdown", "finish"])
def test_a_run_beside_another_is_recorded_into_by_its_methods_alone(
    server: OtlpServer, tmp_path: Path, end: str
) -> None:
    program = """
    import otel_ml
    a = otel_ml.init("exp", name="a")
    otel_ml.set_step(5)
    otel_ml.log({"x": 1})
    b = otel_ml.init("exp", name="b")
    assert otel_ml.init("exp", name="b") is b and otel_ml.init("exp", name="a") is a
    assert a.is_active and b.is_active
    otel_ml.init("exp", name="b")
    otel_ml.log({"x": 20}, step=0)          # into b, which is current here
    a.log({"x": 2}, step=6)
    a.set_step(7)
    a.record("x", 3)
    with b.step(9):
        b.log({"x": 21})
        a.log({"x": 4}, step=8)
    with a.timed("work"):
        pass
    for _ in a.steps(range(1), start=10):
        a.log({"x": 5})
    a.log_params({"who": "a"})
    b.log_params({"who": "b"})
    b.END()
    assert a.is_active and not b.is_active
    b.log({"x": 99}, step=99)               # it is over
    otel_ml.log({"x": 6}, step=11)          # a is current again
    """

    _, errors = run(program.replace("END", end), environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "x") == {"a": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "b": [20.0, 21.0]}
    assert set(values_of(server, "time/work")) == {"a"}
    params = {event.resource["ml.run.name"]: event.body for event in server.events("ml.params")}
    assert params == {"a": {"who": "a"}, "b": {"who": "b"}}
    assert errors.count("came after the run had ended") == 1


def test_a_thread_without_a_run_of_its_own_records_into_that_of_the_main_thread_or_says_so(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import contextvars, threading, otel_ml

    def helper(name):
        otel_ml.log({name: 1}, step=0)

    def in_thread(target, *args):
        thread = threading.Thread(target=target, args=args)
        thread.start()
        thread.join()

    def trial(n):
        with otel_ml.init("exp", name=f"trial-{n}") as run:
            barrier.wait(30)
            in_thread(helper, f"lost{n}")
            in_thread(contextvars.copy_context().run, helper, f"kept{n}")

            def uses():
                with run.use():
                    helper(f"used{n}")

            in_thread(uses)
            barrier.wait(30)

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=trial, args=(n,)) for n in (1, 2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert {n: list(values_of(server, f"kept{n}")) for n in (1, 2)} == {1: ["trial-1"], 2: ["trial-2"]}
    assert {n: list(values_of(server, f"used{n}")) for n in (1, 2)} == {1: ["trial-1"], 2: ["trial-2"]}
    assert not server.points("lost1")
    assert not server.points("lost2")
    assert errors.count("where no run is current") == 1


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


def test_what_is_recorded_after_the_end_is_said_once_and_counted_and_is_in_no_run(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import otel_ml
    run = otel_ml.init("first")
    otel_ml.log({"a": 1.0}, step=0)
    otel_ml.shutdown()
    otel_ml.log({"a": 2.0}, step=1)
    otel_ml.set_step(7)
    run.log({"a": 3.0})
    otel_ml.log_text("note", "too late")
    otel_ml.log({"a": 4.0, "b": 5.0, "c": 6.0})
    with otel_ml.timed("late"):
        pass
    otel_ml.init("second")
    otel_ml.log({"c": 1.0})
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert [point.value for point in server.points("a")] == [1.0]
    assert not server.points("b")
    assert not server.events("ml.text")
    (point,) = server.points("c")
    assert (point.step, point.value, point.resource["ml.experiment.name"]) == (7, 1.0, "second")
    assert errors.count("after the run had ended") == 1


def test_how_many_values_came_after_the_end_is_said_at_the_exit(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    import otel_ml
    with otel_ml.init("exp"):
        otel_ml.log({"a": 1.0}, step=0)
    for s in range(10):
        otel_ml.log({"a": 1.0}, step=s)
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert "10 values in all were recorded after the run had ended" in errors


def test_a_second_init_with_another_name_leaves_the_first_run_as_it_is(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    import otel_ml
    for n in (1, 2, 3):
        otel_ml.init("loop", name=f"seed-{n}")
        for s in range(3):
            otel_ml.log({"loss": 100.0 * n + s}, step=s)
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "loss") == {f"seed-{n}": [100.0 * n + s for s in range(3)] for n in (1, 2, 3)}


@pytest.mark.parametrize("variable", ["OTEL_ML_EXPERIMENT_ID", "OTEL_ML_RUN_NAME"])
def test_runs_at_once_never_share_the_id_that_the_environment_has(
    server: OtlpServer, tmp_path: Path, variable: str
) -> None:
    program = """
    import otel_ml
    a, b = otel_ml.init("one"), otel_ml.init("two")
    a.log({"x": 1}, step=0)
    b.log({"x": 2}, step=0)
    """

    run(program, environment(tmp_path, variables(server, **{variable: "given"})), tmp_path)

    assert len(ids_of(server, "x")) == 2


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


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_eight_trials_in_a_loop_are_eight_runs_whose_services_end(tmp_path: Path) -> None:
    program = """
    import otel_ml
    for n in range(8):
        with otel_ml.init("loop", name=f"trial-{n}", exporters="jsonl"):
            otel_ml.log({"loss": n}, step=0)
    """
    environ = environment(tmp_path)

    run(program, environ, tmp_path)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    found = sorted(
        row["values"]["loss"]
        for folder in (tmp_path / "runs" / "loop").iterdir()
        for row in rows_of(folder)
        if "loss" in row.get("values", {})
    )
    assert found == [float(n) for n in range(8)]


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


def test_where_no_rank_begins_a_run_and_nothing_asks_for_one_nothing_is_written(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    del environ["OTEL_ML_DIR"]

    _, errors = run(LAUNCH.format(rank=RANK_0_DECIDES.replace("BEGIN", "pass")), environ, tmp_path)

    assert not errors
    assert not list(tmp_path.glob("otel-ml-runs"))
    assert not list((tmp_path / "run").rglob("*"))


def test_ranks_that_the_environment_asks_to_record_do_so_without_any_init(server: OtlpServer, tmp_path: Path) -> None:
    program = LAUNCH.format(rank=RANK_0_DECIDES.replace("BEGIN", "pass"))

    run(program, environment(tmp_path, variables(server, OTEL_ML_EXPERIMENT_NAME="exp")), tmp_path)

    assert len(ids_of(server, "loss")) == 1
    assert {point.resource.get("ml.rank", 0) for point in server.points("loss")} == {0, 1, 2}


def test_going_back_to_a_run_and_ending_all_of_them_leaves_no_context_that_asks_for_ever(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import threading, otel_ml
    runs = [otel_ml.init("exp", name=name) for name in "abc"]
    otel_ml.init("exp", name="a")
    for run in runs:
        run.shutdown()

    def other(name):
        with otel_ml.init("exp", name=name):
            barrier.wait(30)
            barrier.wait(30)

    barrier = threading.Barrier(3)
    threads = [threading.Thread(target=other, args=(name,)) for name in "de"]
    [thread.start() for thread in threads]
    barrier.wait(30)
    otel_ml.log({"x": 1}, step=0)  # into none: those of this context are over
    barrier.wait(30)
    [thread.join() for thread in threads]
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert not server.points("x")


@pytest.mark.parametrize("back", ["id=a.id", "'exp', id=a.id", "'exp', name='a'", "name='a', tags=('more',)"])
def test_an_init_that_says_the_id_or_the_name_of_a_run_beside_goes_back_to_it(
    server: OtlpServer, tmp_path: Path, back: str
) -> None:
    program = f"""
    import otel_ml
    a = otel_ml.init("exp", name="a", tags=("first",))
    otel_ml.log({{"x": 1}}, step=0)
    b = otel_ml.init("exp", name="b", tags=("first",))
    otel_ml.log({{"x": 2}}, step=0)
    assert otel_ml.init({back}) is a
    otel_ml.log({{"x": 3}}, step=1)
    assert otel_ml.init({back}) is a
    b.log({{"x": 4}}, step=1)
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "x") == {"a": [1.0, 3.0], "b": [2.0, 4.0]}
    assert len(server.events("ml.writer.end")) == 2


def test_an_init_with_the_id_of_the_run_that_is_active_asks_for_nothing_else(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import otel_ml
    run = otel_ml.init("exp")
    otel_ml.log({"x": 1}, step=0)
    assert otel_ml.init(id=run.id) is run
    otel_ml.log({"x": 1}, step=1)
    """

    _, errors = run(program, environment(tmp_path, variables(server, OTEL_ML_STRICT="true")), tmp_path)

    assert len(ids_of(server, "x")) == 1
    assert "init(" not in errors
