"""What travels and what is stored, read back: whole, cut off anywhere, and with any byte changed."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_ml.exceptions import WireError
from otel_ml.wire.attributes import LEFT_FOR
from otel_ml.wire.loss_reasons import lost_values, not_recorded, other_losses
from otel_ml.wire.protobuf import encoded_fields, field, fields, varint
from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml.wire.spool_format import HEADER, Frame, Leftover, encode_frame, read_spool, request_body

unsigned = st.integers(0, 63).flatmap(lambda bits: st.integers(0, 2**bits))
points = st.builds(
    ExponentialHistogramDataPoint,
    count=unsigned,
    time_unix_nano=unsigned,
    sum=st.floats(allow_nan=False),
    scale=st.integers(-(2**31), 2**31 - 1),
    zero_count=unsigned,
    positive=st.builds(
        ExponentialHistogramDataPoint.Buckets,
        offset=st.integers(-(2**31), 2**31 - 1),
        bucket_counts=st.lists(unsigned, max_size=200),
    ),
)


@given(unsigned)
@example(2**7)
@example(2**14)
@example(2**21)
@example(2**64 - 1)
def test_a_number_is_read_back_whatever_its_length(number: int) -> None:
    assert [*fields(b"\x08" + varint(number))] == [(1, number)]


@given(points)
def test_a_message_comes_apart_into_the_fields_that_protobuf_wrote(point: ExponentialHistogramDataPoint) -> None:
    message = point.SerializeToString()

    apart = [*encoded_fields(message)]

    assert b"".join(encoded for _, encoded, _ in apart) == message
    assert [number for number, _, _ in apart] == [found.number for found, _ in point.ListFields()]
    for number, encoded, value in apart:
        alone = ExponentialHistogramDataPoint.FromString(encoded)
        (name,) = [found.name for found, _ in alone.ListFields()]
        assert getattr(alone, name) == getattr(point, name)
        if name == "scale":
            assert isinstance(value, int)
            assert (value >> 1) ^ -(value & 1) == point.scale  # as protobuf writes a number with a sign
        elif name == "positive":
            inner = point.positive.SerializeToString()
            assert (value, encoded) == (inner, field(number, inner))
        else:
            assert encoded[1:] == value


@given(points, st.floats(0, 1))
def test_a_message_that_ends_anywhere_is_read_up_to_there_or_refused(
    point: ExponentialHistogramDataPoint, share: float
) -> None:
    message = point.SerializeToString()
    whole = [*encoded_fields(message)]
    end = int(share * len(message))
    ends = [0]
    for _, encoded, _ in whole:
        ends.append(ends[-1] + len(encoded))

    if end in ends:
        assert [*encoded_fields(message[:end])] == whole[: ends.index(end)]
    else:
        with pytest.raises(WireError, match="ends inside"):
            [*encoded_fields(message[:end])]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\x00\x01", "0 is not a field"), (b"\x07", "0 is not a field"), (b"\x0b", "wire type 3"),
        (b"\x0c", "wire type 4"), (b"\x0e", "wire type 6"), (b"\x08" + b"\xff" * 10 + b"\x01", "64 bits"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_with_the_reason(message: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        [*fields(message)]


REASONS = (
    "spool_full", "request_too_large", "too_late", "never_arrived", "a backend's own words", "bad_value", "bad_step",
    "device_lost", "internal_error", "missing_step", "events_never_arrived", "spans_dropped",
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(REASONS), st.integers(1, 100)))
def test_each_reason_of_a_loss_is_of_one_kind(lost: dict[str, int]) -> None:
    values, never, others = lost_values(lost), not_recorded(lost), other_losses(lost)

    assert {**values, **never, **others} == lost
    assert len(values) + len(never) + len(others) == len(lost)
    assert values.keys() <= set(REASONS[:5])
    assert never.keys() <= set(REASONS[5:10])


kinds: st.SearchStrategy[Literal["M", "S", "L"]] = st.sampled_from(["M", "S", "L"])
frames = st.lists(st.builds(Frame, kinds, st.binary(max_size=60), st.integers(0, 2**32 - 1)), max_size=6)


@given(frames, st.floats(0, 1), st.none() | st.integers(0, 7))
def test_a_spool_that_ends_or_is_damaged_anywhere_holds_what_was_before(
    frames: list[Frame], share: float, bit: int | None
) -> None:
    written = [encode_frame(frame) + frame.payload for frame in (Frame("R", b"resource"), *frames)]
    content = HEADER + b"".join(written)
    at = len(HEADER) + int(share * (len(content) - len(HEADER)))
    damaged = at < len(content) and bit is not None
    changed = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :] if damaged else content[:at]
    whole = sum(len(HEADER + b"".join(written[: number + 1])) <= at for number in range(len(written)))

    found = read(changed)

    assert found.frames[: max(0, whole - 1)] == tuple(frames[: max(0, whole - 1)])
    if whole and not damaged:
        assert found.frames == tuple(frames[: whole - 1])
        # How long it was left follows, as one field of the resource, in as many bytes as that number takes.
        assert found.resource.startswith(b"resource")
        [(number, attribute)] = fields(found.resource.removeprefix(b"resource"))
        assert (number, LEFT_FOR.encode() in attribute) == (1, True)
    if not whole and not damaged:
        assert found == Leftover(b"", ())


def read(content: bytes) -> Leftover:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "writer-000000.spool"
        path.write_bytes(content)
        return read_spool(path)


@pytest.mark.parametrize(("ago_s", "least_ms", "most_ms"), [(5_000, 5_000_000, 9_000_000), (-5_000, 0, 0)])
def test_a_spool_says_for_how_long_nothing_was_added_to_it(
    tmp_path: Path, ago_s: int, least_ms: int, most_ms: int
) -> None:
    path = tmp_path / "writer-000000.spool"
    path.write_bytes(HEADER + encode_frame(Frame("R", b"")))
    then = time.time_ns() - ago_s * 10**9
    os.utime(path, ns=(then, then))

    [attribute] = Resource.FromString(read_spool(path).resource).attributes

    assert attribute.key == LEFT_FOR
    assert least_ms <= attribute.value.int_value <= most_ms


def test_a_request_holds_one_resource_and_all_payloads() -> None:
    (resources,) = fields(request_body(b"resource", [b"\x12\x01a", b"\x12\x01b"]))

    assert resources[0] == 1
    assert [*fields(bytes(resources[1]))] == [(1, b"resource"), (2, b"a"), (2, b"b")]


def test_processes_of_a_job_meet_in_the_folder_of_their_run_and_no_others() -> None:
    with tempfile.TemporaryDirectory() as runtime:
        environ = {"XDG_RUNTIME_DIR": runtime}
        here = rendezvous_of("experiment", environ).folder

        assert here == rendezvous_of("experiment", environ).folder
        assert here.is_relative_to(runtime)
        assert here != rendezvous_of("another", environ).folder
        for elsewhere in ({}, {"XDG_RUNTIME_DIR": f"{runtime}/gone"}):
            assert rendezvous_of("experiment", elsewhere).folder.parent.parent in (Path("/tmp"), Path.home() / ".cache")
