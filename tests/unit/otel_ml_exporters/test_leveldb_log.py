from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.leveldb_log import framed, records

HEADER = b"7 bytes"
BLOCK = 32 * 1024
sizes = st.integers(0, 40) | st.integers(BLOCK - 40, BLOCK + 40) | st.integers(3 * BLOCK - 20, 3 * BLOCK + 20)


@given(st.lists(sizes, max_size=6), st.integers(0, 6))
def test_records_of_any_size_are_read_back_whichever_append_they_came_in(lengths: list[int], first: int) -> None:
    messages = [bytes((number + 1,)) * size for number, size in enumerate(lengths)]

    log = HEADER + framed(messages[:first], len(HEADER))
    log += framed(messages[first:], len(log))

    assert [content for _, content in records(io.BytesIO(log), len(HEADER))] == messages
