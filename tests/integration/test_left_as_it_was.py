"""A program that records draws the same numbers, and finds the interpreter as it would be without otel_ml."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run
from tests.otlp_server import OtlpServer, Reply
from tests.ports import free_port

PROGRAM = """
    import asyncio, builtins, decimal, faulthandler, gc, locale, logging, multiprocessing, os, random, resource
    import signal, socket, sys, tempfile, threading, time, urllib.request, warnings
    import numpy as np
    import torch

    def mask():
        before = os.umask(0)
        os.umask(before)
        return before

    def state():
        np_state = np.random.get_state()
        return {
            "random": random.getstate(),
            "numpy.random": (np_state[0], np_state[1].tobytes(), *np_state[2:]),
            "torch.random": torch.get_rng_state().numpy().tobytes(),
            "numpy": (np.geterr(), np.get_printoptions()),
            "torch": (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
                      torch.are_deterministic_algorithms_enabled()),
            "locale": [locale.setlocale(kind) for kind in range(6)],
            "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
            "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, []),
            "timers": [signal.getitimer(kind) for kind in range(3)],
            "wake-up descriptor": signal.set_wakeup_fd(-1),
            "warnings": (list(warnings.filters), warnings.showwarning, warnings.formatwarning),
            "imports": (list(sys.path), list(sys.path_hooks), builtins.__import__),
            "finders": list(sys.meta_path),
            "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, sys.breakpointhook),
            "tracing": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
            "streams": (sys.stdin, sys.stdout, sys.stderr),
            "interpreter": (sys.getswitchinterval(), sys.getrecursionlimit(), sys.getdlopenflags(),
                            threading.stack_size(), sys.get_asyncgen_hooks(), sys.get_int_max_str_digits()),
            "umask": mask(),
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)],
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "affinity": os.sched_getaffinity(0),
            "collector": (gc.get_threshold(), gc.isenabled(), list(gc.callbacks), gc.get_freeze_count()),
            "asyncio": (asyncio.get_event_loop_policy(), asyncio._get_running_loop()),
            "faulthandler": faulthandler.is_enabled(),
            "logging": (list(logging.root.handlers), logging.root.level, list(logging.root.filters),
                        logging.root.manager.disable, logging.raiseExceptions, logging.getLoggerClass(),
                        logging.getLogRecordFactory(), logging.lastResort),
            "decimal": str(decimal.getcontext()),
            "sockets": socket.getdefaulttimeout(),
            "urllib": urllib.request._opener,
            "tempfile": tempfile.tempdir,
            "multiprocessing": multiprocessing.get_start_method(allow_none=True),
            "clock": (time.tzname, os.environ.get("TZ")),
        }

    def changed(before, but=()):
        return sorted(key for key, value in state().items() if value != before[key] and key not in but)

    # Processes of the job inherit the run; SIGTERM is passed on; who imports OpenTelemetry later gets its spans kept.
    while_it_runs = {"environment", "signals", "finders"}
    asyncio.get_event_loop_policy()
    random.seed(7), np.random.seed(7), torch.manual_seed(7)
    before = state()
    import otel_ml
    print("imported", changed(before))
    with otel_ml.init("exp", params={"lr": 0.1}) as run:
        for step in otel_ml.steps(range(20)):
            with otel_ml.timed("phase"):
                otel_ml.log({"loss": 1.0, "tensor": torch.tensor(2.0), "array": np.float32(3.0)})
            otel_ml.record("latency", [1.0, 2.0], reduce=("p50", "std"))
            otel_ml.log_histogram("weights", np.arange(5.0))
            otel_ml.log_image("picture", np.zeros((4, 4)))
            otel_ml.log_text("text", "words")
            otel_ml.event("happened", {"why": object()})
            otel_ml.log({"bad": None})
            otel_ml.flush(0.2)
        run.summary({"best": 1.0})
        print("recording", changed(before, while_it_runs))
        new = {name for name, value in os.environ.items() if value != before["environment"].get(name)}
        print("environment", sorted(name for name in new if not name.startswith(("OTEL_", "TRACEPARENT"))))
        print("draws", random.random(), float(np.random.rand()), float(torch.rand(1)))
        before = state() | {key: before[key] for key in while_it_runs}
    otel_ml.shutdown(1.0)
    print("ended", changed(before, {"finders"}))
    print("finders", [finder.module for finder in sys.meta_path if finder not in before["finders"]])
    import torch._dynamo
    print("then", [type(finder).__module__ for finder in sys.meta_path if "otel_ml" in type(finder).__module__])
"""

DRAWS = """
    import random, numpy as np, torch
    random.seed(7), np.random.seed(7), torch.manual_seed(7)
    print("draws", random.random(), float(np.random.rand()), float(torch.rand(1)))
"""


@pytest.mark.parametrize("receiver", ["up", "down", "flapping", "embedded"])
def test_a_program_is_left_as_it_was(server: OtlpServer, tmp_path: Path, receiver: str) -> None:
    server.replies = [Reply(503), Reply()] * 20 if receiver == "flapping" else []
    url = f"http://127.0.0.1:{free_port()}" if receiver == "down" else server.url
    environ = environment(tmp_path, {} if receiver == "embedded" else {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    draws, _ = run(DRAWS, environ, tmp_path)

    told, _ = run(PROGRAM, {**environ, "OTEL_ML_WORLD_SIZE": "200"}, tmp_path)

    # One finder stays, that of compiled code: it goes with the import that it waits for.
    ended = "ended []\nfinders ['torch._dynamo']\nthen []\n"
    assert told == f"imported []\nrecording []\nenvironment []\n{draws}{ended}"


WAITING = """
    import os, signal
    import otel_ml

    run = otel_ml.init("exp", exporters="jsonl")
    otel_ml.log({"loss": 1.0}, step=0)
    assert otel_ml.flush(timeout=60)
    own = os.fork()
    if not own:
        os._exit(0)
    signal.alarm(30)
    ended = []
    while True:
        try:
            ended.append(os.wait()[0])
        except ChildProcessError:  # there are no more
            break
    print(ended == [own])
"""


def test_a_program_that_waits_for_all_its_children_waits_for_none_of_ours(tmp_path: Path) -> None:
    output, _ = run(WAITING, environment(tmp_path), tmp_path)
    assert output == "True\n"
