"""Whose run it is after a run has ended, or where another one is asked for while it goes on."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.recorded_by import values_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer


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
    otel_ml.consumed(otel_ml.context())
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
    assert not server.points("consumed/samples")
    (point,) = server.points("c")
    assert (point.step, point.value, point.resource["ml.experiment.name"]) == (7, 1.0, "second")
    assert errors.count("after the run had ended") == 1


def test_what_is_recorded_into_a_run_that_has_ended_is_no_loss_of_the_one_that_goes_on(tmp_path: Path) -> None:
    program = """
    import otel_ml
    first = otel_ml.init("exp", name="first", exporters="jsonl")
    first.shutdown()
    with otel_ml.init("exp", name="second", exporters="jsonl") as second:
        for s in range(3):
            second.log({"n": 1.0}, step=s)
        for _ in range(5):
            first.log({"n": 1.0}, step=1)
    """

    _, errors = run(program, environment(tmp_path, {}), tmp_path)

    assert "3 values recorded, 3 delivered, 0 lost. " in errors
    assert errors.count("came after the run had ended") == 1


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


def test_what_otel_ml_says_at_the_end_is_nothing_that_came_too_late(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        'import os, sys\nif "otel_ml_service" in " ".join(sys.orig_argv): os._exit(1)\n'
    )
    program = """
    import otel_ml
    otel_ml.init("exp", exporters="jsonl")
    for s in range(10):
        otel_ml.log({"a": 1.0}, step=s)
    """

    _, errors = run(program, environment(tmp_path, {"PYTHONPATH": str(tmp_path)}), tmp_path)

    assert "The service did not start" in errors
    assert "10 points of rank 0 are not acknowledged" in errors
    assert "after the run had ended" not in errors


RECORDS_WHILE_IT_ENDS = """
    import threading
    import time
    import otel_ml

    calls = 0
    stop = threading.Event()

    def go_on():
        global calls
        while not stop.is_set():
            otel_ml.log({"a": 1.0})
            otel_ml.log_text("note", "of each value")
            calls += 1
            time.sleep(0.001)  # between two records

    otel_ml.init("exp")
    recording = threading.Thread(target=go_on)
    recording.start()
    while calls < 100:
        time.sleep(0.001)  # between two looks
    otel_ml.shutdown()
    at_end = calls
    while calls < at_end + 100:
        time.sleep(0.001)  # between two looks
    stop.set()
    recording.join()
    print(calls)
"""


def test_what_another_thread_records_while_a_run_ends_is_in_it_or_counted(server: OtlpServer, tmp_path: Path) -> None:
    server.pause = 0.5

    output, errors = run(RECORDS_WHILE_IT_ENDS, environment(tmp_path, variables(server)), tmp_path)

    [goodbye] = server.events("ml.writer.end")
    values, texts = sum(point.count for point in server.points("a")), len(server.events("ml.text"))
    [late] = re.findall(r"([\d,]+) values in all were recorded after the run had ended", errors)
    assert goodbye.attributes["otel_ml.recorded"] == values
    assert values + texts + int(late.replace(",", "")) == 2 * int(output)


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
