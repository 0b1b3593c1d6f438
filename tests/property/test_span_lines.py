"""Lines of spans that compiled code writes are those that Python writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters import span_lines
from otel_ml_exporters.span_lines import SpanLines

assert span_lines.native is not None, "the compiled part is missing: make setup"

LINES = st.lists(st.text(st.characters(exclude_characters="\n")) | st.text("ab}", max_size=300), min_size=1)
ENDS = st.sampled_from(["", "{", ",", '{"seq":7,', "größe", "a" * 500])


@given(LINES, ENDS, ENDS)
def test_lines_are_written_between_what_is_given(lines: list[str], begin: str, end: str) -> None:
    written = SpanLines([f"{{{line}" for line in lines]).written(begin, end)

    assert written == f"{end}\n".join(begin + line for line in lines)


@given(LINES, ENDS, ENDS, st.integers(-1, 12))
def test_lines_are_all_written_though_there_are_more_or_fewer_than_it_was_said(
    lines: list[str], begin: str, end: str, count: int
) -> None:
    written = SpanLines.of_text("\n".join(lines), count).written(begin, end)

    assert written == (f"{end}\n".join(begin + line for line in lines) if count else "")
