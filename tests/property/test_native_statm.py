"""Compiled code reads the kernel's memory counters as Python does, and leaves another file alone."""

from __future__ import annotations

import os
import tempfile

from hypothesis import given
from hypothesis import strategies as st

from otel_ml.diagnostics.hardware.process_memory import _read_in_c, _read_in_python

PAGES = st.lists(st.integers(0, 2**40), min_size=7, max_size=7).map(
    lambda pages: f"{' '.join(map(str, pages))}\n".encode()
)
OTHERS = st.binary(max_size=140) | st.sampled_from(
    [
        b"",
        b"\n",
        b"1 2 3 4 5 6 7",
        b"1 2 3 4 5 6\n",
        b"1 2 3 4 5 6 7 8\n",
        b" 1 2 3 4 5 6 7\n",
        b"1 2 3 4 5 6 -7\n",
        b"1 2 3 4 5 6 7\n\n",
    ]
)


@given(PAGES)
def test_the_counters_are_those_that_python_reads(text: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.flush()

        assert _read_in_c(file.fileno()) == _read_in_python(file.fileno()) is not None


@given(OTHERS)
def test_of_another_file_nothing_is_read_that_python_does_not_read(text: bytes) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.flush()

        assert _read_in_c(file.fileno()) in (None, _read_in_python(file.fileno()))


def test_a_descriptor_that_is_closed_gives_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader), os.close(writer)

    assert _read_in_c(reader) is _read_in_python(reader) is None
