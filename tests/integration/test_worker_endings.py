"""The rough ends: a signal inside a step, `os._exit` in a child, the worker processes of a DataLoader."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.jobs import the_run_in
from tests.integration.worker_process import environment, run, start, variables
from tests.otlp_server import OtlpServer, eventually

INSIDE_A_STEP = """
    import otel_ml, time
    otel_ml.init("exp")
    for i in otel_ml.steps(range(3)):
        otel_ml.log({"loss": i})
        if i == 2:
            with otel_ml.timed("forward"):
                print("ready", flush=True)
                while True:
                    time.sleep(0.01)  # trains until it is killed
"""


def terminated(process: subprocess.Popen[str]) -> float:
    """Send SIGTERM inside the step; return the seconds until the process was gone."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    begun = time.monotonic()
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    return time.monotonic() - begun


def test_a_signal_inside_a_step_delivers_what_the_step_has(server: OtlpServer, tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})

    terminated(start(INSIDE_A_STEP, environ, tmp_path))

    assert {point.step: point.value for point in server.points("loss")} == {0: 0.0, 1: 1.0, 2: 2.0}
    manifests = {point.step: point.value for point in server.points("otel_ml.step.points")}
    assert set(manifests) == {0, 1, 2}
    assert manifests[2] == len([point for point in server.points() if point.step == 2])
    assert [event.attributes["ml.status"] for event in server.events("ml.writer.end")] == ["killed"]


@pytest.mark.feature("F17", "better", "what could not be sent is kept for the next start")
def test_a_signal_inside_a_step_ends_the_process_in_time_although_nobody_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = start(INSIDE_A_STEP, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": url}), tmp_path)

        assert terminated(process) < 7.0

    assert list(tmp_path.glob("run/*/*/spool/*.spool"))


def test_a_child_that_leaves_by_os_exit_loses_nothing_that_is_in_its_spool(tmp_path: Path) -> None:
    """The service takes the spool of a writer that is gone; it is written every 100 ms."""
    program = """
        import os, pathlib, time, otel_ml
        from otel_ml.wire.spool_format import read_spool
        otel_ml.init("exp", id="one", exporters="jsonl")
        otel_ml.log({"parent": 1}, step=0)
        assert otel_ml.flush(30)
        pid = os.fork()
        if pid == 0:
            otel_ml.log({"child": 2}, step=1)
            spools = pathlib.Path(os.environ["XDG_RUNTIME_DIR"])
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                frames = [frame for path in spools.glob("*/*/spool/*.spool") for frame in read_spool(path).frames]
                if any(b"child" in frame.payload for frame in frames):
                    break
            os._exit(0)
        os.waitpid(pid, 0)
        print("gone", flush=True)
        input()
    """
    process = start(program, environment(tmp_path, {"OTEL_ML_FLUSH_INTERVAL": "60000"}), tmp_path)

    assert process.stdout is not None
    assert process.stdout.readline() == "gone\n"
    eventually(lambda: len(list(tmp_path.glob("run/*/*/spool/*.spool"))) == 1)
    _, errors = process.communicate("go\n", timeout=30)

    metrics = the_run_in(tmp_path / "runs") / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    values = {name: value for row in rows for name, value in row.get("values", {}).items()}
    assert (values["parent"], values["child"]) == (1.0, 2.0), errors


def test_the_workers_of_a_dataloader_deliver_what_they_log(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml, torch

        class Samples(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                with otel_ml.timed("decode"):
                    otel_ml.log({"sample": index}, step=index)
                return index

        if __name__ == "__main__":
            otel_ml.init("exp")
            loader = torch.utils.data.DataLoader(
                Samples(), batch_size=2, num_workers=2, multiprocessing_context="fork"
            )
            for batch in otel_ml.steps(loader):
                otel_ml.log({"batch": batch.sum()})
    """

    run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    samples = server.points("sample")
    assert sorted((point.step, point.value) for point in samples) == [(i, float(i)) for i in range(8)]
    assert len({point.resource["service.instance.id"] for point in samples}) == 2
    (trainer,) = {point.resource["service.instance.id"] for point in server.points("batch")}
    assert {point.resource["ml.parent"] for point in samples} == {trainer}
    assert sum(point.value for point in server.points("batch")) == 28.0
    assert sum(point.count for point in server.points("time/decode")) == 8


def test_what_another_thread_records_while_the_run_ends_begins_no_other_run(server: OtlpServer, tmp_path: Path) -> None:
    """The environment asks for a run, and that one was just ended by hand."""
    program = """
        import otel_ml, threading, time
        from otel_ml._internal.lifecycle.runtime import RUNTIME

        otel_ml.init("exp")
        is_over = threading.Event()

        def tell():
            while not is_over.is_set():
                otel_ml.event("still here")
                time.sleep(0.0001)  # often enough to be in the middle of the end, and not always

        thread = threading.Thread(target=tell)
        thread.start()
        otel_ml.shutdown()
        is_over.set()
        thread.join()
        print(RUNTIME.is_active)
    """

    output, _ = run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    assert output == "False\n"
    assert [event.attributes["ml.status"] for event in server.events("ml.writer.end")] == ["finished"]


def test_a_run_that_was_delivered_leaves_nothing_on_the_host(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        with otel_ml.init("exp"):
            otel_ml.log({"loss": 0.5}, step=0)
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert server.points("loss")
    [folder] = (tmp_path / "run").iterdir()
    assert list(folder.iterdir()) == []


def test_an_embedded_run_leaves_nothing_on_the_host(tmp_path: Path) -> None:
    program = """
        import otel_ml
        with otel_ml.init("exp", exporters="jsonl"):
            otel_ml.log({"loss": 0.5}, step=0)
    """

    run(program, environment(tmp_path), tmp_path)

    [folder] = (tmp_path / "run").iterdir()
    eventually(lambda: list(folder.iterdir()) == [])


def test_a_block_of_a_library_within_a_run_does_not_end_it(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        def library():
            with otel_ml.init("exp"):
                otel_ml.log({"of a library": 1}, step=0)
        with otel_ml.init("exp"):
            library()
            try:
                with otel_ml.init("exp"):
                    raise ValueError("that is handled")
            except ValueError:
                pass
            otel_ml.log({"x": 1}, step=1)
        otel_ml.log({"x": 2}, step=2)
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert [point.step for point in server.points("x")] == [1]
    assert [event.attributes["ml.status"] for event in server.events("ml.writer.end")] == ["finished"]


def test_a_process_that_records_nothing_yet_says_that_it_lives(server: OtlpServer, tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_ML_FLUSH_INTERVAL": "100"})
    program = """
        import otel_ml
        with otel_ml.init("exp"):
            input()  # a model is loaded
            otel_ml.log({"loss": 1.0}, step=1)
    """
    with start(program, environ, tmp_path) as process:
        eventually(lambda: len(server.points("otel_ml.position")) >= 3)
        process.communicate("loaded", timeout=30)

    assert {(point.step, point.axis, point.value) for point in server.points("otel_ml.position")} == {(None, None, 0)}
    assert len(server.points("loss")) == 1
