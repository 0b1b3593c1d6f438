"""Everything that a job can get wrong, in one job of two ranks: it goes on, each is said once, nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from tests.integration.worker_process import environment, start
from tests.waiting import eventually

WRONG = """
    import math
    import sys
    import numpy as np
    import otel_ml

    run = otel_ml.init("wrong", id="one", exporters="jsonl,tensorboard", params={"lr": 0.1})

    def again():  # everything twice: it is said once
        otel_ml.set_step(0)
        otel_ml.log({"good": 1.0})
        for value in (None, {"a": 1}, np.zeros((2, 2, 2)), object(), "text"):
            otel_ml.log({"value": value})
        otel_ml.log({"unknown_reduction": 1.0}, reduce="maen")
        for step in (-1, 1.5, True, "seven"):
            otel_ml.set_step(step)
            otel_ml.log({"bad_step": 1.0}, step=step)
        otel_ml.log({"": 1.0, None: 1.0})
        otel_ml.log({"weighted": 1.0}, weight=-1)
        otel_ml.log_image("picture", np.zeros((3, 4, 5, 6)))
        otel_ml.log_artifact("there/is/no/such.file")
        otel_ml.log_params({"odd": object()})
        otel_ml.log_table("table", columns=["a", "b"], data=[[1], [1, 2, 3]])

    again(), again()
    otel_ml.log({"conflict": 1.0}, reduce="CONFLICT")
    otel_ml.log({"nan": math.nan, "plus": math.inf, "minus": -math.inf})
    otel_ml.log({"x" * 300: 3.0, "größe": 4.0, "a@b": 5.0, "two//slashes": 6.0, "with space": 7.0})
    deep = {"leaf": 1}
    for _ in range(20):
        deep = {"down": deep}
    otel_ml.log_params({"deep": deep})
    otel_ml.set_step(1)
    otel_ml.log({f"name_{i}": float(i) for i in range(10_000)})
    otel_ml.set_step(2)
    sys.stdin.readline()  # a job does not wait at its end for a service that is seconds behind
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of the run, and what the two ranks said."""
    folder = tmp_path_factory.mktemp("wrong")
    environ = environment(folder)
    ranks: Mapping[str, str] = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    processes = [
        start(WRONG.replace("CONFLICT", reduction), {**environ, **ranks, "RANK": rank, "LOCAL_RANK": rank}, folder)
        for rank, reduction in (("0", "sum"), ("1", "max"))
    ]
    rows = folder / "runs" / "wrong" / "one" / "metrics.jsonl"
    eventually(lambda: rows.exists() and "name_9999" in rows.read_text(), timeout=60)
    said: list[str] = []
    for process in processes:
        _, errors = process.communicate("go\n", timeout=60)
        assert process.returncode == 0, errors
        said += errors.splitlines()
    return rows.parent, said


def values(run: Path) -> dict[tuple[str, int], float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps: list[Mapping[str, Any]] = [row for row in rows if row.get("axis") == "step"]
    return {(name, row["step"]): value for row in steps for name, value in row["values"].items()}


def test_everything_good_is_there(job: tuple[Path, list[str]]) -> None:
    shown = values(job[0])

    assert shown["good", 0] == 1.0
    assert [str(shown[name, 0]) for name in ("nan", "plus", "minus")] == ["nan", "inf", "-inf"]
    assert {shown[f"name_{i}", 1] == i for i in range(10_000)} == {True}


def test_a_name_is_as_it_was_written(job: tuple[Path, list[str]]) -> None:
    names = {name for name, step in values(job[0]) if step == 0}

    assert {"x" * 300, "größe", "a@b", "two//slashes", "with space"} <= names


def test_two_ranks_that_disagree_on_a_reduction_have_both(job: tuple[Path, list[str]]) -> None:
    shown = values(job[0])

    assert shown["conflict/sum", 0] == shown["conflict/max", 0] == 1.0
    [line] = [line for line in job[1] if "conflict" in line]
    assert "rank 0" in line
    assert "rank 1" in line


WRONG_THINGS = (
    "got None", "got a dict", "of shape (2, 2, 2)", "got a object", "got 'text'", "Did you mean 'mean'",
    "got weight -1", "set_step(): expected a step that is a whole number from 0 on, got -1", "got 1.5",
    "got True", "got 'seven'", "got ''", "of shape (3, 4, 5, 6)", "is/no/such.file", "row 0 of a table has 1 cells",
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_THINGS)
def test_each_wrong_thing_is_said(job: tuple[Path, list[str]], wrong: str) -> None:
    assert [line for line in job[1] if wrong in line], job[1]


def test_nothing_is_said_twice_by_two_ranks_that_do_it_twice(job: tuple[Path, list[str]]) -> None:
    assert sorted(job[1]) == sorted(set(job[1]))


def test_nothing_is_raised_and_what_was_refused_is_counted_in_the_last_line(job: tuple[Path, list[str]]) -> None:
    [last] = [line for line in job[1] if "finished." in line]

    assert "Traceback" not in "\n".join(job[1])
    for reason in ("bad_value", "bad_step", "bad_name"):
        assert f"{reason}: " in last
    recorded = int(last.split("processes, ")[1].split(" ")[0].replace(",", ""))
    assert f"{recorded:,} values recorded, {recorded:,} delivered" in last


PANIC = """
    import otel_ml

    class PanicException(BaseException):  # as the bindings of libraries in Rust raise it
        pass

    class Cell:
        def __str__(self):
            raise PanicException("index out of bounds")
        __repr__ = __str__

    class Array:  # as a result of JAX
        shape, dtype, ndim, size = (), "float32", 0, 1
        def is_ready(self):
            raise PanicException("lost")
        def __array__(self, *_, **__):
            raise PanicException("lost")

    class Silent(Exception):
        def __str__(self):
            raise PanicException("no text")

    class Row:
        def __str__(self):
            raise Silent
        __repr__ = __str__

    with otel_ml.init("panic", id="one", exporters="jsonl"):
        for step in range(5):
            otel_ml.set_step(step)
            otel_ml.log_table("table", [[Cell()]], columns=["cell"])
            otel_ml.log_table("table", [[Row()]], columns=["cell"])
            otel_ml.log({"array": Array()})
            otel_ml.log_params({"good": 1, "cell": Cell()})
            otel_ml.log_image("array", Array())
            otel_ml.event("odd", {"cell": Cell()})
            otel_ml.log({"loss": 1.0})
            otel_ml.flush(timeout=60)
"""


def test_what_no_program_should_raise_costs_a_table_and_not_the_run(tmp_path: Path) -> None:
    _, errors = start(PANIC, environment(tmp_path), tmp_path).communicate(timeout=100)

    assert otel_ml.read(tmp_path / "runs" / "panic" / "one")["loss"] == (list(range(5)), [1.0] * 5)
    assert "PanicException: index out of bounds" in errors
