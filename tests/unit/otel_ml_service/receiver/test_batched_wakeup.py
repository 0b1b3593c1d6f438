from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from otel_ml_service.receiver.event_loop import BatchedWakeup
from tests.otlp_server import eventually


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_what_many_threads_put_is_called_once_each_on_the_loops_thread_in_the_order_of_its_thread(
    loop: asyncio.AbstractEventLoop,
) -> None:
    handover = BatchedWakeup(loop)
    called: list[tuple[int, int]] = []
    on: set[int] = set()

    def take(what: tuple[int, int]) -> None:
        called.append(what)
        on.add(threading.get_ident())

    def put(number: int) -> None:
        for index in range(1000):
            handover.put(take, (number, index))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    eventually(lambda: len(called) == 4000)
    assert [[index for number, index in called if number == one] for one in range(4)] == [list(range(1000))] * 4
    assert len(on) == 1
    assert threading.get_ident() not in on


def test_one_that_fails_takes_no_other_with_it(loop: asyncio.AbstractEventLoop) -> None:
    handover = BatchedWakeup(loop)
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    called: list[float] = []

    def take(number: float) -> None:
        called.append(1 / number)

    def put_all() -> None:
        for number in (1, 0, 2, 0, 4):
            handover.put(take, number)

    loop.call_soon_threadsafe(put_all)

    eventually(lambda: len(called) == 3 and len(failures) == 2)
    assert called == [1.0, 0.5, 0.25]


def test_where_the_loop_is_closed_nothing_is_called_and_nothing_raised() -> None:
    loop = asyncio.new_event_loop()
    loop.close()

    BatchedWakeup(loop).put(pytest.fail, "called")
