from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.delivery.exporter_progress import Progress
from otel_ml_service.delivery.losses import Losses

REFUSED = st.tuples(st.just("refused"), st.sampled_from(["bad", "odd"]), st.integers(0, 3))
AGAIN = st.tuples(st.just("again from"), st.integers(0, 20))
ANEW = st.tuples(st.just("anew"))


@given(st.dictionaries(st.sampled_from(["bad", "old"]), st.integers(1, 3)), st.lists(REFUSED | AGAIN | ANEW))
def test_each_loss_counts_once_however_often_its_record_comes_again(
    before: dict[str, int], happens: list[tuple[Any, ...]]
) -> None:
    losses, kept, lost = Losses(before), Counter(before), [("", 0)]
    for what, *of_it in happens:
        if what == "refused":
            lost.append((of_it[0], of_it[1]))
            losses.add(len(lost) - 1, *of_it)
        elif what == "again from":
            del lost[1 + of_it[0] :]
            losses.take_back(of_it[0])
        else:
            kept.clear()
            del lost[1:]
            losses.forget()

    expected = kept.copy()
    for reason, count in lost:
        expected[reason] += count
    assert losses.counts == +expected


def test_a_loss_that_stayed_when_later_ones_were_taken_back_is_taken_back_when_its_record_comes_again() -> None:
    losses = Losses({})
    for seq, reason in enumerate(("bad", "odd", "large"), 1):
        losses.add(seq, reason, 1)

    for after, left in ((2, {"bad": 1, "odd": 1}), (1, {"bad": 1}), (0, {})):
        losses.take_back(after)
        assert losses.counts == left


def test_of_more_than_a_hundred_thousand_losses_the_newest_are_taken_back() -> None:
    losses = Losses({})
    for seq in range(1, 100_003):
        losses.add(seq, "bad", 1)

    losses.take_back(0)

    assert losses.counts == {"bad": 2}


def test_what_comes_again_to_a_new_exporter_is_not_shown_as_lost_until_it_is_refused_again() -> None:
    progress = Progress(
        "test", "run", 5, {}, mark=lambda *_: None, say=lambda *_: None, surprises=1, seq_offset=lambda _: 0
    )
    for seq in (3, 5):
        progress.lose(seq, "bad", 1)
    assert progress.status.lost == {"bad": 2}

    progress.resume(position=4, last_seq=5)

    assert (progress.status.delivered, progress.status.lost) == (4, {"bad": 1})
