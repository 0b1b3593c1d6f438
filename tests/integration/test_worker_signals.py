"""A signal finds the main thread in the middle of otel_ml's own work: nothing is lost, and nobody waits for himself.

Python runs a handler between two instructions of the main thread. In a tight loop that thread waits now and then until
its records are folded; the programs here send the signal just then.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.worker_process import environment, run, start
from tests.otlp_server import OtlpServer

WHILE_FOLDING = """
    import otel_ml, os, signal, sys, threading, time
    {before}
    otel_ml.init("exp")
    {after}

    def count_and_send(folder, values):
        # The background thread folds ten times a second; what the main thread waits for is meant.
        if threading.current_thread().name != "otel_ml" and not sent:
            sent.append(True)
            print(recorded, flush=True)
            os.kill(os.getpid(), signal.{name})
            time.sleep(0.2)  # now it is being handled
        count(folder, values)

    from otel_ml._internal.record.fold import Folder
    count, Folder._count = Folder._count, count_and_send
    sent = []
    values = {{f"x{{number}}": 1.0 for number in range(2000)}}
    recorded = 0
    while True:
        recorded += len(values)
        otel_ml.log(values, step=7, reduce="sum")
"""


def ended(server: OtlpServer, folder: Path, *, name: str = "SIGTERM", before: str = "", after: str = "") -> int:
    """Return the exit status; every record that was made before the signal has arrived."""
    program = WHILE_FOLDING.format(name=name, before=before, after=after)
    environ = environment(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})
    with start(program, environ, folder) as process:
        try:
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert output, errors
    assert sum(point.value for point in server.points()) == float(output)
    return process.returncode


def statuses(server: OtlpServer) -> list[str]:
    return [event.attributes["ml.status"] for event in server.events("ml.writer.end")]


def test_sigterm_while_records_are_folded_delivers_everything_and_kills(server: OtlpServer, tmp_path: Path) -> None:
    assert ended(server, tmp_path) == -signal.SIGTERM
    assert statuses(server) == ["killed"]


def test_control_c_while_records_are_folded_delivers_everything(server: OtlpServer, tmp_path: Path) -> None:
    assert ended(server, tmp_path, name="SIGINT") == -signal.SIGINT
    assert statuses(server) == ["killed"]


def test_a_users_handler_that_leaves_while_records_are_folded_loses_nothing(server: OtlpServer, tmp_path: Path) -> None:
    assert ended(server, tmp_path, before="signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))") == 3
    assert statuses(server) == ["failed"]


@pytest.mark.parametrize(("call", "status"), [("otel_ml.flush(5)", "failed"), ("otel_ml.shutdown()", "finished")])
def test_a_handler_of_later_that_calls_otel_ml_while_records_are_folded_loses_nothing(
    server: OtlpServer, tmp_path: Path, call: str, status: str
) -> None:
    """It took our handler's place, and waits itself for what it has interrupted."""
    handler = f"signal.signal(signal.SIGTERM, lambda *_: ({call}, sys.exit(3)))"

    assert ended(server, tmp_path, after=handler) == 3
    assert statuses(server) == [status]


RECORDING = """
    import otel_ml, os, signal, sys, threading
    otel_ml.init("exp")
    level = otel_ml.get_meter().create_up_down_counter("level")
    signal.signal(signal.SIGUSR1, lambda *_: (otel_ml.log({{"handled": 1}}, step=1), level.add(1)))

    def on_call(frame, event, argument):
        if event == "call":
            names = frame.f_back.f_code.co_name, frame.f_code.co_name
        else:  # of compiled code there is its caller's frame
            names = frame.f_code.co_name, getattr(argument, "__name__", None)
        if event in ("call", "c_call") and names == ("{caller}", "{function}"):
            sys.setprofile(None)
            os.kill(os.getpid(), signal.SIGUSR1)

    sys.setprofile(on_call)
    otel_ml.log({{"new": 1}}, step=1)
    level.add(1)
"""


@pytest.mark.parametrize(("function", "caller"), [("_declared", "_definition"), ("_record_at", "add")])
def test_a_handler_may_record_in_the_middle_of_recording(
    server: OtlpServer, tmp_path: Path, function: str, caller: str
) -> None:
    program = RECORDING.format(function=function, caller=caller)

    run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    assert [len(server.points(name)) for name in ("new", "handled")] == [1, 1]
    assert server.points("level")


def test_a_child_forked_while_another_thread_records_is_not_locked_out(server: OtlpServer, tmp_path: Path) -> None:
    """What a thread of the parent holds at the fork, nobody gives back in the child."""
    program = """
        import otel_ml, os, threading
        otel_ml.init("exp")
        level = otel_ml.get_meter().create_up_down_counter("level")
        values = {f"x{number}": 1.0 for number in range(2000)}

        def record():
            while True:
                otel_ml.log(values, step=1)
                level.add(1)

        threading.Thread(target=record, daemon=True).start()
        children = []
        for number in range(60):
            children.append(os.fork())
            if children[-1] == 0:
                otel_ml.log({"child": number, f"new{number}": 1}, step=2)
                level.add(1)
                otel_ml.log(values, step=2)
                otel_ml.shutdown(20)
                os._exit(0)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 60
    """
    run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    children = server.points("child")
    assert sorted(point.value for point in children) == [float(number) for number in range(60)]
    assert len({point.resource["service.instance.id"] for point in children}) == 60
    assert {point.resource["ml.parent"] for point in children} == {
        point.resource["service.instance.id"] for point in server.points("x0") if "ml.parent" not in point.resource
    }


# The goodbye is under way

LEAVING = """
    import faulthandler, os, signal, sys, time
    import otel_ml
    {before}
    with otel_ml.init("exp", id="one"):
        otel_ml.log({{"x": 1.0}}, step=0)
        {then}
"""
WAITS = "print(os.getpid(), flush=True); time.sleep(60)"  # until it is ended


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_a_signal_that_ends_the_process_comes_after_its_goodbye_however_often_it_is_sent(
    server: OtlpServer, tmp_path: Path, name: str
) -> None:
    server.pause = 0.2
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})
    with start(LEAVING.format(before="", then=WAITS), environ, tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.Signals[name])
        while process.poll() is None:
            process.terminate()
            time.sleep(0.002)  # once more, while the signal before is handled

    assert process.returncode in {-signal.Signals[name], -signal.SIGTERM}
    assert len(server.points("x")) == 1
    assert statuses(server) == ["killed"]


class Interrupting(dict[str, Any]):
    """The account of a run that is asked for in the middle of a goodbye: each question brings the process a signal."""

    def __init__(self, name: str, *, times: int) -> None:
        super().__init__()
        self.number, self.left, self.pid = signal.Signals[name], times, 0

    def get(self, path: str, default: Any = None) -> Any:
        if self.pid and self.left:
            self.left -= 1
            os.kill(self.pid, self.number)
        return {"pending": self.left, "left": False, "last": False}


def interrupted(server: OtlpServer, folder: Path, account: Interrupting, before: str = "") -> tuple[int, str]:
    """Return exit status and what was said of a program that is interrupted while it says goodbye."""
    server.headers = {"otel-ml-notices": "0"}
    server.pages = account
    environ = environment(folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})
    with start(
        LEAVING.format(before=before, then="print(os.getpid(), flush=True); input()"), environ, folder
    ) as process:
        assert process.stdout is not None
        account.pid = int(process.stdout.readline())
        _, errors = process.communicate("leave", timeout=60)
    assert account.left == 0
    return process.returncode, errors


@pytest.mark.parametrize(
    ("name", "before", "code"),
    [
        ("SIGTERM", "", -signal.SIGTERM),
        ("SIGINT", "", -signal.SIGINT),
        ("SIGTERM", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))", 3),
    ],
)
def test_a_signal_in_the_middle_of_a_goodbye_has_its_effect_afterwards(
    server: OtlpServer, tmp_path: Path, name: str, before: str, code: int
) -> None:
    returned, said = interrupted(server, tmp_path, Interrupting(name, times=1), before)

    assert "ended. Rank 0 recorded 1 value, acknowledged, on their way" in said
    assert returned == code
    assert statuses(server) == ["finished"]


def test_who_presses_control_c_in_the_middle_of_a_goodbye_is_told_how_to_leave_at_once(
    server: OtlpServer, tmp_path: Path
) -> None:
    code, said = interrupted(server, tmp_path, Interrupting("SIGINT", times=3))

    assert "Press Ctrl-C twice more to leave at once" in said
    assert "ended." not in said
    assert code == -signal.SIGINT


def test_a_handler_that_python_does_not_know_stays(server: OtlpServer, tmp_path: Path) -> None:
    then = "os.kill(os.getpid(), signal.SIGUSR1)"
    program = LEAVING.format(before="faulthandler.register(signal.SIGUSR1)", then=then)

    _, errors = run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    assert "most recent call first" in errors
    assert statuses(server) == ["finished"]
