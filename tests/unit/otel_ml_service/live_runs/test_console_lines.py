from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.live_runs.console_lines import MOST, ConsoleLines


@given(st.lists(st.text("ab\n", max_size=6), max_size=20), st.lists(st.booleans(), min_size=20, max_size=20))
def test_every_line_is_handed_over_once_in_order_to_whoever_says_what_it_has_printed(
    texts: list[str], asks: list[bool]
) -> None:
    lines, printed, taken = ConsoleLines(), [], 0
    for text, ask in zip([*texts, "\n"], [*asks[: len(texts)], True], strict=True):
        lines.write(text)
        if ask:
            found = lines.after(taken)
            printed += found["lines"]
            taken = found["next"]

    assert printed == ("".join(texts) + "\n").split("\n")[:-1]
    assert lines.after(taken)["lines"] == []


def test_an_answer_that_was_lost_is_given_again() -> None:
    lines = ConsoleLines()
    lines.write("one\ntwo\n")

    assert lines.after(0) == lines.after(0) == {"lines": ["one", "two"], "next": 2, "left_out": 0}


def test_what_was_printed_of_a_service_before_takes_no_line_of_this_one() -> None:
    before, lines = ConsoleLines(first=1_000), ConsoleLines(first=2_000)
    before.write("one\ntwo\n")
    taken = before.after(0)["next"]
    lines.write("three\n")

    assert lines.after(taken)["lines"] == ["three"]


def test_numbers_that_no_line_has_yet_are_of_another_service_and_take_none() -> None:
    lines = ConsoleLines()
    lines.write("one\n")

    found = lines.after(500)

    assert found["lines"] == ["one"]
    assert lines.after(found["next"])["lines"] == []


def test_lines_that_nobody_asks_for_are_counted_and_the_newest_stay() -> None:
    lines = ConsoleLines()
    lines.write("".join(f"{n}\n" for n in range(MOST + 3)))

    found = lines.after(0)

    assert (found["left_out"], found["lines"][0], len(found["lines"])) == (3, "3", MOST)
