"""A thread that works while another one waits for it, and may stop waiting.

Not `concurrent.futures.ThreadPoolExecutor`: a thread that waits for a `Future` holds the lock of its `Condition` for
moments, and the executor's thread needs that lock to say that it is done. A signal handler that records in one of these
moments waits for the same thread, so both wait for ever: within seconds where signals come every 0.3 ms. Besides,
importing it takes 12 ms.
"""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from otel_ml._internal.one_time_event import OneTimeEvent
from otel_ml._internal.own_threads import begin_own_thread

__all__ = ["BackgroundTask", "SingleThreadExecutor"]

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """One piece of work under way.

    Attributes:
        done: open when it is over.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self.done = OneTimeEvent()
        self._work = work
        self._results: list[T] = []
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Do it, on the thread it was given to."""
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 (handed to who waits for the outcome)
            self._failure = error
        finally:
            self.done.open()

    def outcome(self) -> T:
        """Wait until it is over; return what came of it, or raise what it raised."""
        self.done.wait()
        if self._failure is not None:
            raise self._failure
        return self._results[0]


class SingleThreadExecutor:
    """The thread: started with the first task, and does one after the other.

    It is no `threading.Thread`, which takes locks to start that the code may hold whom a signal handler, or a
    finalizer, has interrupted to record something.

    Attributes:
        thread: its identifier; None before the first task.
    """

    def __init__(self) -> None:
        self.thread: int | None = None
        self._tasks: SimpleQueue[BackgroundTask[Any] | None] = SimpleQueue()

    def begin(self, work: Callable[[], T]) -> BackgroundTask[T]:
        """Let the thread do `work` as soon as it can.

        Raises:
            RuntimeError: the system gives the process no further thread.
        """
        # The thread first: where the system gives none, no task is left in the queue.
        if self.thread is None:
            self.thread = start_new_thread(_do_all, (self._tasks,))
        task = BackgroundTask(work)
        self._tasks.put(task)
        return task

    def begin_or_do(self, work: Callable[[], T]) -> BackgroundTask[T]:
        """Let the thread do `work`; where the system gives the process no further thread, do it here."""
        try:
            return self.begin(work)
        except RuntimeError:
            task = BackgroundTask(work)
            task.run()
            return task

    def close(self) -> None:
        """Let the thread end after what it has begun; the next task starts another one."""
        # Into the queue that the thread has; `forget()` makes another one for the tasks of the next thread.
        self._tasks.put(None)
        self.forget()

    def forget(self) -> None:
        """Start with no thread: after a fork, in the child, there is none."""
        self.thread = None
        self._tasks = SimpleQueue()


def _do_all(tasks: SimpleQueue[BackgroundTask[Any] | None]) -> None:
    begin_own_thread()
    while (task := tasks.get()) is not None:
        task.run()
