"""What of a request is rejected is counted: in all, by reason and by whose it is; what is said of it is bounded."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.receiver.partial_success import Rejections, Unacceptable, sender_of

WRITER = Writer(experiment="run-1", role="trainer", instance="i-1", host="node-7")
STRANGER = Unacceptable("", "a stranger", "it has no run.")
KNOWN = Unacceptable("run-2", "an evaluator", "its rank is none.")
NAMES = {WRITER: "trainer (instance i-1, host node-7)", STRANGER: "a stranger", KNOWN: "an evaluator"}


@pytest.mark.parametrize("seed", range(10))
def test_every_item_is_counted_once_and_no_more_than_fifty_reasons_are_told_apart(seed: int) -> None:
    draw = Random(seed)
    added = [
        (draw.choice([WRITER, STRANGER, KNOWN, None]), draw.randrange(40 if seed < 3 else 80), draw.randrange(4))
        for _ in range(300)
    ]
    rejections, counts, runs, told = Rejections(), Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for sender, number, items in added:
        rejections.sender = sender
        rejections.add(f"reason {number}.", items)
        reason = f"reason {number}."
        reason = reason if reason in counts or len(counts) < 50 else "further reasons are not told apart."
        counts[reason] += items
        if sender is not None and items:
            runs[sender.experiment] += items
            key = NAMES[sender], reason
            if key in told or len(told) < 50:
                told[key] += items

    assert rejections.total == sum(items for _, _, items in added)
    assert rejections.reasons == counts
    assert rejections.experiments == {run: items for run, items in runs.items() if run}
    assert {(one.sender, one.reason): items for one, items in rejections.told.items()} == told


def test_the_answer_has_the_five_most_frequent_reasons_and_where_they_are_explained() -> None:
    rejections = Rejections()
    for number in range(7):
        rejections.add(f"reason {number}.", number + 1)
    rejections.add("one more.", 0, slug="bad-resource")

    said = rejections.message

    assert said.startswith("7 × reason 6. 6 × reason 5. 5 × reason 4. 4 × reason 3. 3 × reason 2.")
    assert "reason 1" not in said
    assert "rejected-points" in said
    assert "bad-resource" in said
    assert Rejections().message == ""


def test_a_reason_that_quotes_a_hostile_request_is_cut() -> None:
    rejections = Rejections()
    for length in (300, 301, 10_000):
        rejections.add("x" * length)

    assert rejections.reasons == {"x" * 300: 1, "x" * 300 + "…": 2}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (("trainer", "i-1", "node-7"), "trainer (instance i-1, host node-7)"),
        (("trainer", "", "node-7"), "trainer (host node-7)"),
        (("trainer", "i-1", ""), "trainer (instance i-1)"),
        (("trainer", "", ""), "trainer"),
        (("", "", ""), "a sender without service.name"),
        (("x" * 101, "y" * 101, ""), f"{'x' * 100} (instance {'y' * 100})"),
    ],
)
def test_a_sender_is_called_by_what_it_says_of_itself(said: tuple[str, str, str], name: str) -> None:
    assert sender_of(*said) == name


@pytest.mark.parametrize(
    ("instance", "name"),
    [("node-7/12/0", "trainer (host node-7)"), ("node-7", "trainer (instance node-7, host node-7)")],
)
def test_an_instance_that_was_made_up_for_a_sender_is_not_said(instance: str, name: str) -> None:
    rejections = Rejections()
    rejections.sender = Writer(experiment="run-1", role="trainer", instance=instance, host="node-7")

    rejections.add("reason.")

    assert [one.sender for one in rejections.told] == [name]
