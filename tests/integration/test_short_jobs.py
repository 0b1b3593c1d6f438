"""A job that is over before its service runs: delivered, and told how it went. The service is the real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import otel_ml
from otel_ml.wire.rendezvous import rendezvous_of
from tests.e2e.jobs import the_run_in
from tests.integration.left_behind import points_left
from tests.integration.worker_process import environment, run, start
from tests.otlp_server import eventually

SHORT = """
    import otel_ml, time
    otel_ml.init("short", id="one", exporters="jsonl")
    for i in range(4):
        otel_ml.set_step(i)
        otel_ml.log({"loss": i})
        time.sleep(0.05)  # a job of a fifth of a second
"""

SLOW_START = """
import os, pathlib, sys, time
if "otel_ml_service" in sys.orig_argv:
    pathlib.Path(os.environ["OTEL_ML_DIR"], "pid").write_text(str(os.getpid()))
    time.sleep({seconds})
"""

HELD_START = """
import os, pathlib, sys, time
if "otel_ml_service" in sys.orig_argv:
    end = time.monotonic() + 60
    while not pathlib.Path(os.environ["OTEL_ML_DIR"], "may-start").exists() and time.monotonic() < end:
        time.sleep(0.01)  # between two looks
"""


def delivered(run_folder: Path) -> list[float]:
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["values"]["loss"] for row in rows if "loss" in row.get("values", {})]


def slow_machine(tmp_path: Path, seconds: float) -> Mapping[str, str]:
    """The environment on a machine where the service needs so many seconds more to start."""
    return machine_with(SLOW_START.format(seconds=seconds), tmp_path)


def machine_with(beginning: str, tmp_path: Path) -> Mapping[str, str]:
    """The environment on a machine where every program of Python begins like this."""
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(beginning)
    return environment(tmp_path, path=slow)


@pytest.fixture
def slow_service(tmp_path: Path) -> Mapping[str, str]:
    """Slower to start than a receiver that cannot be reached is waited for."""
    return slow_machine(tmp_path, 2.5)


def test_a_job_of_a_fifth_of_a_second_delivers_and_says_so(tmp_path: Path) -> None:
    _, errors = run(SHORT, environment(tmp_path), tmp_path)

    assert errors.splitlines()[-1].startswith(
        "otel_ml: run short/one finished. 1 process, 4 values recorded, 4 delivered, 0 lost. "
    ), errors
    assert delivered(tmp_path / "runs" / "short" / "one") == [0.0, 1.0, 2.0, 3.0]


def test_a_job_waits_for_its_service_while_that_starts(slow_service: Mapping[str, str], tmp_path: Path) -> None:
    _, errors = run(SHORT, slow_service, tmp_path)

    assert errors.splitlines()[-1].startswith(
        "otel_ml: run short/one finished. 1 process, 4 values recorded, 4 delivered, 0 lost. "
    ), errors
    assert delivered(tmp_path / "runs" / "short" / "one") == [0.0, 1.0, 2.0, 3.0]


def test_a_rank_waits_for_the_service_that_another_one_starts(slow_service: Mapping[str, str], tmp_path: Path) -> None:
    first = start(SHORT + "\n    input()\n", slow_service, tmp_path)
    eventually(lambda: (tmp_path / "runs" / "short" / "one" / "service.log").exists())

    _, errors = run(SHORT.replace('"jsonl"', '"jsonl", rank=1'), slow_service, tmp_path)

    assert "not acknowledged" not in errors
    _, said = first.communicate("go\n", timeout=30)
    assert "finished. 2 processes, 8 values recorded, 8 delivered, 0 lost." in said


def test_a_run_that_failed_is_not_said_to_be_finished(tmp_path: Path) -> None:
    program = """
        import otel_ml
        with otel_ml.init("short", id="one", exporters="jsonl"):
            otel_ml.log({"loss": 1}, step=0)
            raise ValueError("training broke")
    """

    _, errors = run(program, environment(tmp_path), tmp_path, code=1)

    assert "otel_ml: run short/one failed. 1 process, 1 value recorded, 1 delivered, 0 lost. " in errors
    assert "finished" not in errors


def test_of_several_runs_of_a_process_each_last_line_says_which_run_it_is_of(tmp_path: Path) -> None:
    program = """
        import otel_ml
        for name in "first", "second":
            with otel_ml.init("short", name=name, exporters="jsonl"):
                otel_ml.log({"loss": 1}, step=0)
        with otel_ml.init("short", id="one", exporters="jsonl"):
            otel_ml.log({"loss": 1}, step=0)
    """

    _, errors = run(program, environment(tmp_path, {"OTEL_ML_EXIT_WAIT": "60"}), tmp_path)

    ended = [line.partition(".")[0] for line in errors.splitlines() if "1 value recorded" in line]
    assert ended == [f"otel_ml: run short/{name} finished" for name in ("first", "second", "one")]


CHILD_WITH_A_PLACE = """
    import multiprocessing, otel_ml

    def work(has_sent, may_end):
        otel_ml.init("short", role="worker", rank=0)
        otel_ml.log({{"its": 1}}, step=0)
        assert otel_ml.flush(30)
        has_sent.set()
        may_end.wait(30)

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        otel_ml.init("short", id="one", exporters="jsonl")
        otel_ml.log({{"mine": 1}}, step=0)
        has_sent, may_end = context.Event(), context.Event()
        child = context.Process(target=work, args=(has_sent, may_end))
        child.start()
        has_sent.wait(30)
        {end}
"""


@pytest.mark.parametrize(
    "end",
    [
        "may_end.set(); child.join(); otel_ml.shutdown()",  # the service has not heard of the parent until then
        "otel_ml.shutdown(); may_end.set(); child.join()",
    ],
    ids=["parent", "child"],
)
def test_of_a_parent_and_a_child_with_a_place_of_its_own_who_leaves_last_says_how_the_run_went(
    tmp_path: Path, end: str
) -> None:
    environ = environment(tmp_path, {"OTEL_ML_FLUSH_INTERVAL": "60000"})

    _, errors = run(CHILD_WITH_A_PLACE.format(end=end), environ, tmp_path)

    (begun, ended) = [line for line in errors.splitlines() if line.startswith("otel_ml: run")]
    assert begun.startswith("otel_ml: run short/one →")
    assert ended.startswith("otel_ml: run short/one finished. 2 processes, 2 values recorded, 2 delivered, 0 lost.")


WRONG = """
    import otel_ml
    otel_ml.init("short", id="one", exporters="jsonl", rank={rank}, world_size=2)
    input()
    otel_ml.log({{"of_rank_{rank}": None}}, step={rank})
"""


def test_what_goes_wrong_at_the_end_is_said_whoever_leaves_last(tmp_path: Path) -> None:
    ranks = [start(WRONG.format(rank=rank), environment(tmp_path), tmp_path) for rank in range(2)]
    eventually(lambda: (tmp_path / "runs" / "short" / "one" / "service.log").exists())

    _, first = ranks[0].communicate("go\n", timeout=30)
    _, second = ranks[1].communicate("go\n", timeout=30)

    assert [first.count(f"of_rank_{rank}") for rank in range(2)] == [1, 0]
    assert [second.count(f"of_rank_{rank}") for rank in range(2)] == [0, 1]


def test_a_service_that_never_answers_is_waited_for_five_seconds(tmp_path: Path) -> None:
    begun = time.monotonic()

    _, errors = run(SHORT, slow_machine(tmp_path, 60), tmp_path)

    os.kill(int((tmp_path / "runs" / "pid").read_text()), signal.SIGKILL)
    assert "4 points of rank 0 are not acknowledged" in errors
    assert 4.0 < time.monotonic() - begun < 12.0


def test_what_a_job_leaves_to_a_service_that_still_starts_is_brought_by_it_and_that_is_said(tmp_path: Path) -> None:
    _, errors = run(SHORT, slow_machine(tmp_path, 7), tmp_path)

    assert "The service on this host brings them into the run; if it does not: otel-ml recover one (" in errors
    assert delivered(the_run_in(tmp_path / "runs")) == [0.0, 1.0, 2.0, 3.0]


BUSY_AT_THE_END = """
    import os, psutil, signal, time
    import otel_ml
    from otel_ml.wire.rendezvous import rendezvous_of
    otel_ml.init("short", id="one", exporters="jsonl")
    otel_ml.log({"loss": 0.0}, step=0)
    assert otel_ml.flush(30)
    service = psutil.Process(rendezvous_of("one").read_service().pid)
    # When its starter leaves, who alone has others in its session, the kernel lets go on whom that leaves stopped.
    while service.ppid() == os.getsid(service.pid):
        time.sleep(0.01)  # between two looks
    service.send_signal(signal.SIGSTOP)  # a machine that is too busy for it
    for i in range(1, 4):
        otel_ml.log({"loss": float(i)}, step=i)
"""


def test_what_a_job_leaves_to_a_service_that_is_too_busy_is_brought_by_it_and_that_is_said(tmp_path: Path) -> None:
    _, errors = run(BUSY_AT_THE_END, environment(tmp_path), tmp_path)

    service = rendezvous_of("one", environment(tmp_path)).read_service()
    assert service is not None
    os.kill(service.pid, signal.SIGCONT)
    assert "The service on this host brings them into the run; if it does not: otel-ml recover one (" in errors
    eventually(lambda: delivered(the_run_in(tmp_path / "runs")) == [0.0, 1.0, 2.0, 3.0])


def test_a_job_that_died_before_its_service_was_there_and_is_started_again_counts_no_step_twice(
    tmp_path: Path,
) -> None:
    """The service hears first what the dead had left, then those who live: so it knows who came later."""
    program = """
        import otel_ml, sys, time
        rank = int(sys.stdin.readline())
        otel_ml.init("short", id="one", exporters="jsonl", rank=rank, world_size=2)
        for i in range(40):
            otel_ml.set_step(i)
            otel_ml.log({"loss": 1.0}, reduce="sum")
            time.sleep(0.01)  # steps of 10 ms: over before a service can be there
        print("ready", flush=True)
        sys.stdin.readline()
    """

    environ = machine_with(HELD_START, tmp_path)

    def ranks() -> list[subprocess.Popen[str]]:
        started = [start(program, environ, tmp_path) for _ in range(2)]
        for rank, process in enumerate(started):
            assert process.stdin is not None
            process.stdin.write(f"{rank}\n")
            process.stdin.flush()
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return started

    first = ranks()
    eventually(lambda: len([point for point in points_left(tmp_path) if point.name == "loss"]) == 2 * 40)
    assert not list(tmp_path.glob("run/*/*/service.json"))
    for process in first:
        process.kill()
        process.communicate()
    second = ranks()
    (tmp_path / "runs" / "may-start").touch()
    for process in second:
        process.communicate("go\n", timeout=60)

    eventually(lambda: not list(tmp_path.glob("run/*/*/service.json")), within=60)
    assert otel_ml.read(tmp_path / "runs" / "short" / "one")["loss"] == (list(range(40)), [2.0] * 40)


STALLED_TERMINAL = """
    import sys, threading, otel_ml

    class Terminal:  # takes what the background thread says, and holds that thread until the program has ended its run
        def write(self, text):
            sys.__stderr__.write(text)
            if threading.current_thread() is not threading.main_thread() and "not acknowledged" in text:
                over.wait(60)

        def flush(self):
            sys.__stderr__.flush()

    over = threading.Event()
    sys.stderr = Terminal()
    otel_ml.init("short", id="one")
    otel_ml.log({"loss": 1}, step=0)
    otel_ml.shutdown(0.2)
    over.set()
"""


def test_what_is_kept_on_this_host_is_said_once_with_the_command_for_this_run_alone(tmp_path: Path) -> None:
    nobody = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}

    _, errors = run(STALLED_TERMINAL, environment(tmp_path, nobody), tmp_path)

    kept = [line for line in errors.splitlines() if "kept on this host" in line]
    assert len(kept) == 1, errors
    assert "1 point of rank 0 is not acknowledged" in kept[0]
    assert ": otel-ml recover one (otel-ml explain " in kept[0]
