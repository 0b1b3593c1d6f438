"""What a request of metrics costs a receiver, and what handing it to another process would: `python -m
tests.benchmarks.handing_over`.

µs of CPU of one thread, hot, the best of several turns: to find what is in the request, by compiled code and in Python;
and of what a process would pay whose receiver is another one: the bytes through shared memory, where the messages lie
and what they are, and to make observations of that.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing import shared_memory
from unittest import mock

from otel_ml_service.aggregation.observation import Fragment, Watermark
from otel_ml_service.aggregation.points import Packed
from otel_ml_service.process_limits import keep_freed_memory
from otel_ml_service.receiver.decode import Decoder
from tests.benchmarks.sources import Own
from tests.benchmarks.stages import METRICS, PER_REQUEST, TWINS

__all__ = ["measure"]

WRITERS, ROUNDS, TURNS = 4, 20, 9


def measure() -> dict[str, float]:
    """Return µs a request of each."""
    source = Own("bench", WRITERS, range(WRITERS), metrics=METRICS, per_request=PER_REQUEST)
    bodies = [body for number in range(ROUNDS) for rank in range(WRITERS) for _, body in source.requests(number, rank)]
    decoder, in_python = Decoder(), Decoder()
    decoded = [decoder.protobuf("metrics", body).observations["bench"] for body in bodies]
    told = [[_told(one) for one in every if isinstance(one, (Fragment, Watermark))] for every in decoded]
    pickled = [pickle.dumps(rows) for rows in told]
    [first] = [one for one in decoded[-1] if isinstance(one, Fragment)][:1]
    assert isinstance(first.partials, Packed)
    layout, size = first.partials.layout, first.partials.layout.size

    def make() -> None:
        for rows, body in zip(told, bodies, strict=True):
            for axis, step, seq, points, is_fragment in rows:
                if is_fragment:
                    Fragment(first.writer, axis, step, first.reduction, seq, points, Packed(layout, body[9 : 9 + size]))
                else:
                    Watermark(first.writer, axis, step, points, seq)

    shared = shared_memory.SharedMemory(create=True, size=2 * max(map(len, bodies)))
    try:
        return {
            "found by compiled code": _us(lambda: [decoder.protobuf("metrics", body) for body in bodies], len(bodies)),
            "found in Python": _in_python(in_python, bodies),
            "its bytes into shared memory and out of it": _us(lambda: _through(shared, bodies), len(bodies)),
            "what it holds, pickled": _us(lambda: [pickle.dumps(rows) for rows in told], len(bodies)),
            "the same, unpickled": _us(lambda: [pickle.loads(text) for text in pickled], len(bodies)),
            "made into observations again": _us(make, len(bodies)),
        }
    finally:
        shared.close()
        shared.unlink()


def _told(one: Fragment | Watermark) -> tuple[str | None, int | None, int, int, bool]:
    points = one.seq_points if isinstance(one, Fragment) else one.points
    return one.axis, one.step, one.seq, points, isinstance(one, Fragment)


def _in_python(decoder: Decoder, bodies: Sequence[bytes]) -> float:
    with ExitStack() as patched:
        for module, name, twin in TWINS:
            patched.enter_context(mock.patch.object(module, name, twin))
        return _us(lambda: [decoder.protobuf("metrics", body) for body in bodies], len(bodies))


def _through(shared: shared_memory.SharedMemory, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        shared.buf[: len(body)] = body
        bytes(shared.buf[: len(body)])


def _us(call: Callable[[], object], requests: int) -> float:
    taken = []
    for _ in range(TURNS):
        begin = time.thread_time()
        call()
        taken.append(time.thread_time() - begin)
    return min(taken) / requests * 1e6


if __name__ == "__main__":
    keep_freed_memory()
    for what, us in measure().items():
        print(f"{us:7.1f} µs  {what}", flush=True)
