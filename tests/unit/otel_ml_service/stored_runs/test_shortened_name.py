"""Names that do not fit into their column."""

from __future__ import annotations

import pytest

from otel_ml_service.stored_runs.shortened_name import shortened


@pytest.mark.parametrize(
    ("width", "shown"),
    [(8, "abcdefgh"), (7, "abc…fgh"), (6, "abc…gh"), (5, "ab…gh"), (4, "ab…h"), (3, "a…h"), (2, "a…h"), (0, "a…h")],
)
def test_a_name_keeps_its_two_ends_at_least(width: int, shown: str) -> None:
    assert shortened("abcdefgh", width) == shown
