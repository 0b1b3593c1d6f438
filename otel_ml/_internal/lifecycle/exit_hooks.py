"""The ends of a process: atexit, signals, multiprocessing's own exit (docs/protocol.md §3.7).

The SDK flushes nothing on SIGTERM or in multiprocessing children; both are how training jobs end.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from otel_ml._internal.lifecycle.exit_code import ExitCode, ExitStatus, status_of_error
from otel_ml._internal.lifecycle.missed_signals import MISSED_SIGNALS
from otel_ml._internal.native import native
from otel_ml._internal.signal_mask import ENDING_SIGNALS
from otel_ml.explanation import explained

__all__ = ["ExitHooks"]


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end a program, held back while it shuts down: a scheduler sends some twice, milliseconds apart."""

_IMPATIENT = 3
"""How many Ctrl-C end even the shutdown message."""


_HELD = (
    "What was recorded is being delivered. Press Ctrl-C twice more to leave at once: otel-ml recover then delivers the "
    "rest."
)


class ExitHooks:
    """Calls back before the process ends.

    Args:
        at_exit: the process is about to leave; called with how it does, and the exception by which, if there is one.
        at_preemption: a signal came, and what happens is decided elsewhere: keep everything safe, quickly.
        say: told what a person who presses Ctrl-C in the middle of a shutdown has to know.
    """

    def __init__(
        self,
        at_exit: Callable[[ExitStatus, BaseException | None], None],
        at_preemption: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._at_exit = at_exit
        self._at_preemption = at_preemption
        self._say = say
        self._chained: dict[signal.Signals, Any] = {}
        self._is_registered = False
        self._is_leaving = False
        self._code = ExitCode()
        self._before_shutdown: dict[signal.Signals, Any] = {}
        self._held: list[signal.Signals] = []
        self._masks: dict[int, set[int | signal.Signals]] = {}

    def install(self) -> None:
        """Hook into the process' ends; safe to call again."""
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._leave)
        self._install_finalizer()
        self._code.watch()
        if threading.current_thread() is threading.main_thread():
            for number in ENDING_SIGNALS:
                self._chain(number)

    def uninstall(self) -> None:
        """Give signals and calls back to who had them, where nobody else came since."""
        self._code.unwatch()
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._chained.items():
            # By ==, as each access to a bound method makes another object.
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)
        self._chained.clear()
        MISSED_SIGNALS.forget()

    def before_fork(self) -> None:
        """Have no signal come to a child whose interpreter does not take it yet: one with a handler would be lost."""
        if self._chained:
            # By thread, as several may fork at a time. In the child the one that forked goes on under its identifier.
            self._masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, self._chained)

    def after_fork(self) -> None:
        """Let them come."""
        mask = self._masks.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def forget(self) -> None:
        """In a forked child: have no part in its signals. It ends by them as its parent would have without us."""
        self._give_back()
        self.uninstall()
        self.after_fork()

    @contextmanager
    def signals_held(self) -> Iterator[None]:
        """Hold signals back that would end the process; afterwards they have the effect they would have had.

        The interpreter may be leaving anyway: then they have none.
        """
        # An end within an end, of another run or by a signal's handler: the outer one holds them back.
        if self._before_shutdown:
            yield
            return
        if threading.current_thread() is not threading.main_thread():
            try:
                yield
            finally:
                self.uninstall()
            return
        # A second SIGTERM, or an impatient Ctrl-C, would end the process in the middle of the last request; schedulers
        # repeat them within seconds.
        for number in _ENDING:
            before = signal.getsignal(number)
            # None: of code in C, which Python could not give back.
            if before not in {signal.SIG_IGN, None}:
                self._before_shutdown[number] = before
                signal.signal(number, self._hold)
        try:
            yield
        finally:
            # In this order: a signal that is sent again below has to meet the handler of before the run, not one of
            # ours.
            held = self._give_back()
            self.uninstall()
            if not self._is_leaving:
                for number in held:
                    os.kill(os.getpid(), number)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        del frame
        MISSED_SIGNALS.begun(number)  # it may have come before this was its handler
        self._held.append(signal.Signals(number))
        interrupts = self._held.count(signal.SIGINT)
        if number == signal.SIGINT and interrupts == 1:
            self._say(explained(_HELD, "held-interrupt"))
        if interrupts >= _IMPATIENT:
            self._give_back()
            raise KeyboardInterrupt

    def _give_back(self) -> list[signal.Signals]:
        """Return the signals that were held back, each once, and hold back no more."""
        before, self._before_shutdown = self._before_shutdown, {}
        for number, handler in before.items():
            if signal.getsignal(number) == self._hold:
                self._handle(number, handler)
        held, self._held = self._held, []
        return list(dict.fromkeys(held))

    def _leave(self) -> None:
        self._leave_by(self._code.error)

    def _leave_child(self) -> None:
        self._leave_by(sys.exc_info()[1])

    def _leave_by(self, error: BaseException | None) -> None:
        self._is_leaving = True
        self._at_exit(status_of_error(error), error)

    def _install_finalizer(self) -> None:
        """Children of `multiprocessing` leave by `os._exit`, after their finalizers only."""
        process = sys.modules.get("multiprocessing.process")
        if process is None or process.parent_process() is None:
            return
        from multiprocessing.util import Finalize

        # 0: after pools are ended (15), and before daemons are terminated and children waited for.
        Finalize(None, self._leave_child, exitpriority=0)

    def _chain(self, number: signal.Signals) -> None:
        # A handler that is there belongs to the program (a framework that checkpoints on SIGTERM): it is called after
        # ours, and decides. Where none is, the signal ends the process as it would have without us.
        before = signal.getsignal(number)
        is_left_to_python = before is signal.default_int_handler  # raises KeyboardInterrupt; atexit follows
        if before in {signal.SIG_IGN, None} or before == self._on_signal or is_left_to_python:
            return
        if before is signal.SIG_DFL and is_caught_elsewhere(number):
            return
        self._chained[number] = before
        self._handle(number, self._on_signal)

    def _handle(self, number: signal.Signals, handler: Any) -> None:
        signal.signal(number, handler)
        if handler == self._on_signal and self._chained[number] is signal.SIG_DFL:
            MISSED_SIGNALS.watch(number, self._leave_by_signal)

    def _leave_by_signal(self, number: int) -> None:
        """End the process on another thread than the main one, which does not come to it."""
        self._at_exit("killed", None)
        if native is not None:
            native.end_by_signal(number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        MISSED_SIGNALS.begun(number)
        before = self._chained.get(signal.Signals(number), signal.SIG_DFL)
        # What the program's handler does is not known, it may go on training: so the run does not end here.
        if callable(before):
            self._at_preemption()
            before(number, frame)
            return
        if os.getpid() == 1:  # whom a signal without a handler of its own does not end
            self._at_preemption()
            return
        self._at_exit("killed", None)
        # The signal ends it, and no exit code of ours: launchers tell one from the other.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def is_caught_elsewhere(number: signal.Signals) -> bool:
    """Whether a handler that Python does not know takes a signal, such as that of `faulthandler.register()`."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)  # the lowest bit is signal 1
    except (OSError, StopIteration, ValueError):
        # Without /proc, as on macOS, it is not known. These two are assumed to have no such handler; the others may
        # have one, and are left alone.
        return number not in {signal.SIGTERM, signal.SIGINT}
