"""What a process is told before it ends, and that it ends as it would have without us."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing, os, signal, sys, threading
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored, as `nohup` does
from otel_ml._internal.lifecycle.exit_hooks import ExitHooks

def say(*said):
    os.write(1, (" ".join(map(str, said)) + chr(10)).encode())

def at_exit(status, error):
    say("ends", status, type(error).__name__)

def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)

hooks = ExitHooks(at_exit, lambda: say("kept safe"), lambda sentence: say("said", sentence.partition(".")[0]))
"""


def run(*lines: str) -> tuple[list[str], int]:
    """Return what a program says, and its return code."""
    program = "\n".join([PROGRAM, *lines])
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    return done.stdout.splitlines(), done.returncode


@pytest.mark.parametrize(
    ("end", "said", "code"),
    [
        ("pass", ["ends finished NoneType"], 0),
        ("sys.exit(3)", ["ends failed SystemExit"], 3),
        ("1 / 0", ["ends failed ZeroDivisionError"], 1),
    ],
)
def test_a_program_that_ends_tells_how_once(end: str, said: list[str], code: int) -> None:
    assert run("sys.stderr = open(os.devnull, 'w')", "hooks.install(); hooks.install()", end) == (said, code)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_nobody_handles_ends_the_process_as_without_us(number: int) -> None:
    assert run("hooks.install()", f"send({number})", "say('lives')") == (["ends killed NoneType"], -number)


def test_a_handler_of_the_programs_decides_and_all_is_safe_before_it_does() -> None:
    handler = "signal.signal(signal.SIGTERM, lambda number, frame: say('handled', number))"

    said, code = run(handler, "hooks.install()", "send(signal.SIGTERM)", "say('lives')")

    assert (said, code) == (["kept safe", f"handled {signal.SIGTERM:d}", "lives", "ends finished NoneType"], 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_that_is_ignored_stays_so(number: int) -> None:
    said, code = run(f"signal.signal({number}, signal.SIG_IGN)", "hooks.install()", f"send({number})", "say('lives')")

    assert (said, code) == (["lives", "ends finished NoneType"], 0)


def test_what_was_there_is_given_back_unless_somebody_came_since() -> None:
    said, _ = run(
        "before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1)]",
        "hooks.install()",
        "during = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1)]",
        "others = lambda *_: None",
        "signal.signal(signal.SIGUSR1, others)",
        "hooks.uninstall()",
        "after = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGUSR1)]",
        "say(during[0] is before[0], after[0] is before[0], after[1] is others)",
    )

    assert said[0] == "False True True"


def test_signals_that_come_during_a_shutdown_have_their_effect_after_it_once_each() -> None:
    said, code = run(
        "signal.signal(signal.SIGTERM, lambda number, frame: say('handled'))",
        "hooks.install()",
        "with hooks.signals_held():",
        "    with hooks.signals_held():",
        "        send(signal.SIGTERM, signal.SIGTERM)",
        "    say('delivered')",
        "say('lives')",
    )

    assert (said, code) == (["delivered", "handled", "lives", "ends finished NoneType"], 0)


def test_the_first_ctrl_c_says_what_it_would_lose_and_the_third_leaves_at_once() -> None:
    said, _ = run(
        "hooks.install()",
        "try:",
        "    with hooks.signals_held():",
        "        send(signal.SIGINT); say('one')",
        "        send(signal.SIGINT); say('two')",
        "        send(signal.SIGINT); say('three')",
        "except KeyboardInterrupt:",
        "    say('left')",
    )

    assert said[:4] == ["said What was recorded is being delivered", "one", "two", "left"]


def test_while_the_interpreter_leaves_they_have_none() -> None:
    said, code = run(
        "def at_exit(status, error):",
        "    with hooks.signals_held():",
        "        send(signal.SIGTERM)",
        "    say('all is delivered')",
        "hooks = ExitHooks(at_exit, lambda: None, say)",
        "hooks.install()",
    )

    assert (said, code) == (["all is delivered"], 0)


def test_a_forked_child_has_no_part_in_its_parents_signals() -> None:
    said, code = run(
        "os.register_at_fork(before=hooks.before_fork, after_in_parent=hooks.after_fork, after_in_child=hooks.forget)",
        "hooks.install()",
        "if not os.fork():",
        "    say(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, []))",
        "    send(signal.SIGTERM)",
        "say(os.waitstatus_to_exitcode(os.wait()[1]), signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    )

    assert (said, code) == (["True set()", f"-{signal.SIGTERM:d} set()", "ends finished NoneType"], 0)


def test_a_child_of_multiprocessing_ends_by_its_own_exit() -> None:
    said, _ = run(
        "def work():",
        "    hooks.install()",
        "    sys.exit(2)",
        "child = multiprocessing.get_context('fork').Process(target=work)",
        "child.start(); child.join()",
        "say(child.exitcode)",
    )

    assert said == ["ends failed SystemExit", "2"]
