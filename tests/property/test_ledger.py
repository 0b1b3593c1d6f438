"""A writer's account against one that keeps every message: in any order of arrival, with any of them lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_service.aggregation.ledger import Amount, Ledger
from otel_ml_service.aggregation.observation import Totals


@dataclass(frozen=True)
class Message:
    """What a writer sends under one running number: an amount, or the totals of all that it sent before."""

    seq: int
    amount: Amount | None
    totals: Totals


NOTHING_SAID = Message(0, None, Totals(0, 0, 0, 0))


@st.composite
def sent(draw: st.DrawFn) -> list[Message]:
    """Draw what a writer sends; values are more than points, for a point may stand for many."""
    points = st.builds(Amount, st.integers(1, 3), st.integers(0, 40), st.just(0))  # without one there is no value
    amounts = points | st.builds(Amount, st.just(0), st.just(0), st.integers(0, 2))
    found, so_far = [], Amount()
    for seq, amount in enumerate(draw(st.lists(st.none() | amounts, min_size=1, max_size=12)), start=1):
        found.append(Message(seq, amount, Totals(so_far.values, *so_far)))
        so_far += amount or Amount()
    return found


@given(sent(), st.data())
@settings(max_examples=300)
def test_an_account_is_what_counting_all_messages_gives(messages: list[Message], data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(messages), unique=True))
    arriving = data.draw(st.just(sorted(some, key=lambda one: one.seq)) | st.permutations(some))
    ledger, floor, known = Ledger(), 0, 0
    came: list[Message] = []
    heard: list[Message] = []
    for message in arriving:
        came.append(message)
        if message.amount is None and message.seq > known:  # of older ones nobody knows what had arrived before them
            heard.append(message)
        numbers = {one.seq for one in came}
        while floor + 1 in numbers or (floor < len(messages) and data.draw(st.integers(0, 2)) == 0):
            floor += 1  # a gap may be given up: nothing is waited for in it
        if message.amount is None:
            ledger.hear(message.seq, message.totals, None)
        else:
            ledger.take(message.seq, message.amount, floor)
            known = floor
        if message is not arriving[-1] and data.draw(st.booleans()):
            continue  # a request brings many
        ledger.settle(floor)
        known = floor

        settled = max((one for one in heard if one.seq <= floor), key=lambda one: one.seq, default=NOTHING_SAID)
        said, before = settled.totals, total([one for one in came if one.seq <= settled.seq])
        assert ledger.said == (settled.seq, said)
        assert ledger.arrived == total(came)
        assert ledger.missing(at_end=False) == lacking(said, before)
        assert ledger.is_short == (lacking(said, before).points > 0 or lacking(said, before).events > 0)
        newest = max(heard, key=lambda one: one.seq, default=NOTHING_SAID)
        on_its_way_or_lost = lacking(newest.totals, total([one for one in came if one.seq <= newest.seq]))
        of_totals = max(one.totals.recorded for one in (NOTHING_SAID, *heard))
        assert ledger.recorded == max(of_totals, ledger.arrived.values + on_its_way_or_lost.values)
        assert all(seq > floor for seq in (*ledger.ahead, *ledger.said_ahead)), "what is settled is kept no longer"
    newest = max(heard, key=lambda one: one.seq, default=NOTHING_SAID)
    at_end = lacking(newest.totals, total([one for one in came if one.seq <= newest.seq]))
    assert ledger.missing(at_end=True) == at_end


def lacking(said: Totals, arrived: Amount) -> Amount:
    return Amount(*(max(0, one - other) for one, other in zip(said[1:], arrived, strict=True)))


def total(messages: Sequence[Message]) -> Amount:
    return sum((one.amount for one in messages if one.amount is not None), Amount())
