"""What a run failed with, told by the worker before it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run, start, status, variables
from tests.otlp_server import OtlpServer


@pytest.mark.feature("M26", "better", "in every backend that knows a status")
def test_an_uncaught_exception_is_a_failed_run(server: OtlpServer, tmp_path: Path) -> None:
    program = "import otel_ml; otel_ml.init('exp'); otel_ml.log({'x': 1}, step=0); raise ValueError('training broke')"

    run(program, environment(tmp_path, variables(server)), tmp_path, code=1)

    assert len(server.points("x")) == 1
    assert status(server) == ["failed"]


def test_an_exception_through_the_with_block_is_a_failed_run(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        try:
            with otel_ml.init("exp"):
                otel_ml.log({"x": 1}, step=0)
                raise ValueError
        except ValueError:
            pass
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert status(server) == ["failed"]


FAILING = """
    import otel_ml, sys
    def work(step):
        with otel_ml.step(step):
            otel_ml.log({{"x": 1}})
        if step == 4:
            {fault}
    def train():
        for step in range(9):
            work(step)
    {how}
"""


WAYS = {
    "nobody caught it": "otel_ml.init('exp'); train()",
    "it left the block": "with otel_ml.init('exp'): train()",
    "it passed a clean-up": """otel_ml.init('exp')
    try:
        train()
    finally:
        otel_ml.shutdown()""",
    "it passed the clean-up of a run": """run = otel_ml.init('exp')
    try:
        train()
    finally:
        run.finish()""",
    "it was on its way": """otel_ml.init('exp')
    try:
        train()
    except BaseException:
        otel_ml.shutdown()
        raise""",
}


@pytest.mark.parametrize("how", WAYS)
def test_what_a_run_failed_with_is_recorded_before_its_end(server: OtlpServer, tmp_path: Path, how: str) -> None:
    program = FAILING.format(fault='raise KeyError("no such sample")', how=WAYS[how])

    run(program, environment(tmp_path, variables(server, OTEL_ML_CAPTURE="auto")), tmp_path, code=1)

    [failure] = server.events("exception")
    said = failure.attributes
    assert (said["exception.type"], said["exception.message"]) == ("KeyError", "'no such sample'")
    assert (said["ml.step"], said["ml.step.axis"], said["ml.status"]) == (4, "step", "failed")
    trace = str(said["exception.stacktrace"]).splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-1] == "KeyError: 'no such sample'"
    assert any(line.endswith(", in work") for line in trace)
    [goodbye] = server.events("ml.writer.end")
    assert goodbye.attributes["ml.status"] == "failed"
    assert failure.attributes["ml.seq"] < goodbye.attributes["ml.seq"]


def test_an_exit_code_is_what_a_run_failed_with(server: OtlpServer, tmp_path: Path) -> None:
    program = FAILING.format(fault="sys.exit('no data left')", how="otel_ml.init('exp'); train()")

    run(program, environment(tmp_path, variables(server, OTEL_ML_CAPTURE="auto")), tmp_path, code=1)

    [failure] = server.events("exception")
    assert failure.attributes["exception.type"] == "SystemExit"
    assert failure.attributes["exception.message"] == "no data left"
    assert failure.attributes["ml.step"] == 4


FINE = {
    "an exception that was caught": """otel_ml.init('exp')
    try:
        train()
    except KeyError:
        pass""",
    "a clean-up after an exception was caught": """otel_ml.init('exp')
    try:
        train()
    except KeyError:
        pass
    finally:
        otel_ml.shutdown()""",
    "a generator that is closed": """
    def steps():
        with otel_ml.init('exp'):
            yield 1
    for step in steps():
        break""",
    "an exit without an error": "otel_ml.init('exp'); sys.exit(0)",
    "Ctrl-C": """otel_ml.init('exp')
    try:
        raise KeyboardInterrupt
    finally:
        otel_ml.shutdown()""",
}


@pytest.mark.parametrize("how", FINE)
def test_what_does_not_fail_a_run_is_not_recorded_as_that(server: OtlpServer, tmp_path: Path, how: str) -> None:
    program = FAILING.format(fault='raise KeyError("no such sample")', how=FINE[how])

    process = start(program, environment(tmp_path, variables(server, OTEL_ML_CAPTURE="auto")), tmp_path)
    process.communicate(timeout=100)

    assert server.events("exception") == []
    assert status(server) == ["killed" if how == "Ctrl-C" else "finished"]


def test_secrets_in_what_a_run_failed_with_are_hidden(server: OtlpServer, tmp_path: Path) -> None:
    fault = 'raise RuntimeError("denied: hf_abcdefghijklmnopqrstuv")'
    program = FAILING.format(fault=fault, how="otel_ml.init('exp'); train()")

    run(program, environment(tmp_path, variables(server, OTEL_ML_CAPTURE="auto")), tmp_path, code=1)

    [failure] = server.events("exception")
    assert failure.attributes["exception.message"] == "denied: ***"
    assert "hf_abc" not in str(failure.attributes["exception.stacktrace"])


def test_with_capture_off_nothing_tells_what_a_run_failed_with(server: OtlpServer, tmp_path: Path) -> None:
    program = FAILING.format(fault="raise KeyError(3)", how="otel_ml.init('exp'); train()")

    run(program, environment(tmp_path, variables(server, OTEL_ML_CAPTURE="off")), tmp_path, code=1)

    assert server.events("exception") == []
    assert status(server) == ["failed"]
