"""Fork, multiprocessing, launchers: every process is a writer of its own, in one run."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_ml
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer, Reply
from tests.waiting import eventually


def test_a_forked_child_is_a_writer_of_its_own_with_its_parent_named(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, otel_ml
        otel_ml.init("exp", rank=3, world_size=4)
        otel_ml.set_step(5)
        otel_ml.log({"parent": 1})
        pid = os.fork()
        if pid == 0:
            otel_ml.log({"child": 2}, step=6)
            otel_ml.flush(5)
            os._exit(0)
        os.waitpid(pid, 0)
        otel_ml.log({"parent": 3})
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    (child,) = server.points("child")
    parents = server.points("parent")
    assert sum(point.value for point in parents) == 4.0
    assert child.resource["ml.parent"] == parents[0].resource["service.instance.id"]
    assert child.resource["service.instance.id"] != parents[0].resource["service.instance.id"]
    assert child.resource["ml.experiment.id"] == parents[0].resource["ml.experiment.id"]
    assert child.resource["ml.rank"] == 3
    assert (child.seq, child.resource["process.pid"] != parents[0].resource["process.pid"]) == (1, True)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_deliver_although_they_leave_by_os_exit(
    server: OtlpServer, tmp_path: Path, method: str
) -> None:
    program = f"""
        import multiprocessing, otel_ml
        def work(i):
            otel_ml.log({{"x": i}}, step=i)
        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            otel_ml.init("exp")
            children = [context.Process(target=work, args=(i,)) for i in range(3)]
            [child.start() for child in children]
            [child.join() for child in children]
            assert [child.exitcode for child in children] == [0, 0, 0]
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert sorted(point.value for point in server.points("x")) == [0.0, 1.0, 2.0]
    assert len({point.resource["ml.experiment.id"] for point in server.points("x")}) == 1
    assert len({point.resource["service.instance.id"] for point in server.points("x")}) == 3
    assert len(server.events("ml.writer.end")) == 4


def test_a_child_that_records_nothing_starts_no_thread_and_sends_nothing(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, threading, otel_ml
        otel_ml.init("exp")
        otel_ml.log({"x": 1}, step=0)
        pid = os.fork()
        if pid == 0:
            os._exit(threading.active_count())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """

    output, _ = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert output == "1\n"
    assert [point.value for point in server.points("x")] == [1.0]


def test_a_run_ends_where_what_it_told_its_children_cannot_be_taken_back(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import multiprocessing, signal
        import otel_ml
        from otel_ml.wire.rendezvous import rendezvous_of
        child = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
        child.start()
        otel_ml.init("exp")
        [told] = rendezvous_of("").folder.parent.glob("*.children.launch.json")
        told.unlink()
        told.mkdir()  # cannot be unlinked, as in a file system that is read-only by now
        otel_ml.log({"loss": 1.0}, step=0)
        print(otel_ml.shutdown(20.0), otel_ml.shutdown(20.0))
        child.kill()
    """

    said, _ = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert said == "True True\n"
    assert [point.value for point in server.points("loss")] == [1.0]


def test_forks_while_sending_neither_lose_nor_repeat_nor_hang(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, otel_ml
        otel_ml.init("exp")
        for i in range(40):
            otel_ml.set_step(i)
            otel_ml.log({"parent": i})
            pid = os.fork()
            if pid == 0:
                otel_ml.log({"child": i}, step=i)
                otel_ml.flush(20)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    """

    run(program, environment(tmp_path, variables(server, OTEL_ML_FLUSH_INTERVAL="10")), tmp_path)

    expected = [float(i) for i in range(40)]
    assert sorted(point.value for point in server.points("parent")) == expected
    assert sorted(point.value for point in server.points("child")) == expected


def test_the_ranks_of_a_torchrun_are_one_run(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, subprocess, sys
        environ = {**os.environ, "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"}
        rank = "import otel_ml; otel_ml.init('exp'); otel_ml.log({'x': 1}, step=0)"
        ranks = [
            subprocess.Popen([sys.executable, "-c", rank], env={**environ, "RANK": str(i), "LOCAL_RANK": str(i)})
            for i in range(3)
        ]
        sys.exit(sum(process.wait() for process in ranks))
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)
    run(program, environment(tmp_path, variables(server)), tmp_path)

    points = server.points("x")
    by_run = {point.resource["ml.experiment.id"] for point in points}
    assert len(by_run) == 2
    for run_id in by_run:
        mine = [point.resource for point in points if point.resource["ml.experiment.id"] == run_id]
        assert sorted(resource["ml.rank"] for resource in mine) == [0, 1, 2]
        assert {(resource["ml.world_size"], resource["ml.attempt"]) for resource in mine} == {(3, 1)}
        assert all("ml.parent" not in resource for resource in mine)


def test_a_process_elsewhere_joins_by_child_env_and_is_nobodys_child(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, subprocess, sys, otel_ml
        run = otel_ml.init("exp", name="first try")
        actor = "import otel_ml; otel_ml.log({'push_weights_s': 0.5}, step=1)"
        environ = {**os.environ, **otel_ml.child_env(), "OTEL_SERVICE_NAME": "generator"}
        subprocess.run([sys.executable, "-c", actor], env=environ)
        print(run.id)
    """

    output, _ = run(program, environment(tmp_path, variables(server)), tmp_path)

    (point,) = server.points("push_weights_s")
    assert point.resource["ml.experiment.id"] == output.strip()
    assert point.resource["ml.run.name"] == "first try"
    assert point.resource["service.name"] == "generator"
    assert "ml.parent" not in point.resource


def test_a_subprocess_that_inherits_the_environment_is_a_child(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import subprocess, sys, otel_ml
        otel_ml.init("exp")
        otel_ml.log({"mine": 1}, step=1)
        subprocess.run([sys.executable, "-c", "import otel_ml; otel_ml.log({'its': 2}, step=1)"])
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert server.points("its")[0].resource["ml.parent"] == server.points("mine")[0].resource["service.instance.id"]


BETWEEN = {
    "a shell": 'os.system(f"{command}; true")',
    "a shell that leaves it in the background": 'os.system(f"{command} &")',
    "a wrapper": 'subprocess.run(f"timeout 60 {command}".split())',
    "a program that does not record": 'subprocess.run([sys.executable, "-c", f"import os; os.system({command!r})"])',
    "a process of multiprocessing": "child(command)",
}
"""How a rank starts a program that only records, and what is between them."""


RANK_1 = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}


@pytest.mark.parametrize(
    ("between", "launch"), [*((between, {}) for between in BETWEEN), ("a shell", RANK_1), ("a wrapper", RANK_1)]
)
def test_what_a_program_records_that_a_rank_has_started_is_added_to_its_step_whatever_is_between(
    tmp_path: Path, between: str, launch: dict[str, str]
) -> None:
    (tmp_path / "tool.py").write_text(
        "import pathlib, otel_ml\n"
        "for step in range(3):\n"
        "    otel_ml.log({'n': 10}, step=step, reduce='sum')\n"
        "print(otel_ml.flush(20), flush=True)\n"
        "pathlib.Path('tool.done').touch()\n"
    )
    program = f"""
        import multiprocessing, os, pathlib, subprocess, sys, time, otel_ml
        command = f"{{sys.executable}} tool.py"
        def child(command):
            made = multiprocessing.get_context("fork").Process(target=os.system, args=(command,))
            made.start()
            made.join()
        with otel_ml.init("exp", id="behind", exporters="jsonl") as run:
            for step in range(3):
                otel_ml.log({{"n": 1}}, step=step, reduce="sum")
            otel_ml.flush(20)
            {BETWEEN[between]}
            while not pathlib.Path("tool.done").exists():
                time.sleep(0.01)  # between two looks
            for step in range(3, 6):
                otel_ml.log({{"n": 1}}, step=step, reduce="sum")
            otel_ml.flush(20)
    """

    _, said = run(program, environment(tmp_path, launch), tmp_path)

    folder = tmp_path / "runs" / "exp" / "behind"
    rows = folder / "metrics.jsonl"
    eventually(lambda: rows.exists() and '"status":"finished"' in rows.read_text(), timeout=60)
    assert list(otel_ml.read(folder)["n"][1]) == [11.0, 11.0, 11.0, 1.0, 1.0, 1.0]
    assert "same-rank" not in said
    assert "attempt" not in said


def test_a_retried_request_is_the_same_request(server: OtlpServer, tmp_path: Path) -> None:
    server.replies.extend([Reply(503, {"retry-after": "0"}), Reply(429), Reply(503)])
    program = """
        import otel_ml
        otel_ml.init("exp")
        for i in range(20):
            otel_ml.set_step(i); otel_ml.log({"x": i})
        print(otel_ml.flush(20))
    """

    output, _ = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert output == "True\n"
    assert sorted(point.value for point in server.points("x")) == [float(i) for i in range(20)]


def test_topology_given_later_is_added_and_other_changes_are_reported(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        first = otel_ml.init("exp")
        assert otel_ml.init("exp") is first
        assert otel_ml.init("exp", topology={"dp": (1, 2)}) is first
        assert otel_ml.init("exp", tags=["late"]) is first
        otel_ml.log({"x": 1}, step=0)
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    (point,) = server.points("x")
    assert (point.resource["ml.topology.dp"], point.resource["ml.topology.dp.size"]) == (1, 2)
    assert "init(tags=['late']) while a run is active changes nothing" in errors


@pytest.mark.feature("F22", "yes", "metrics, timers and spans of all programs carry the step")
def test_spans_of_opentelemetry_join_the_run_and_carry_the_step(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        otel_ml.init("exp")
        from opentelemetry import trace
        otel_ml.set_step(4)
        with trace.get_tracer("mine").start_as_current_span("outer"):
            with otel_ml.timed("inner"):
                pass
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    spans = {span.name: span for span, _ in server.spans()}
    steps = {
        name: [pair.value.int_value for pair in span.attributes if pair.key == "ml.step"]
        for name, span in spans.items()
    }
    assert steps["outer"] == [4]
    inner = next(name for name in spans if name.endswith("inner"))
    assert spans[inner].parent_span_id == spans["outer"].span_id
    assert spans[inner].trace_id == spans["outer"].trace_id


def test_a_users_own_tracer_provider_stays_and_its_spans_are_stamped(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        exporter = InMemorySpanExporter()
        mine = TracerProvider()
        mine.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(mine)
        import otel_ml
        otel_ml.init("exp")
        otel_ml.set_step(4)
        with trace.get_tracer("mine").start_as_current_span("outer"):
            pass
        assert trace.get_tracer_provider() is mine
        print(exporter.get_finished_spans()[0].attributes["ml.step"])
    """

    output, _ = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert output == "4\n"


def test_a_program_without_opentelemetry_never_loads_it(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import sys, otel_ml
        otel_ml.init("exp")
        otel_ml.set_step(0)
        with otel_ml.timed("x"): otel_ml.log({"y": 1})
        otel_ml.flush(5)
        heavy = {"opentelemetry", "torch", "numpy", "wandb", "mlflow", "tensorboard", "grpc", "ssl"}
        print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
    """

    output, _ = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert output == "[]\n"


def test_a_span_that_cannot_be_encoded_takes_nothing_with_it(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        otel_ml.init("exp")
        from opentelemetry import trace
        tracer = trace.get_tracer("mine")
        otel_ml.log({"x": 1.0}, step=0)
        with tracer.start_as_current_span("a name that is no text: \\ud800"):
            otel_ml.log({"x": 2.0}, step=1)
        with tracer.start_as_current_span("fine"):
            otel_ml.log({"x": 3.0}, step=2)
    """

    _, said = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert {point.step: point.value for point in server.points("x")} == {0: 1.0, 1: 2.0, 2: 3.0}
    assert [span.name for span, _ in server.spans()] == ["fine"]
    assert "Spans cannot be encoded, and are lost (spans_not_encoded)" in said
    [end] = [event for event in server.events() if event.name == "ml.writer.end"]
    assert end.attributes["otel_ml.dropped"] == {"spans_not_encoded": 1}
