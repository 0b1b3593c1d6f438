"""The exporter `console` of a job's own service: its lines are on the terminal of the job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run

PROGRAM = """
    import otel_ml
    with otel_ml.init("digits", name="first", exporters="console,jsonl"):
        for step in otel_ml.steps(range(4)):
            otel_ml.log({"loss": 1 / (1 + step)})
"""


def test_each_closed_step_is_one_line_on_standard_error_in_order_before_the_last_line(tmp_path: Path) -> None:
    output, errors = run(PROGRAM, environment(tmp_path, {"OTEL_ML_WAIT": "1"}), tmp_path)

    lines = errors.splitlines()
    steps = [line for line in lines if line.startswith("step ")]
    assert [line.split()[:2] for line in steps] == [["step", str(step)] for step in range(4)]
    assert [float(line.split()[3]) for line in steps] == [1.0, 0.5, 0.3333, 0.25]
    assert "run finished" in lines
    assert lines[-1].startswith("otel_ml: run digits/first finished.")
    assert output == ""


@pytest.mark.parametrize("variables", [{"OTEL_ML_CONSOLE": "off"}, {"OTEL_ML_EXPORTERS": "jsonl"}])
def test_nothing_of_it_is_printed_where_the_console_is_off_or_nobody_asked_for_it(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    program = PROGRAM.replace(', exporters="console,jsonl"', "")

    _, errors = run(program, environment(tmp_path, {"OTEL_ML_EXPORTERS": "console,jsonl", **variables}), tmp_path)

    assert not [line for line in errors.splitlines() if line.startswith("step ")]
