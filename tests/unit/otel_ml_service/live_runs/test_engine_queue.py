"""What waits for the engine: in order, in rounds, and with those who send more waiting behind it."""

from __future__ import annotations

import threading

from otel_ml_service.live_runs.engine_queue import EngineQueue
from otel_ml_service.live_runs.undecided import Undecided
from otel_ml_service.receiver.partial_success import Rejections

MIB = 2**20


def requests(sizes: list[int], first: int = 1) -> list[Undecided]:
    return [Undecided(number, "metrics", size, {}, Rejections(), bytes) for number, size in enumerate(sizes, first)]


def numbers(entries: list[Undecided]) -> list[int]:
    return [entry.number for entry in entries]


def test_a_round_is_16_mebibytes_and_at_least_one_request() -> None:
    queue = EngineQueue(64 * MIB)
    queue.put(requests([MIB] * 20 + [40 * MIB, 1]))

    rounds = [numbers(queue.take()) for _ in range(3)]
    assert rounds == [[*range(1, 17)], [*range(17, 22)], [22]]
    assert not queue
    assert queue.put_in == 22


def test_who_sends_more_than_the_engine_takes_waits_until_an_eighth_of_the_bound_is_left() -> None:
    queue = EngineQueue(64 * MIB)
    queue.put(requests([MIB] * 8))
    assert queue.wait_for_capacity(0)

    queue.put(requests([1], first=9))
    assert not queue.wait_for_capacity(0)

    waited: list[bool] = []
    sender = threading.Thread(target=lambda: waited.append(queue.wait_for_capacity(60)))
    sender.start()
    queue.take()
    sender.join(60)
    assert waited == [True]


def test_nobody_waits_for_an_engine_that_stops() -> None:
    queue = EngineQueue(8 * MIB)
    queue.put(requests([9 * MIB]))
    queue.stop()

    assert queue.wait_for_capacity(60)
    assert numbers(queue.take(60)) == [1]
    assert queue.take(60) == []


def test_what_a_round_has_no_time_for_is_the_first_of_the_next_one() -> None:
    queue = EngineQueue(8 * MIB)
    queue.put(requests([MIB] * 3))
    entries = queue.take()
    queue.put(requests([MIB], first=4))

    for entry in queue.for_a_round(entries):
        assert entry.number == 1
        queue._put_back(entries[1:])  # as it does itself, after half a second
        break

    assert not queue.wait_for_capacity(0)
    assert numbers(queue.take_all()) == [2, 3, 4]
    assert queue.wait_for_capacity(0)
