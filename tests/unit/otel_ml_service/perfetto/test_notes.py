"""What is noted beside a slice: each kind of value as Perfetto has it."""

from __future__ import annotations

import pytest

from otel_ml.wire.protobuf import double, field, integer
from otel_ml_service.perfetto.track_event import TrackEvents


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (True, integer(2, 1)),
        (3, integer(4, 3)),
        (2**63 - 1, integer(4, 2**63 - 1)),
        (2**63, field(6, b"9223372036854775808")),
        (-(2**63) - 1, field(6, b"-9223372036854775809")),
        (0.5, double(5, 0.5)),
        ("text", field(6, b"text")),
        ([1, "a"], field(12, integer(4, 1)) + field(12, field(6, b"a"))),
    ],
)
def test_a_number_that_64_bits_do_not_hold_is_a_text(value: object, written: bytes) -> None:
    assert TrackEvents().notes({"it": value}).endswith(written)
