"""A child that says which role or rank it has is a writer of its own; with its parent's place it is a child."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

PLACES = """
    import multiprocessing, otel_ml

    def work(i):
        run = otel_ml.init("exp", exporters="jsonl", role="worker", rank=i, world_size=2, tags=["w"])
        assert (run.role, run.rank) == ("worker", i)
        otel_ml.log({{"x": i}}, step=i)

    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        run = otel_ml.init("exp", exporters="jsonl", rank=3, world_size=4)
        otel_ml.set_step(5)
        otel_ml.log({{"mine": 1}})
        children = [context.Process(target=work, args=(i,)) for i in range(2)]
        [child.start() for child in children]
        [child.join() for child in children]
        assert [child.exitcode for child in children] == [0, 0]
        print(run.id)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_that_says_its_place_is_a_writer_of_its_own_in_the_run_however_it_was_started(
    server: OtlpServer, tmp_path: Path, method: str
) -> None:
    output, errors = run(PLACES.format(method=method), environment(tmp_path, variables(server)), tmp_path)

    points = sorted(server.points("x"), key=lambda point: point.value)
    told = [point.resource for point in points]
    assert {resource["ml.experiment.id"] for resource in told} == {output.strip()}
    assert [(resource["service.name"], resource["ml.rank"], resource["ml.world_size"]) for resource in told] == [
        ("worker", 0, 2),
        ("worker", 1, 2),
    ]
    assert all("ml.parent" not in resource for resource in told)
    assert [point.step for point in points] == [0, 1]
    (mine,) = {point.resource["service.instance.id"] for point in server.points("mine")}
    assert len({mine, *(resource["service.instance.id"] for resource in told)}) == 3
    assert "changes nothing" not in errors
    assert len(server.events("ml.writer.end")) == 3


def test_a_forked_child_that_says_the_place_of_its_parent_is_its_child(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, otel_ml
        otel_ml.init("exp", rank=3, world_size=4)
        otel_ml.log({"x": 1}, step=0)
        pid = os.fork()
        if pid == 0:
            otel_ml.init("exp", rank=3, world_size=4)
            otel_ml.log({"x": 1}, step=0)
            otel_ml.flush(5)
            os._exit(0)
        os.waitpid(pid, 0)
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    parents = [point.resource.get("ml.parent") for point in server.points("x")]
    assert len(parents) - parents.count(None) == 1
    assert "changes nothing" not in errors


def test_a_forked_child_with_a_place_stays_in_the_run_of_its_parent(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, otel_ml
        otel_ml.init("exp", id="one")
        otel_ml.log({"x": 1}, step=0)
        pid = os.fork()
        if pid == 0:
            print(otel_ml.init("exp", exporters="jsonl", role="worker", rank=1), flush=True)
            otel_ml.log({"x": 1}, step=0)
            otel_ml.shutdown()
            os._exit("OTEL_ML_PARENT" in os.environ)
        assert os.waitpid(pid, 0)[1] == 0
        assert os.environ["OTEL_ML_EXPERIMENT_ID"] == "one"
    """

    output, _ = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert output == "Run(exp/one, role='worker', rank=1)\n"
    assert {point.resource["ml.experiment.name"] for point in server.points("x")} == {"exp"}
    (said,) = [str(event.body) for event in server.events("ml.notice") if "init(" in str(event.body)]
    assert said.startswith("init(exporters='jsonl') while a run is active changes nothing")
