"""A process that gets few threads from the system, or none: it trains on, and what is lost is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

_WITHOUT_THREADS = """
    import _thread, threading
    start, left = _thread.start_new_thread, {left}
    def refuse(*arguments):
        global left
        if not left:
            raise RuntimeError("can't start new thread")
        left -= 1
        return start(*arguments)
    _thread.start_new_thread = threading._start_new_thread = refuse
    import otel_ml
"""
"""As where the limit of a container is reached; that of the system does not hold for root."""


def test_a_process_with_one_thread_for_its_run_reads_files_on_it(server: OtlpServer, tmp_path: Path) -> None:
    program = _WITHOUT_THREADS.format(left=1) + """
    otel_ml.init("exp")
    otel_ml.log({"x": 1.0}, step=1)
    open("file.txt", "w").write("content")
    otel_ml.log_artifact("file.txt")
    """  # fmt: skip

    _, said = run(program, environment(tmp_path, {**variables(server), "OTEL_ML_CAPTURE": "auto"}), tmp_path)

    assert [point.value for point in server.points("x")] == [1.0]
    assert [event.body for event in server.events() if event.name == "ml.artifact"] == [b"content"]
    assert "What the run was started from (command line, commit, packages) is not in the run" in said


@pytest.mark.parametrize("begin", ['otel_ml.init("exp")', ""])
def test_a_process_that_gets_no_thread_trains_on_and_says_that_nothing_is_recorded(
    begin: str, server: OtlpServer, tmp_path: Path
) -> None:
    program = _WITHOUT_THREADS.format(left=0) + f"""
    {begin}
    for step in range(10_000):  # more than waits in memory
        otel_ml.log({{"x": 1.0}}, step=step)
    otel_ml.log_text("note", "text")
    otel_ml.flush(5)
    print("trained")
    """  # fmt: skip

    output, said = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert output == "trained\n"
    assert said.count("Nothing is recorded: can't start new thread.") == 1
    assert server.points("x") == []
