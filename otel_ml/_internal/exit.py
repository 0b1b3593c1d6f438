"""The ends of a process: atexit, SIGTERM, SIGINT, multiprocessing's own exit (otel-facts A.4).

The SDK flushes nothing on SIGTERM or in multiprocessing children; both are how training jobs end.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

__all__ = ["ExitHooks", "exit_status"]


def exit_status() -> Literal["finished", "failed", "killed"]:
    """Return how the process ends, at exit: an exception that nobody caught is left in `sys.last_value`."""
    error = getattr(sys, "last_value", None)
    if isinstance(error, KeyboardInterrupt):
        return "killed"
    return "finished" if error is None else "failed"


class ExitHooks:
    """Calls back before the process ends.

    Args:
        at_exit: the interpreter is about to leave; called with the status.
        at_preemption: a signal came, and a handler of the user's decides what happens: keep everything safe, quickly.
    """

    def __init__(self, at_exit: Callable[[str], None], at_preemption: Callable[[], None]) -> None:
        self._at_exit = at_exit
        self._at_preemption = at_preemption
        self._chained: dict[signal.Signals, Any] = {}
        self._is_registered = False

    def install(self) -> None:
        """Hook into the process' ends; safe to call again."""
        if not self._is_registered:
            self._is_registered = True
            atexit.register(self._leave)
        self._install_finalizer()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._chain(number)

    def uninstall(self) -> None:
        """Give signals back to who had them, where nobody else came since."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._chained.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)
        self._chained.clear()

    def _leave(self) -> None:
        self._at_exit(exit_status())

    def _install_finalizer(self) -> None:
        """Children of `multiprocessing` leave by `os._exit`, after their finalizers only."""
        process = sys.modules.get("multiprocessing.process")
        if process is None or process.parent_process() is None:
            return
        from multiprocessing.util import Finalize

        Finalize(None, self._leave, exitpriority=0)

    def _chain(self, number: signal.Signals) -> None:
        before = signal.getsignal(number)
        is_left_to_python = before is signal.default_int_handler  # raises KeyboardInterrupt; atexit follows
        if before in {signal.SIG_IGN, None} or before == self._on_signal or is_left_to_python:
            return
        signal.signal(number, self._on_signal)
        self._chained[number] = before

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        before = self._chained.get(signal.Signals(number), signal.SIG_DFL)
        if callable(before):
            self._at_preemption()
            before(number, frame)
            return
        self._at_exit("killed")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
