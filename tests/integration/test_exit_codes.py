"""A program without `with` that leaves with a code: how the run ended is what its caller sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run
from tests.otlp_server import OtlpServer

PROGRAM = """
import sys, threading
from sys import exit as leave
import otel_ml

def main(code=1):
    otel_ml.log({{"loss": 1.0}}, step=1)
    return code

def deep():
    raise SystemExit(4)

otel_ml.init("exp")
main()
{end}
"""

FAILED = {
    "sys.exit(1)": 1,
    "sys.exit('no data')": 1,
    "sys.exit(main())": 1,
    "exit(2)": 2,
    "quit(code=2)": 2,
    "raise SystemExit(3)": 3,
    "raise SystemExit('no data')": 1,
    "leave(5)": 5,
    "deep()": 4,
    "1/0": 1,
    "try:\n    1/0\nfinally:\n    sys.exit(7)": 7,
}
FINISHED = (
    "",
    "sys.exit()",
    "sys.exit(0)",
    "sys.exit(main(0))",
    "exit()",
    "raise SystemExit",
    "raise SystemExit(0)",
    "raise SystemExit(main(0))",
    "try:\n    sys.exit(1)\nexcept SystemExit:\n    pass",
    "thread = threading.Thread(target=sys.exit, args=(1,)); thread.start(); thread.join()",
    "for _ in otel_ml.steps(range(2)):\n    main()",
)


def status(server: OtlpServer, folder: Path, program: str, code: int) -> str:
    run(program, environment(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), folder, code=code)
    [goodbye] = server.events("ml.writer.end")
    return str(goodbye.attributes["ml.status"])


@pytest.mark.parametrize("end", FAILED)
def test_a_program_that_leaves_with_an_error_has_failed(server: OtlpServer, tmp_path: Path, end: str) -> None:
    assert status(server, tmp_path, PROGRAM.format(end=end), FAILED[end]) == "failed"


@pytest.mark.parametrize("end", FINISHED)
def test_a_program_that_leaves_without_one_has_finished(server: OtlpServer, tmp_path: Path, end: str) -> None:
    assert status(server, tmp_path, PROGRAM.format(end=end), 0) == "finished"


def test_a_module_that_leaves_with_an_error_has_failed(server: OtlpServer, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM.format(end="sys.exit(6)"))
    program = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'job'])"

    assert status(server, tmp_path, program, 6) == "failed"


@pytest.mark.parametrize(
    ("end", "expected"), [("sys.exit(1)", "failed"), ("1/0", "failed"), ("sys.exit(0)", "finished"), ("", "finished")]
)
def test_a_rank_that_multiprocessing_started_ends_as_its_code_says(
    server: OtlpServer, tmp_path: Path, end: str, expected: str
) -> None:
    program = f"""
        import multiprocessing, sys
        import otel_ml

        def work():
            otel_ml.init("exp", rank=1, world_size=2)
            otel_ml.log({{"loss": 1.0}}, step=1)
            {end or "pass"}

        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
    """

    assert status(server, tmp_path, program, 0) == expected


def test_calls_are_those_of_python_again_when_the_run_has_ended(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import sys
        import otel_ml

        before = sys.exit, type(exit).__call__
        otel_ml.init("exp")
        otel_ml.shutdown()
        assert (sys.exit, type(exit).__call__) == before
    """

    assert status(server, tmp_path, program, 0) == "finished"
