"""A thread that works while another one waits for it, and may stop waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["Aside", "Errand"]

T = TypeVar("T")


class Errand(Generic[T]):
    """One piece of work under way.

    Attributes:
        done: set when it is over.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self.done = threading.Event()
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
            self.done.set()

    def outcome(self) -> T:
        """Wait until it is over; return what came of it, or raise what it raised."""
        self.done.wait()
        if self._failure is not None:
            raise self._failure
        return self._results[0]


class Aside:
    """The thread: started with the first errand, and does one after the other.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._errands: SimpleQueue[Errand[Any] | None] = SimpleQueue()

    def begin(self, work: Callable[[], T]) -> Errand[T]:
        """Let the thread do `work` as soon as it can."""
        if self._thread is None:
            self._thread = threading.Thread(target=_do_all, args=(self._errands,), name=self._name, daemon=True)
            self._thread.start()
        errand = Errand(work)
        self._errands.put(errand)
        return errand

    def close(self) -> None:
        """Let the thread end after what it has begun; the next errand starts another one."""
        self._errands.put(None)
        self.forget()

    def forget(self) -> None:
        """Start with no thread: after a fork, in the child, there is none."""
        self._thread = None
        self._errands = SimpleQueue()


def _do_all(errands: SimpleQueue[Errand[Any] | None]) -> None:
    while (errand := errands.get()) is not None:
        errand.run()
