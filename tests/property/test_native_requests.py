"""What the compiled receiver finds in a request, and reads from messages, is what the Python beside it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml._internal.native import native
from otel_ml_service.aggregation.observation import Fragment, Watermark, Writer
from otel_ml_service.aggregation.points import gathered, gathered_in_python, newest, newest_in_python
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.receiver.fast_path import WATERMARKS, known, known_in_python
from otel_ml_service.receiver.known_forms import find_form, find_form_in_python
from otel_ml_service.receiver.request_parts import parts, parts_in_python
from tests.property.decoding import CHANGES, ENCODERS, changed
from tests.property.test_fast_path import requests

pytestmark = pytest.mark.skipif(native is None, reason="nothing is compiled here")

WRITER = Writer("run-1", "trainer", "a")


def everything_known(decoder: Decoder, body: bytes) -> Any:
    """Return what both find in a request whose forms a decoder has met."""
    found = parts(body)
    assert found == parts_in_python(body)
    answers = []
    for _, places in found or ():
        forms = decoder._messages._scopes.forms, decoder._messages._templates.known, WATERMARKS
        answer = known(body, places, WRITER, *forms)
        assert answer == known_in_python(body, places, WRITER, *forms)
        assert [type(one) for one in answer] == [type(one) for one in known_in_python(body, places, WRITER, *forms)]
        answers.append(answer)
    return answers


@given(requests(), st.sampled_from(ENCODERS), CHANGES, st.integers(0, 400))
def test_what_is_known_of_a_request_is_the_same_also_of_one_that_was_changed_or_cut(
    request: Any, encoded: Callable[[Any], bytes], changes: Any, cut: int
) -> None:
    decoder, body = Decoder(), encoded(request)
    for _ in range(3):
        decoder.protobuf("metrics", body)

    everything_known(decoder, body)
    everything_known(decoder, changed(body, changes))
    everything_known(decoder, body[:-cut] if cut else body)


@pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])
def test_every_message_of_a_step_is_known_at_the_third_time(encoded: Callable[[Any], bytes]) -> None:
    from tests.otlp import FakeWriter

    decoder = Decoder()
    for rank in (0, 1):
        decoder.protobuf("metrics", encoded(FakeWriter(rank=rank).step(7, {"loss": 0.5, "lr": 0.1})))

    [[fragment, watermark]] = everything_known(decoder, encoded(FakeWriter(rank=2).step(8, {"loss": 2.5, "lr": 0.2})))

    assert isinstance(fragment, Fragment)
    assert isinstance(watermark, Watermark)
    assert (fragment.step, watermark.step) == (8, 8)


@given(st.binary(max_size=60))
@example(b"\n\xff\xff\xff\xff\xff\xff")
@example(b"\n\x80\x80\x80\x80\x80\x01")
@example(b"\n\x02\n\x81")
@example(b"\n\x04\x1a\x02\xff\xfe")
@example(b"\n\x08\n\x00\n\x02ab\x12\x00")
def test_bytes_of_any_kind_are_taken_apart_the_same(body: bytes) -> None:
    assert parts(body) == parts_in_python(body)


@given(st.data(), st.integers(1, 200))
def test_a_message_has_the_same_form(data: st.DataObject, size: int) -> None:
    binary = st.binary(min_size=size, max_size=size)
    message, masks = data.draw(binary), data.draw(st.lists(binary, max_size=4))
    kept = [(np.frombuffer(message, np.uint8) & np.frombuffer(mask, np.uint8)).tobytes() for mask in masks]
    broken = data.draw(st.lists(st.integers(0, size - 1), max_size=2))
    forms: dict[int, list[tuple[bytes, bytes, int]]] = {
        size: [
            (mask, bytes(byte ^ (place in broken and number == 0) for place, byte in enumerate(constant)), number)
            for number, (mask, constant) in enumerate(zip(masks, kept, strict=True))
        ]
    }

    assert find_form(forms, message) == find_form_in_python(forms, message)
    assert find_form({}, message) is None


@given(st.data(), st.integers(8, 100), st.integers(1, 5))
def test_numbers_are_read_at_the_same_places(data: st.DataObject, size: int, rows: int) -> None:
    messages = [data.draw(st.binary(min_size=size, max_size=size)) for _ in range(rows)]
    offsets = np.array(data.draw(st.lists(st.integers(0, size - 8), min_size=1, max_size=9)), dtype=np.int64)

    assert gathered(messages, offsets, size) == gathered_in_python(messages, offsets, size)
    assert newest(messages[0], offsets) == newest_in_python(messages[0], offsets)


def test_many_numbers_are_read_while_others_have_the_interpreter() -> None:
    messages = [bytes([number % 251]) * 800 for number in range(400)]
    offsets = np.arange(0, 792, 8, dtype=np.int64)

    assert gathered(messages, offsets, 800) == gathered_in_python(messages, offsets, 800)


@pytest.mark.parametrize("offset", [-1, 1, 2**62])
def test_a_number_outside_of_its_message_is_refused(offset: int) -> None:
    with pytest.raises(ValueError, match="has no number at"):
        gathered([b"12345678"], np.array([offset]), 8)
    with pytest.raises(ValueError, match="has no number at"):
        newest(b"12345678", np.array([offset]))


def test_messages_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="messages of 8 bytes"):
        gathered([b"12345678", b"1234567"], np.array([0]), 8)
