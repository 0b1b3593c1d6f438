"""However a process ends, what it recorded arrives, or is kept; and it ends in time."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml.wire.spool_format import read_spool, request_body
from tests.integration.worker_process import environment, run, start, status, variables
from tests.otlp_server import OtlpServer, Reply, eventually, otlp_server, points_of
from tests.ports import free_port


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def test_a_program_that_just_ends_delivers_everything(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        otel_ml.init("exp", params={"lr": 0.1})
        for i in range(100):
            otel_ml.set_step(i)
            otel_ml.log({"loss": i})
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert {point.step: point.value for point in server.points("loss")} == {i: float(i) for i in range(100)}
    assert {point.step: point.value for point in server.points("otel_ml.step.points")} == dict.fromkeys(range(100), 1)
    assert status(server) == ["finished"]
    assert [event.body for event in server.events("ml.params")] == [{"lr": 0.1}]


def test_without_init_the_environment_is_enough(server: OtlpServer, tmp_path: Path) -> None:
    run("import otel_ml as mlogger; mlogger.log({'x': 1}, step=3)", environment(tmp_path, variables(server)), tmp_path)

    assert [(point.step, point.value) for point in server.points("x")] == [(3, 1.0)]


def test_without_init_and_environment_recording_is_nothing(tmp_path: Path) -> None:
    program = """
        import sys, otel_ml
        otel_ml.log({"x": 1}); otel_ml.log_text("a", "b"); otel_ml.flush(); otel_ml.shutdown()
        import threading; print(threading.active_count(), otel_ml.child_env())
    """
    environ = environment(tmp_path)
    del environ["OTEL_ML_DIR"], environ["OTEL_ML_CAPTURE"]

    output, errors = run(program, environ, tmp_path)

    assert (output, errors) == ("1 {}\n", "")


@pytest.mark.feature("F13", "yes", "`OTEL_SDK_DISABLED=true`, as for all of OpenTelemetry")
def test_a_disabled_sdk_records_nothing(server: OtlpServer, tmp_path: Path) -> None:
    program = "import otel_ml; run = otel_ml.init('exp'); otel_ml.log({'x': 1}); otel_ml.log_text('a', 'b'); run.id"

    run(program, environment(tmp_path, variables(server, OTEL_SDK_DISABLED="true")), tmp_path)

    assert server.requests == []


WAITING = """
    import otel_ml, signal, sys, time
    {before}
    otel_ml.init("exp")
    otel_ml.log({{"x": 1}}, step=7)
    print("ready", flush=True)
    while True:
        time.sleep(0.05)  # trains until it is ended
"""


@pytest.mark.feature("M26", "better", "in every backend that knows a status")
def test_sigterm_delivers_and_kills(server: OtlpServer, tmp_path: Path) -> None:
    process = start(WAITING.format(before=""), environment(tmp_path, variables(server)), tmp_path)
    ready(process)

    process.terminate()
    process.communicate(timeout=10)

    assert process.returncode == -signal.SIGTERM
    assert len(server.points("x")) == 1
    assert status(server) == ["killed"]


def test_a_users_sigterm_handler_still_decides(server: OtlpServer, tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGTERM, lambda *_: (otel_ml.log({'checkpoint': 1}, step=8), sys.exit(3)))"
    process = start(WAITING.format(before=before), environment(tmp_path, variables(server)), tmp_path)
    ready(process)

    process.terminate()
    process.communicate(timeout=10)

    assert process.returncode == 3
    assert [point.step for point in server.points("checkpoint")] == [8]


def test_control_c_is_a_killed_run(server: OtlpServer, tmp_path: Path) -> None:
    process = start(WAITING.format(before=""), environment(tmp_path, variables(server)), tmp_path)
    ready(process)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)

    assert status(server) == ["killed"]


def test_shutdown_gives_signals_and_environment_back(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, signal, otel_ml
        before = signal.getsignal(signal.SIGTERM), dict(os.environ)
        otel_ml.init("exp", id="one")
        assert os.environ["OTEL_ML_EXPERIMENT_ID"] == "one"
        otel_ml.shutdown()
        assert (signal.getsignal(signal.SIGTERM), dict(os.environ)) == before
        first = otel_ml.init("exp").id
        otel_ml.shutdown()
        print(first != "one" and otel_ml.init("exp").id != first)
    """

    output, _ = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert output == "True\n"


def test_a_killed_process_leaves_what_the_next_one_sends(tmp_path: Path) -> None:
    port = free_port()
    environ = environment(
        tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_ML_EXPERIMENT_ID": "same"}
    )
    process = start(WAITING.format(before=""), environ, tmp_path)
    ready(process)
    eventually(lambda: [path for path in tmp_path.glob("run/*/*/spool/*.spool") if read_spool(path).frames])
    process.kill()
    process.communicate()

    with otlp_server(port=port) as server:
        run("import otel_ml; otel_ml.init('exp'); otel_ml.log({'y': 1}, step=0); otel_ml.flush(10)", environ, tmp_path)

        assert [(point.step, point.value) for point in server.points("x")] == [(7, 1.0)]
        assert len({point.resource["service.instance.id"] for point in server.points()}) == 2
        assert list(tmp_path.glob("run/*/*/spool/*.spool")) == []


def test_what_is_recorded_while_a_receiver_hangs_survives_a_kill(tmp_path: Path) -> None:
    """The spool is written every 100 ms, whatever the request under way waits for."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        environ = environment(
            tmp_path,
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{hanging.getsockname()[1]}",
                "OTEL_ML_EXPERIMENT_ID": "same",
                "OTEL_ML_FLUSH_INTERVAL": "100",
            },
        )
        program = """
            import time
            import otel_ml
            otel_ml.init("exp")
            for step in range(100_000):
                otel_ml.set_step(step)
                otel_ml.log({"x": 1.0})
                print(step, time.monotonic(), flush=True)
                time.sleep(0.02)  # trains until it is ended
        """
        process = start(program, environ, tmp_path)
        connection, _ = hanging.accept()
        assert connection.recv(65536)  # a request is under way, and will never be answered
        assert process.stdout is not None
        began = time.monotonic()
        lines = [process.stdout.readline().split()]
        while time.monotonic() < began + 1.5 or float(lines[-1][1]) < began + 1.5:
            lines.append(process.stdout.readline().split())
        killed = time.monotonic()
        process.kill()
        process.communicate()
        connection.close()

    # Five times what is promised: the machine that runs this may be busy; without the promise it is 1.5 s.
    safe = max(int(step) for step, moment in lines if float(moment) < killed - 1.0)
    left = [read_spool(path) for path in tmp_path.glob("run/*/*/spool/*.spool")]
    bodies = [request_body(b"", [frame.payload for frame in spool.frames if frame.kind == "M"]) for spool in left]
    points = [point for body in bodies for point in points_of(ExportMetricsServiceRequest.FromString(body))]
    steps = {point.step for point in points if point.name == "x"}
    assert set(range(safe + 1)) <= steps


def test_with_nobody_listening_the_program_ends_in_time_and_keeps_its_data(tmp_path: Path) -> None:
    port = free_port()
    environ = environment(
        tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_ML_EXPERIMENT_ID": "same"}
    )
    program = """
        import otel_ml, time
        otel_ml.init("exp")
        otel_ml.log({"x": 1}, step=0)
        begun = time.monotonic()
        otel_ml.shutdown()
        print(time.monotonic() - begun)
    """

    output, errors = run(program, environ, tmp_path)

    assert float(output) < 3.0
    assert "1 point of rank 0 is not acknowledged" in errors
    assert "otel-ml recover" in errors
    with otlp_server(port=port) as server:
        run("import otel_ml; otel_ml.init('exp'); otel_ml.log({'y': 1}, step=1); otel_ml.flush(10)", environ, tmp_path)
        assert [point.step for point in server.points("x")] == [0]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_program_whose_spool_is_taken_away_leaves_it_there_anew_or_says_what_is_lost(
    is_replaced: bool, tmp_path: Path
) -> None:
    port = free_port()
    environ = environment(
        tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_ML_EXPERIMENT_ID": "same"}
    )
    program = f"""
        import os, shutil, otel_ml
        from otel_ml.wire.rendezvous import rendezvous_of
        otel_ml.init("exp")
        otel_ml.log({{"x": 1}}, step=0)
        otel_ml.flush(0.1)
        folder = rendezvous_of("same").folder
        shutil.rmtree(folder)
        if {is_replaced}:
            folder.write_text("something else")
        otel_ml.log({{"x": 1}}, step=1)
    """

    _, errors = run(program, environ, tmp_path)

    assert ("2 points of rank 0 are lost with this process" in errors) is is_replaced
    assert ("2 points of rank 0 are not acknowledged" in errors) is not is_replaced
    assert ("kept on this host" in errors) is not is_replaced
    if not is_replaced:
        with otlp_server(port=port) as server:
            run("import otel_ml; otel_ml.init('exp'); otel_ml.log({'y': 1}, step=1)", environ, tmp_path)
            assert [point.step for point in server.points("x")] == [0, 1]


def test_what_a_dead_process_left_is_tried_again_where_the_receiver_has_no_room_for_it_now(tmp_path: Path) -> None:
    with otlp_server() as server:
        environ = environment(tmp_path, {**variables(server), "OTEL_ML_EXPERIMENT_ID": "same"})
        server.replies = [Reply(503)] * 1000
        run("import otel_ml; otel_ml.init('exp'); otel_ml.log({'x': 1}, step=0)", environ, tmp_path)
        server.replies = [Reply(), Reply(503)]  # its own data, and what the other left
        program = """
            import otel_ml, sys
            otel_ml.init("exp")
            otel_ml.log({"y": 1}, step=1)
            otel_ml.flush(10)
            sys.stdin.readline()
        """

        process = start(program, environ, tmp_path)
        eventually(lambda: server.points("x"))
        _, errors = process.communicate("\n", timeout=60)

        assert process.returncode == 0, errors
        assert server.replies == []
        assert [point.step for point in server.points("x")] == [0]


def test_a_receiver_that_comes_back_gets_everything_once_it_is_there(tmp_path: Path) -> None:
    port = free_port()
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"})
    program = """
        import otel_ml, sys
        otel_ml.init("exp")
        for i in range(50):
            otel_ml.set_step(i); otel_ml.log({"x": i})
        print("ready", flush=True)
        sys.stdin.readline()
    """
    process = start(program, environ, tmp_path)
    ready(process)

    with otlp_server(port=port) as server:
        eventually(lambda: len(server.points("x")) == 50)
        process.communicate("go\n", timeout=10)

        assert sorted(point.value for point in server.points("x")) == [float(i) for i in range(50)]
        assert status(server) == ["finished"]


@pytest.mark.feature("R6", "better", "a backend that hangs or fails never reaches the loop")
def test_a_hanging_receiver_never_delays_recording(tmp_path: Path) -> None:
    program = """
        import otel_ml, time
        otel_ml.init("exp")
        slowest = 0
        for i in range(300):
            begun = time.perf_counter()
            otel_ml.set_step(i); otel_ml.log({"x": i})
            slowest = max(slowest, time.perf_counter() - begun)
            time.sleep(0.005)  # steps of 5 ms: what is measured is the call
        print(slowest)
        begun = time.monotonic(); otel_ml.shutdown(1.0); print(time.monotonic() - begun)
    """
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        output, _ = run(program, environ, tmp_path)

    slowest, end = map(float, output.split())
    assert slowest < 1.0
    assert end < 3.0


def test_the_receivers_refusal_is_said(server: OtlpServer, tmp_path: Path) -> None:
    server.replies.extend([Reply(400, body=b"ml.experiment.id is missing")] * 3)
    program = "import otel_ml; otel_ml.init('exp'); otel_ml.log({'x': 1}, step=0); otel_ml.flush(5); otel_ml.shutdown()"

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert "HTTP 400: ml.experiment.id is missing" in errors
