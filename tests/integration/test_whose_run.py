"""Whose run it is, of several in one process: an explicit other experiment, name or id is another run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.jobs import services_of, until
from tests.integration.recorded_by import ids_of, rows_of, values_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

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


def test_of_two_runs_that_time_the_same_by_hand_each_stops_what_it_has_started(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import otel_ml
    a, b = (otel_ml.init("exp", name=name) for name in "ab")
    for run in (a, b):
        run.set_step(1)
        run.timer("work").start()
    a.timer("work").stop()
    with b.timer("block"), a.timer("block"):
        pass
    b.timer("decorator")(sum)([])
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert set(values_of(server, "time/work")) == {"a"}
    assert set(values_of(server, "time/block")) == {"a", "b"}
    assert set(values_of(server, "time/decorator")) == {"b"}


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


def test_what_is_recorded_in_a_block_of_a_run_that_has_ended_is_in_no_other(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    import otel_ml
    a = otel_ml.init("exp", name="a")
    a.shutdown()
    b = otel_ml.init("exp", name="b")
    otel_ml.log({"x": 1}, step=0)
    with a.use():
        otel_ml.log({"x": 2}, step=1)
        otel_ml.log_text("note", "of a", step=1)
        otel_ml.event("of a")
        otel_ml.log_params({"of": "a"})
    with a.timed("forward"):
        pass
    otel_ml.log({"x": 3}, step=2)
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "x") == {"b": [1.0, 3.0]}
    assert not server.events("ml.text") + server.events("ml.params")
    assert not server.points("forward")
    assert "no run is current" in errors


def test_a_block_of_a_run_that_has_ended_asks_nothing_of_the_run_that_begins_next(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
    import otel_ml
    a = otel_ml.init("exp", name="a")
    a.shutdown()
    with a.use():
        otel_ml.log({"x": 1}, step=0)
    otel_ml.init("exp", name="b")
    otel_ml.log({"x": 2}, step=0)
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "x") == {"b": [2.0]}
    assert "after the run had ended" in errors
