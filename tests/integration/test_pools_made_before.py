"""Workers of a pool that was made before its program began a run: what they record afterwards is in that run."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import services_of, until
from tests.integration.recorded_by import ids_of, values_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

PROGRAM = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
import otel_ml

def warm_up(n):
    WARM_UP

def work(n):
    BEGIN
    with otel_ml.timed("load"):
        otel_ml.log({"score": float(n)}, step=n)
    otel_ml.flush(10)

if __name__ == "__main__":
    context = multiprocessing.get_context(METHOD)
    BEFORE
    with POOL as pool:
        list(pool.map(warm_up, range(4)))
        with otel_ml.init("exp", name="search", exporters="jsonl"):
            otel_ml.log({"loss": 1.0}, step=0)
            list(pool.map(work, range(4)))
        AFTER
"""

POOLS = {"pool": "context.Pool(2)", "executor": "ProcessPoolExecutor(2, mp_context=context)"}
METHODS = ["fork", "spawn", "forkserver"]


def program(method: str, pool: str = "pool", **more: str) -> str:
    """Return the program; `more` is what stands at its places."""
    places = {"BEGIN": "pass", "BEFORE": "pass", "AFTER": "pass", "WARM_UP": "pass", **more}
    source = PROGRAM
    for place, what in {**places, "METHOD": repr(method), "POOL": POOLS[pool]}.items():
        source = source.replace(place, what)
    return source


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("method", METHODS)
def test_what_workers_record_once_their_program_has_a_run_is_in_it(
    server: OtlpServer, tmp_path: Path, method: str, pool: str
) -> None:
    run(program(method, pool), environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "score") == {"search": [0.0, 1.0, 2.0, 3.0]}
    assert ids_of(server, "score") == ids_of(server, "loss") == ids_of(server, "time/load")
    instances = {point.resource["service.instance.id"] for point in server.points("loss")}
    assert {point.resource["ml.parent"] for point in server.points("score")} == instances


RECORDED = "otel_ml.log({'before': 1.0}, step=0)"


@pytest.mark.parametrize("before", ["pass", RECORDED, "otel_ml.init('exp', exporters='jsonl').finish()"])
@pytest.mark.parametrize("method", METHODS)
def test_workers_that_have_recorded_before_there_was_a_run_join_it_and_keep_nothing_of_before(
    tmp_path: Path, method: str, before: str
) -> None:
    environ = environment(tmp_path)
    del environ["OTEL_ML_DIR"]

    run(program(method, WARM_UP=RECORDED, BEFORE=before), environ, tmp_path)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    found = [otel_ml.read(folder) for folder in tmp_path.glob("otel-ml-runs/exp/*")]
    assert [one["score"] for one in found if "score" in one] == [([0, 1, 2, 3], [0.0, 1.0, 2.0, 3.0])]
    assert not any("before" in one for one in found)


AT = """otel_ml.log({'first': 1.0}, step=n, axis='rollout')
    now = otel_ml.current_step()
    otel_ml.log({'at': -1.0 if now is None else float(now)}, step=n, axis='rollout')"""


def test_workers_that_were_forked_after_a_step_was_set_are_in_no_step(tmp_path: Path) -> None:
    environ = environment(tmp_path)  # which asks for no run
    del environ["OTEL_ML_DIR"]

    run(program("fork", BEGIN=AT, BEFORE="otel_ml.set_step(5)"), environ, tmp_path)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))
    (found,) = [otel_ml.read(folder) for folder in tmp_path.glob("otel-ml-runs/exp/*")]
    assert len(found["rollout/at"][1]) == 4
    assert 5.0 not in found["rollout/at"][1]


def test_where_a_run_is_asked_for_they_are_in_none_either_and_their_spans_have_ids_of_their_own(
    server: OtlpServer, tmp_path: Path
) -> None:
    source = program("fork", BEGIN=AT, BEFORE="otel_ml.set_step(5)")

    run(source, environment(tmp_path, variables(server)), tmp_path)

    assert 5.0 not in values_of(server, "at")["search"]
    ids = [span.span_id for span, _ in server.spans() if span.name == "load"]
    assert len(ids) == len(set(ids)) == 4


@pytest.mark.parametrize(
    ("begin", "names"),
    [
        ("otel_ml.init('exp')", {"search"}),
        ("otel_ml.init('exp', name=f'fold-{n}')", {"fold-0", "fold-1", "fold-2", "fold-3"}),
    ],
)
def test_a_worker_that_calls_init_is_in_the_run_of_its_program_unless_it_asks_for_another(
    server: OtlpServer, tmp_path: Path, begin: str, names: set[str]
) -> None:
    run(program("spawn", BEGIN=begin), environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "score").keys() == names


def test_workers_that_joblib_keeps_join_the_run_that_begins_after_them(server: OtlpServer, tmp_path: Path) -> None:
    program = """
    import joblib, otel_ml

    def work(n):
        otel_ml.log({"score": float(n)}, step=n)
        otel_ml.flush(10)

    joblib.Parallel(2)(joblib.delayed(abs)(n) for n in range(4))
    with otel_ml.init("exp", name="search"):
        otel_ml.log({"loss": 1.0}, step=0)
        joblib.Parallel(2)(joblib.delayed(work)(n) for n in range(4))
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "score") == {"search": [0.0, 1.0, 2.0, 3.0]}


AGAIN = """with otel_ml.init("exp", name="next", exporters="jsonl"):
            list(pool.map(work, range(4, 8)))"""


def test_that_workers_stay_in_the_run_they_joined_when_their_program_begins_the_next_is_said(
    server: OtlpServer, tmp_path: Path
) -> None:
    _, errors = run(program("fork", AFTER=AGAIN), environment(tmp_path, variables(server)), tmp_path)

    assert errors.count("explain workers-stay") == 1, errors
    (said,) = [event for event in server.events("ml.notice") if "workers-stay" in str(event.body)]
    assert said.resource["ml.run.name"] == "next"


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_a_program_that_has_no_run_record_nothing(tmp_path: Path, method: str) -> None:
    environ = environment(tmp_path)
    del environ["OTEL_ML_DIR"]
    without = program(method, WARM_UP=RECORDED).replace("with otel_ml.init(", "if otel_ml.child_env(")

    _, errors = run(without.replace('"exp", name="search", exporters="jsonl"', ""), environ, tmp_path)

    assert not errors
    assert not list(tmp_path.glob("otel-ml-runs"))
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file()]


OWN_RUNS = """
import multiprocessing
import otel_ml

def train(fold):
    otel_ml.log({"read": 1.0}, reduce="sum")  # of the program's run
    with otel_ml.init("exp", name=f"fold-{fold}"):
        otel_ml.log({"loss": 10.0 * fold}, step=0)

if __name__ == "__main__":
    with otel_ml.init("exp", name="search"):
        with multiprocessing.get_context(METHOD).Pool(1) as pool:
            pool.map(train, range(3))
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_has_recorded_begins_a_run_of_its_own_by_another_name(
    server: OtlpServer, tmp_path: Path, method: str
) -> None:
    run(OWN_RUNS.replace("METHOD", repr(method)), environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "loss") == {f"fold-{fold}": [10.0 * fold] for fold in range(3)}
    assert {name: sum(values) for name, values in values_of(server, "read").items()} == {"search": 3.0}
