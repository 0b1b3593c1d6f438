"""A tuple of reductions that travel as different points: what two ranks and the real service make of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import the_run_in
from tests.integration.worker_process import environment, run, start

RANK = """
    import json, os, sys, time
    import otel_ml
    rank, reductions = int(sys.argv[1]), json.loads(os.environ["REDUCTIONS"])
    with otel_ml.init("together", id="one", rank=rank, world_size=2, exporters="jsonl"):
        otel_ml.set_step(0)
        if rank:
            print("ready", flush=True)
            input()  # until rank 0 has recorded all of its values
        for part in ([1.0, 9.0], [5.0], [2.0, 4.0]):
            for value in part:
                otel_ml.log({"x": 10 * rank + value}, reduce=reductions)
            otel_ml.log({"x": [10 * rank + 3.0, 10 * rank + 6.0]}, reduce=reductions)  # at the same moment
            otel_ml.flush()  # each part travels in a message of its own
"""
SHOWN = {"last": 16.0, "first": 1.0, "mean": 206 / 22, "max": 19.0, "count": 22.0, "p90": 16.0, "p0": 1.0}


@pytest.mark.parametrize(
    "reductions",
    [
        ("last", "first"),
        ("first", "last"),
        ("mean", "last", "first", "count"),
        ("p90", "first"),
        ("last", "p0"),
        ("max", "p90", "first", "last", "mean"),
    ],
)
def test_each_of_several_reductions_is_what_it_is_alone(tmp_path: Path, reductions: tuple[str, ...]) -> None:
    environ = environment(tmp_path, {"REDUCTIONS": json.dumps(reductions)})
    later = start(RANK.replace("int(sys.argv[1])", "1"), environ, tmp_path)
    assert later.stdout is not None
    assert later.stdout.readline() == "ready\n"
    run(RANK.replace("int(sys.argv[1])", "0"), environ, tmp_path)
    _, errors = later.communicate("\n", timeout=60)
    assert later.returncode == 0, errors

    shown = otel_ml.read(the_run_in(tmp_path / "runs"))

    names = ["x", *(f"x/{reduction}" for reduction in reductions[1:])]
    assert {name for name in shown if name.startswith("x")} == set(names)
    for name, reduction in zip(names, reductions, strict=True):
        assert shown[name] == ([0], [pytest.approx(SHOWN[reduction], rel=0.006)])
