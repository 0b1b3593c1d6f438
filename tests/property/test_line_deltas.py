"""Lines that are stored as what differs from the one before come back as they were, and damaged ones do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.records import Span, SpanBatch
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.storage import line_deltas, record_codec
from otel_ml_service.storage.line_deltas import as_deltas, of_deltas

assert line_deltas.native is not None, "the compiled part is missing: make setup"

WORDS = ["a", "b,", ",", '"x":1', ",,", "c" * 890, "c" * 899, "," * 910]
LINES = st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=127)), max_size=9) | st.lists(
    st.lists(st.sampled_from(WORDS), max_size=6).map("".join), max_size=9
)
READERS: dict[str, object] = {"compiled": line_deltas.native, "in Python": None}


@contextmanager
def reading(how: str) -> Iterator[Callable[[str, int], str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_deltas, "native", READERS[how])
        yield of_deltas


@pytest.mark.parametrize("how", READERS)
@given(LINES)
def test_lines_come_back_as_they_were(how: str, lines: list[str]) -> None:
    text = "\n".join(lines)

    deltas = as_deltas(text)

    assert deltas is None or len(deltas) < len(text)
    if deltas is not None:
        with reading(how) as read:
            assert read(deltas, len(text)) == text


@given(LINES, st.integers(1, 30))
def test_the_same_lines_again_and_again_are_a_few_characters_each(lines: list[str], times: int) -> None:
    line = "".join(lines)
    whole = len(line) // 899

    deltas = as_deltas("\n".join([line] * times))

    # The first one as it is, behind two digits; two more for what is copied, and for each 899 characters of it.
    known = len(line) + 2 + (times - 1) * (1 + 2 * (whole + 1))
    assert (deltas is None and known >= times * (len(line) + 1) - 1) or len(deltas or "") == known


@given(st.lists(st.sampled_from(["größe", "\t", "a\x00", "\x1f"]), min_size=1, max_size=3), LINES)
def test_lines_with_what_is_no_line_of_ascii_are_left_as_they_are(odd: list[str], lines: list[str]) -> None:
    assert as_deltas("\n".join([*lines, *odd])) is None


@given(LINES, st.lists(st.tuples(st.integers(0), st.characters(max_codepoint=130)), max_size=3), st.integers(-2, 2))
def test_both_readers_take_what_was_changed_for_the_same_lines_or_refuse_it(
    lines: list[str], changes: list[tuple[int, str]], by: int
) -> None:
    text = "\n".join(lines * 3)
    deltas = as_deltas(text) or "\x01\x01ab\n\x01\x02"
    for place, character in changes:
        at = place % len(deltas)
        deltas = deltas[:at] + character + deltas[at + 1 :]

    def outcome(how: str) -> str | None:
        with reading(how) as read:
            try:
                return read(deltas, len(text) + by)
            except ValueError:
                return None

    assert outcome("compiled") == outcome("in Python")


@given(
    st.lists(
        st.tuples(st.integers(0, 2**63 - 1), st.sampled_from(["forward", "back,ward", 'a"b', "größe", ""])), max_size=20
    )
)
def test_spans_are_stored_and_come_back(some: list[tuple[int, str]]) -> None:
    spans = [
        Span(
            f"{number:032x}", f"{number % 2**64:016x}", None, name, number, number + 7, "trainer", number % 4, "step", 3
        )
        for number, name in some
    ]
    batch = SpanBatch(5, SpanLines.of(spans))

    back = record_codec.decode(record_codec.encode(batch))

    assert back == batch


@given(st.integers(0), st.characters(min_codepoint=1, max_codepoint=127))
def test_spans_of_which_one_character_was_changed_are_damaged(place: int, character: str) -> None:
    spans = [Span("1" * 32, f"{number:016x}", None, "step", number, number, "", 0, "step", 3) for number in range(9)]
    kind, text, _ = record_codec.encode(SpanBatch(5, spans))
    at = text.index("\n") + 1 + place % (len(text) - text.index("\n") - 1)
    changed = text[:at] + character + text[at + 1 :]

    if changed != text:
        with pytest.raises(ValueError, match="spans of record 5 are damaged"):
            record_codec.decode((kind, changed, None))
