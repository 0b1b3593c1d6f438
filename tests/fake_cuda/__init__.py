"""A CUDA device that is not there: tensors, streams, events, pinned memory and graphs, without a card or a driver.

```python
def test_a_value_is_what_the_tensor_held_at_the_call(recorded, cuda):  # fixtures of tests/unit/otel_ml
    cuda.stream.hold()  # the device is behind: what is launched from now on waits
    loss = cuda.tensor(3.0)
    log({"loss": loss})
    loss.zero_()
    cuda.stream.release()  # it does now what was launched, in order
    ...
    assert cuda.launches == 2 and cuda.waits == []
```

What it gets right, so that a wrong program fails:

* Work is launched into the current stream and done in its order, at once, or, while the stream is held, at its
  release. Streams know nothing of each other but by events (`wait_event`, `wait_stream`).
* A copy into pinned memory has arrived when the stream came to it. Until then the memory holds garbage. One into
  memory that is not pinned waits for the device.
* Memory of a device that is freed is garbage as soon as the stream that it was allocated on comes to where it was
  freed; a stream that still reads it reads garbage, unless `record_stream()` was called.
* Whatever waits for the device (`.item()`, `.cpu()`, `.tolist()`, `synchronize()`, a blocking copy) is in `waits`, of
  whatever thread. It raises while `set_sync_debug_mode("error")`, which is how a test begins, and warns under "warn".
* While a stream is captured, its work goes into the graph; a wait raises. A thread whose calls the capture forbids
  (`Event.query()`, a new pinned block), because its mode is still global, breaks the capture, as on a card.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fake_cuda.active_card import ACTIVE
from tests.fake_cuda.card import FakeCuda
from tests.fake_cuda.streams import FakeGraph
from tests.fake_cuda.tensors import CudaTensor
from tests.fake_cuda.torch_cuda import TorchCuda

__all__ = ["CudaTensor", "FakeCuda", "FakeGraph", "fake_cuda"]


def _forget_other_cards() -> None:
    """Have otel_ml know no card, as in a process that has just begun."""
    from otel_ml._internal.devices import arrays, cuda_calls, device_timers, non_blocking_copy
    from otel_ml._internal.devices import cuda_graphs as captured
    from otel_ml._internal.devices import cuda_thread as device_thread

    captured.CAPTURED.forget()  # a graph outlives its run, since it may be replayed in the next one, but not its card
    cuda_calls.CUDA.forget()
    device_timers.DEVICE_TIMERS.forget()
    non_blocking_copy.STAGING.__init__()  # type: ignore[misc]
    arrays._streams.clear()
    device_thread._here.__dict__.clear()


@contextmanager
def fake_cuda(devices: int = 2) -> Iterator[FakeCuda]:
    """Have CUDA devices in this process; `torch.cuda` is theirs in the block."""
    card = FakeCuda(devices)
    ACTIVE.append(card)
    _forget_other_cards()
    with pytest.MonkeyPatch.context() as patch:
        TorchCuda(card).install(patch)
        yield card
        for stream in card.streams:
            stream.release()
    _forget_other_cards()
