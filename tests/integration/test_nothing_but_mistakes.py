"""A program that records nothing but mistakes, and so begins no run, is told at its end; no run could tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run

NO_MAPPING = "otel_ml.log(0.5)"
LINE = "megatron.TrainingLog(megatron.LoggerConfig(), write=print).log(1, 0.5)"

PROGRAM = """
    import otel_ml
    from otel_ml.compat import megatron
    for step in range(3):
        {call}
"""


@pytest.mark.parametrize("call", [NO_MAPPING, LINE])
def test_what_was_lost_is_said_once(tmp_path: Path, call: str) -> None:
    output, errors = run(PROGRAM.format(call=call), environment(tmp_path), tmp_path)

    [said] = errors.splitlines()
    assert said.startswith("otel_ml: ")
    assert "0.5" in said
    assert "otel-ml explain bad-" in said
    assert output == ""


def test_of_many_mistakes_the_first_ones_are_said(tmp_path: Path) -> None:
    call = "[otel_ml.record(number, 1.0) for number in range(40)]"
    _, errors = run(PROGRAM.format(call=call), environment(tmp_path), tmp_path)

    *said, rest = errors.splitlines()
    assert [f" got {number}. " in line for number, line in enumerate(said)] == [True] * 5
    assert rest.startswith("otel_ml: 35 more mistakes are not shown")


@pytest.mark.parametrize(
    "quiet",
    [
        {"OTEL_ML_CONSOLE": "off"},
        {"OTEL_LOG_LEVEL": "error"},
        {"OTEL_SDK_DISABLED": "true"},
        {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"},
    ],
)
def test_who_is_to_print_nothing_prints_nothing(tmp_path: Path, quiet: dict[str, str]) -> None:
    _, errors = run(PROGRAM.format(call=NO_MAPPING), environment(tmp_path, quiet), tmp_path)

    assert errors == ""


def test_where_a_run_begins_later_it_says_it(tmp_path: Path) -> None:
    program = f"""
        import otel_ml
        {NO_MAPPING}
        with otel_ml.init("exp", exporters="jsonl"):
            otel_ml.log({{"loss": 1.0}}, step=0)
    """

    _, errors = run(program, environment(tmp_path), tmp_path)

    assert errors.count("log()") == 1
