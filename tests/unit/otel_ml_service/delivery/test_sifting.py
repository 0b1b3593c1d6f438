"""What a backend refuses is found, and nothing else is lost: whatever it refuses, and however it says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters import Record, RunStatus, StepRecord, Text
from otel_ml_service.delivery.refused_records import Refusal, Refused, export_all_but_refused

NAMES = ("a", "b", "c")


@given(
    count=st.integers(1, 40),
    bad=st.sets(st.integers(1, 40)),
    odd_names=st.sets(st.sampled_from(NAMES), max_size=2),
)
def test_a_backend_gets_all_that_it_takes_in_order_and_the_rest_is_counted_once(
    count: int, bad: set[int], odd_names: set[str]
) -> None:
    stored: list[tuple[int, frozenset[str]]] = []
    refused: list[Refused] = []
    decided: list[int] = []
    tried: list[tuple[int, bool]] = []

    def export(records: Sequence[Record], *, is_last_word: bool) -> Refusal | None:
        tried.append((len(records), is_last_word))
        rows = [record for record in records if isinstance(record, StepRecord)]
        if any(odd_names & row.values.keys() for row in rows):
            return Refusal("no such name", frozenset(odd_names))
        if any(row.seq in bad for row in rows):
            return Refusal("bad")
        stored.extend((row.seq, frozenset(row.values)) for row in rows)
        return None

    def advance(seq: int) -> None:
        assert seq > max(decided, default=0)
        decided.append(seq)
        assert {seq for seq, _ in stored} | {one.seq for one in refused if one.reason == "bad"} == {*range(1, seq + 1)}

    records: list[Record] = [
        StepRecord(seq, "", "step", 10 * seq, 0, 0.0, dict.fromkeys(NAMES, 1.0)) for seq in range(1, count + 1)
    ]
    for one in export_all_but_refused(records, export, advance):
        refused.append(one)  # noqa: PERF402 (what is refused so far is looked at meanwhile)

    kept = frozenset(NAMES) - odd_names
    assert stored == [(seq, kept) for seq in range(1, count + 1) if seq not in bad]
    assert sorted((one.seq, one.what, one.values) for one in refused if one.reason == "no such name") == sorted(
        (seq, f"{name!r} of step {10 * seq}", 1) for seq in range(1, count + 1) for name in odd_names
    )
    assert [(one.seq, one.what, one.values) for one in refused if one.reason == "bad"] == [
        (seq, f"step {10 * seq}", len(kept)) for seq in range(1, count + 1) if seq in bad
    ]
    assert decided[-1] == count
    # The last word is spoken of the batch as a whole, and of a record alone: what is between is halved anyway.
    assert all(is_last_word == (size in {1, count}) for size, is_last_word in tried)


def test_what_is_refused_is_named_by_its_kind_and_its_name_if_it_has_one() -> None:
    records = [Text(1, 0.0, "note", "step", 3, "x"), RunStatus(2, 0.0, "finished")]

    found = export_all_but_refused(records, lambda _, *, is_last_word: Refusal("bad"), lambda _: None)

    assert [one.what for one in found] == ["text 'note'", "runstatus"]


def test_of_a_row_of_thousands_of_values_a_backend_may_refuse_one_name_at_a_time() -> None:
    names = [f"layers.{number}[weight]" for number in range(2_000)]
    stored: list[Record] = []

    def export(records: Sequence[Record], *, is_last_word: bool) -> Refusal | None:
        for record in records:
            assert isinstance(record, StepRecord)
            for name in record.values:
                if "[" in name:
                    return Refusal("no such name", frozenset([name]))
        stored.extend(records)
        return None

    decided: list[int] = []
    record = StepRecord(1, "", "step", 0, 0, 0.0, {**dict.fromkeys(names, 1.0), "loss": 0.5})

    refused = [*export_all_but_refused([record], export, decided.append)]

    assert [one.what for one in refused] == [f"{name!r} of step 0" for name in names]
    assert stored == [replace(record, values={"loss": 0.5})]
    assert decided == [1]
