"""Values on a CUDA device are exact, and those of the moment of the call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from otel_ml._internal.lifecycle.isolation import isolated
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.series.definition import define_metric
from otel_ml._internal.steps.step import set_step
from tests.fake_cuda import FakeCuda, fake_cuda
from tests.unit.otel_ml.device.batch_of_values import FIFTY, by_step, values
from tests.unit.otel_ml.record.decoded import points


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.float64, 1 / 3),
        (torch.float64, 5e-324),
        (torch.float32, 0.1),
        (torch.float32, 1e-45),
        (torch.float16, 6.1e-5),
        (torch.bfloat16, 3.39e38),
        (torch.int64, 2**53 - 1),
        (torch.int64, -(2**53) + 1),
        (torch.int32, -7),
        (torch.int16, 300),
        (torch.int8, -128),
        (torch.uint8, 255),
        (torch.uint16, 65535),
        (torch.bool, True),
        (torch.float8_e4m3fn, 448.0),
        (torch.float32, math.inf),
        (torch.float32, -math.inf),
        (torch.float32, -0.0),
    ],
)
def test_a_value_of_any_type_is_what_item_would_give(recorded, cuda: FakeCuda, dtype: torch.dtype, value: Any) -> None:
    host = torch.tensor(value, dtype=dtype)
    log({"alone": cuda.tensor(host), **{f"m{i}": cuda.tensor(host) for i in range(6)}, "other": cuda.tensor(1.0)})

    found = values(recorded.collect(final=True))
    assert found.pop("other") == 1.0
    assert {repr(one) for one in found.values()} == {repr(float(host.item()))}
    assert len(found) == 7


@pytest.mark.usefixtures("unhurried")
def test_types_are_mixed_with_one_launch_of_each(recorded, cuda: FakeCuda) -> None:
    kinds = (torch.float32, torch.bfloat16, torch.int64)
    scalars = {f"m{i}": cuda.tensor(i, kinds[i % 3]) for i in FIFTY}
    for _ in range(2):
        set_step(0)
        with cuda.counted() as call:
            log(scalars)
    assert call["launches"] == 3
    assert values(recorded.collect(final=True)) == {f"m{i}": float(i) for i in FIFTY}


def test_what_happens_to_the_tensor_after_the_call_does_not_change_the_value(recorded, cuda: FakeCuda) -> None:
    cuda.stream.hold()
    for step in range(5):
        set_step(step)
        loss = torch.full((), float(step), device="cuda")
        log({"loss": loss, **{f"m{i}": loss * i for i in range(8)}})
        record("one", loss)
        loss.add_(1000)
        del loss
        torch.full((), -1.0, device="cuda")
    cuda.stream.release()

    batch = recorded.collect(final=True)
    assert by_step(batch, "loss") == by_step(batch, "one") == {step: float(step) for step in range(5)}
    assert by_step(batch, "m3") == {step: 3.0 * step for step in range(5)}


def test_values_of_several_streams_and_devices_do_not_mix(recorded, cuda: FakeCuda) -> None:
    streams = [cuda.default(0), torch.cuda.Stream(), torch.cuda.Stream(device=1), cuda.default(1)]
    for number, stream in enumerate(streams):
        stream.hold()
        with torch.cuda.stream(stream):
            for step in range(3):
                set_step(step)
                value = torch.full((), 10.0 * number + step, device=f"cuda:{stream.device_index}")
                log({f"s{number}": value})
                del value
    for stream in reversed(streams):
        stream.release()

    batch = recorded.collect(final=True)
    for number in range(4):
        assert by_step(batch, f"s{number}") == {step: 10.0 * number + step for step in range(3)}


def test_one_call_may_have_values_of_several_devices(recorded, cuda: FakeCuda) -> None:
    log({f"m{i}": cuda.tensor(float(i), device=i % 2) for i in range(10)} | {"host": 1.0, "cpu": torch.tensor(2.0)})
    found = values(recorded.collect(final=True))
    assert found == {f"m{i}": float(i) for i in range(10)} | {"host": 1.0, "cpu": 2.0}


@pytest.mark.usefixtures("unhurried")
def test_a_weight_on_the_device_is_copied_once_for_all_values(recorded, cuda: FakeCuda) -> None:
    scalars = {f"m{i}": cuda.tensor(float(i)) for i in range(10)}
    with cuda.counted() as call:
        log(scalars, weight=cuda.tensor(3.0))
    assert call["launches"] == 1
    found = {point.name: point.attributes for point in points(recorded.collect(final=True))}
    assert found == {f"m{i}": {"ml.wsum": 3.0, "ml.wxsum": 3.0 * i} for i in range(10)}


@pytest.mark.usefixtures("unhurried")
def test_elements_of_vectors_are_records(recorded, cuda: FakeCuda) -> None:
    for name in ("a", "b", "c", "long", "strided", "wide", "empty"):
        define_metric(name, reduce="mean")
    with cuda.counted() as call:
        log({"a": cuda.tensor([1.0, 2.0, 6.0]), "b": cuda.tensor([[5.0]]).view(1), "c": cuda.tensor(7.0)})
    record("long", cuda.tensor(torch.arange(5000.0)))
    record("strided", cuda.tensor(torch.arange(8.0))[::2])
    record("wide", cuda.tensor(3.0).expand(4))
    record("empty", cuda.tensor([]))
    found = {point.name: point.moments[:2] for point in points(recorded.collect(final=True))}

    assert call["launches"] == 1
    assert found == {
        "a": (3, 9.0), "b": (1, 5.0), "c": (1, 7.0), "long": (5000, 12497500.0), "strided": (4, 12.0), "wide": (4, 12.0)
    }  # fmt: skip


def test_a_tensor_that_needs_gradients_or_none_is_a_value_like_another(recorded, cuda: FakeCuda) -> None:
    with torch.inference_mode():
        record("first", cuda.tensor(1.0))  # the buffer is made in inference mode, and used outside of it
        inference = cuda.tensor(2.0) * 1
    grows = cuda.tensor(3.0, requires_grad=True)
    log({"leaf": grows, "computed": grows * 2, "inference": inference})
    record("computed too", grows * 3)
    found = values(recorded.collect(final=True))
    assert found == {"first": 1.0, "leaf": 3.0, "computed": 6.0, "inference": 2.0, "computed too": 9.0}


@pytest.mark.parametrize(
    "make",
    [
        lambda cuda: cuda.tensor(1 + 2j),
        lambda cuda: cuda.tensor([[1.0]]),
        lambda cuda: torch.tensor(1.0, device="meta"),
        lambda cuda: torch.tensor([1.0, 0.0]).to_sparse(),
    ],
)
def test_what_is_no_number_is_refused_beside_values_that_are(
    recorded, cuda: FakeCuda, make: Callable[..., Any]
) -> None:
    bad = make(cuda)
    for _ in range(2):
        log({"bad": bad, **{f"m{i}": cuda.tensor(float(i)) for i in range(8)}})
    assert values(recorded.collect(final=True)) == {f"m{i}": float(i) for i in range(8)}
    assert recorder.dropped == {"bad_value": 2}


SCALARS = st.one_of(
    st.tuples(st.just(torch.float64), st.floats(allow_nan=False)),
    st.tuples(st.just(torch.float32), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just(torch.float16), st.floats(width=16, allow_nan=False)),
    st.tuples(st.just(torch.int64), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(torch.bool), st.booleans()),
)


CALLS = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), SCALARS, min_size=1), min_size=1, max_size=6)


@given(CALLS, st.data())
def test_any_calls_give_what_item_would_have_given_at_each(calls: list[dict[str, Any]], data: st.DataObject) -> None:
    wanted: dict[tuple[str, int], float] = {}
    with fake_cuda() as cuda, isolated():
        recorder.enabled = True
        streams = [cuda.default(0), torch.cuda.Stream()]
        found: dict[tuple[str, int], float] = {}

        def collect(*, final: bool = False) -> None:
            for point in points(recorder.collect(1, final=final)):
                found[point.name, point.step] = point.moments[1]

        for step, call in enumerate(calls):
            set_step(step)
            stream = data.draw(st.sampled_from(streams))
            if data.draw(st.booleans()):
                stream.hold()
            with torch.cuda.stream(stream):
                tensors = {name: cuda.tensor(value, kind) for name, (kind, value) in call.items()}
                log(tensors)
                for tensor in tensors.values():
                    tensor.zero_()
            wanted |= {
                (name, step): float(torch.tensor(value, dtype=kind).item()) for name, (kind, value) in call.items()
            }
            del tensors, tensor
            if data.draw(st.booleans()):
                collect()
        for stream in streams:
            stream.release()
        collect(final=True)
        assert cuda.waits == []
    assert found == wanted
