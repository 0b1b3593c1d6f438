"""What a process prints of its run while that goes on."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from otel_ml._internal.lifecycle.run_printer import _asked
from otel_ml._internal.transport.link import Reached


class Answers:
    """Something that answers each question alike, and knows what it was asked."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.asked: list[str] = []

    def get(self, path: str, *, timeout: float) -> bytes | None:
        self.asked.append(path)
        return self.content


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"lines": ["step 3"], "next": 7}', {"lines": ["step 3"], "next": 7}),
        (b'["another", "form"]', {}),
        (b"<html>", {}),
        (b"", {}),
        (None, {}),
    ],
)
def test_whatever_answers_in_the_place_of_the_service_prints_nothing(
    content: bytes | None, found: Mapping[str, object]
) -> None:
    answers = Answers(content)

    assert _asked(Reached(answers, "there"), "grpo/7", 4) == found  # type: ignore[arg-type]
    assert answers.asked == ["/otel_ml/runs/grpo%2F7/console?after=4"]
