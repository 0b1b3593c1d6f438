"""A signal ends a process as it would have without otel_ml: wherever its main thread is, and right after a fork.

Without a handler the kernel does it. Ours is in Python, which runs it on the main thread alone, once that is back from
what it has called; and Python forgets what came to a child that was just forked.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run, start
from tests.otlp_server import OtlpServer

STUCK = """
    import ctypes, os, signal, threading
    import otel_ml

    signal.signal(signal.{name}, signal.SIG_DFL)  # `nohup` has it ignored
    otel_ml.init("exp")
    for step in range(3):
        otel_ml.log({{"loss": float(step)}}, step=step)
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.{name})).start()
    libc.pthread_mutex_lock(mutex)  # as in a collective whose peers are gone: no signal ends the wait
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_process_whose_main_thread_waits_for_good_ends_by_a_signal_and_loses_nothing(
    server: OtlpServer, tmp_path: Path, name: str
) -> None:
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})
    with start(STUCK.format(name=name), environ, tmp_path) as process:
        try:
            process.wait(timeout=20)  # a launcher waits for 30 s, and kills it
        finally:
            process.kill()

    assert process.returncode == -signal.Signals[name]
    assert [point.value for point in server.points()] == [0.0, 1.0, 2.0]
    assert [event.attributes["ml.status"] for event in server.events("ml.writer.end")] == ["killed"]


def test_a_handler_of_the_program_decides_however_long_the_main_thread_is_elsewhere(
    server: OtlpServer, tmp_path: Path
) -> None:
    """It may save a checkpoint: only the program knows when it may end."""
    elsewhere = """
        import ctypes, os, signal, sys, threading, time
        import otel_ml

        signal.signal(signal.SIGTERM, lambda *_: print("saved", flush=True) or sys.exit(0))
        otel_ml.init("exp")
        otel_ml.log({"loss": 1.0}, step=0)
        libc = ctypes.CDLL(None)
        mutex = ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        threading.Timer(2.0, libc.pthread_mutex_unlock, (mutex,)).start()
        libc.pthread_mutex_lock(mutex)
        time.sleep(10)  # until the handler leaves
    """
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})

    output, _ = run(elsewhere, environ, tmp_path)

    assert output == "saved\n"
    assert [event.attributes["ml.status"] for event in server.events("ml.writer.end")] == ["finished"]


def test_a_signal_that_the_program_has_blocked_waits_until_it_takes_it(server: OtlpServer, tmp_path: Path) -> None:
    """As it does while a checkpoint is written. Threads of ours do not take it instead."""
    checkpoint = """
        import os, signal, time
        import otel_ml

        otel_ml.init("exp")
        otel_ml.log({"loss": 1.0}, step=0)
        assert otel_ml.flush(20)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)  # in which the checkpoint is written
        print("whole", flush=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        print("not reached")
    """
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})

    with start(checkpoint, environ, tmp_path) as process:
        output, _ = process.communicate(timeout=30)

    assert (output, process.returncode) == ("whole\n", -signal.SIGTERM)
    assert [event.attributes["ml.status"] for event in server.events("ml.writer.end")] == ["killed"]


def test_the_service_of_a_job_takes_signals_that_who_started_it_has_blocked(tmp_path: Path) -> None:
    program = """
        import os, signal, time
        import otel_ml
        from otel_ml.wire.rendezvous import rendezvous_of

        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        run = otel_ml.init("exp", exporters="jsonl")
        otel_ml.log({"loss": 1.0}, step=0)
        assert otel_ml.flush(60)
        status = open(f"/proc/{rendezvous_of(run.id).read_service().pid}/status").read()
        print(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1])
    """

    output, _ = run(program, environment(tmp_path), tmp_path)

    assert int(output, 16) == 0


FORKS = """
    import os, signal, time
    import otel_ml

    otel_ml.init("exp")
    otel_ml.log({"loss": 1.0}, step=0)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    ends = []
    for _ in range(100):
        child = os.fork()
        if not child:
            time.sleep(20)  # until the signal ends it
            os._exit(7)
        os.kill(child, signal.SIGTERM)  # before its interpreter is there
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(set(ends), signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask)
"""


def test_a_child_that_is_told_to_end_right_after_its_fork_does(server: OtlpServer, tmp_path: Path) -> None:
    """`Pool.terminate()` tells workers so that have just begun, and waits for them without end."""
    output, _ = run(FORKS, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    assert output == "{-15} True\n"


POOLS = """
    import multiprocessing, os
    import otel_ml

    def record(number):
        otel_ml.log({"loss": float(number)}, step=number)

    if __name__ == "__main__":
        otel_ml.init("exp")
        for _ in range(10):
            with multiprocessing.get_context("fork").Pool(8) as pool:
                pool.map(record, range(4))  # done before the last workers have begun
        print("done")
"""


def test_a_program_does_not_hang_where_a_pool_ends_before_all_its_workers_have_begun(
    server: OtlpServer, tmp_path: Path
) -> None:
    output, _ = run(POOLS, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    assert output == "done\n"
    assert sum(point.count for point in server.points()) == 40


def test_a_forked_child_that_records_nothing_has_no_handler_of_ours(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, signal
        import otel_ml

        before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
        otel_ml.init("exp")
        child = os.fork()
        if not child:
            after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
            os._exit(0 if after == before else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """

    output, _ = run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    assert output == "0\n"


def test_a_forked_child_that_records_ends_by_a_signal_and_loses_nothing(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, signal, time
        import otel_ml

        otel_ml.init("exp")
        child = os.fork()
        if not child:
            otel_ml.log({"loss": 2.0}, step=1)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20)  # until the signal ends it
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """

    output, _ = run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url}), tmp_path)

    assert output == "-15\n"
    assert [point.value for point in server.points()] == [2.0]
