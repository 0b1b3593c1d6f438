"""Single entries that a disk, or somebody else, has changed: they cost themselves, and the file goes on without."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters import Text
from otel_ml_service.storage import salvage
from otel_ml_service.storage.database import DamagedError
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.journal import Journal
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.storage.packed_rows import packed, unpacked
from otel_ml_service.storage.salvaged_records import UNREADABLE
from tests.unit.otel_ml_service.storage.test_journal import Receiver, append, started
from tests.unit.otel_ml_service.storage.test_journal_files import left_by_the_first_form

RECORDS = [Text(seq, float(seq), f"note {seq}", None, None, "text") for seq in range(1, 21)]
STATE = {"run": b"the engine", "unit/1": b"a step"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a run that was put away: `jsonl` has half of it, `wandb` all."""
    path = tmp_path / "state" / "run.db"
    with closing(Outbox(path)) as outbox:
        outbox.commit(Commit(RECORDS, STATE, ("j", 7), ["Rank 3 is quiet."], {"late.otlp": "12"}))
        outbox.set_mark("jsonl", Mark(10, {"too large": 1}))
        outbox.set_mark("wandb", Mark(20))
    return path


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


@pytest.mark.parametrize("lost", ["garbage", "[1]", "3", "null"])
def test_losses_that_cannot_be_read_cost_that_exporters_mark_alone(path: Path, lost: str) -> None:
    execute(path, f"UPDATE exporters SET lost = '{lost}' WHERE name = 'jsonl'")

    with closing(Outbox(path)) as outbox:
        assert "20 records could be read" in outbox.damage
        assert (outbox.mark("jsonl"), outbox.mark("wandb")) == (Mark(), Mark(20))
        assert (outbox.read(0, 100), outbox.state()) == (RECORDS, STATE)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE facts SET value = 'x' WHERE name = 'seq'",
        "UPDATE facts SET value = x'3230' WHERE name = 'seq'",
        "DELETE FROM facts WHERE name = 'seq'",
    ],
    ids=["no number", "no text", "gone"],
)
def test_a_file_that_no_longer_says_its_last_number_gives_all_its_records(path: Path, statement: str) -> None:
    execute(path, statement)
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert (outbox.read(0, 100), outbox.state(), outbox.last_seq) == (RECORDS, STATE, 20)
        assert (outbox.consumed, outbox.facts["late.otlp"]) == (("j", 7), "12")
        assert outbox.mark("jsonl") == Mark(10, {"too large": 1})


def test_a_record_that_says_another_number_than_it_is_kept_under_is_not_taken_over(path: Path) -> None:
    execute(path, """UPDATE records SET record = replace(record, '"seq":7,', '"seq":8,') WHERE seq = 7""")
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert outbox.read(0, 100) == [record for record in RECORDS if record.seq != 7]


def test_a_sentence_that_is_none_is_left_out_and_the_others_stay(path: Path) -> None:
    execute(path, "INSERT INTO notices (sentence) VALUES (x'00')")
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert outbox.notices == ["Rank 3 is quiet."]


def test_an_entry_of_the_engines_state_that_is_damaged_costs_all_of_it_and_that_is_said(path: Path) -> None:
    execute(path, "UPDATE engine SET value = x'0000000000' WHERE key = 'unit/1'")
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert (outbox.read(0, 100), outbox.state()) == (RECORDS, {})
        assert outbox.base > 1_000_000_000
        assert f"numbered from {outbox.base + 1} on" in outbox.damage


@pytest.mark.parametrize("damage", ["CAST('1234a step' AS TEXT)", "7", "2.5"])
def test_an_entry_that_is_of_another_type_is_damaged_as_any_other(path: Path, damage: str) -> None:
    # One bit of a row's header is between a BLOB and a TEXT of the same length.
    execute(path, f"UPDATE engine SET value = {damage} WHERE key = 'unit/1'")
    with closing(Outbox(path)) as outbox:
        with pytest.raises(DamagedError):
            outbox.state()
        assert outbox.entry("unit/1") is None

    with closing(Outbox(path)) as outbox:
        assert (outbox.read(0, 100), outbox.state()) == (RECORDS, {})
        assert outbox.base > 1_000_000_000


def test_a_name_of_an_entry_that_is_of_another_type_is_damage(path: Path) -> None:
    execute(path, "UPDATE engine SET key = CAST(key AS BLOB), value = x'0000000000' WHERE key = 'unit/1'")
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert (outbox.read(0, 100), outbox.state()) == (RECORDS, {})


def test_numbers_of_a_run_that_lost_its_state_go_on_above_all_that_ever_was(path: Path) -> None:
    last = 2**40  # above the clock
    execute(path, f"UPDATE facts SET value = '{last}' WHERE name = 'seq'")
    execute(path, "DELETE FROM engine")
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert outbox.base == last


def test_numbers_that_never_were_are_not_counted_as_lost(path: Path) -> None:
    execute(path, "DELETE FROM engine")
    salvage.suspect(path)
    with closing(Outbox(path)) as outbox:
        after = outbox.base
        outbox.commit(Commit([Text(after + n, 0.0, "log", None, None, "x") for n in (1, 2, 3)], STATE))
    execute(path, f"DELETE FROM records WHERE seq = {after + 2}")
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert outbox.mark("jsonl") == Mark(10, {"too large": 1, UNREADABLE: 1})
        assert "22 records could be read, 1 that an exporter had not written could not." in outbox.damage


def test_each_damage_keeps_its_own_copy_and_names_it(path: Path) -> None:
    for count in (1, 2, 3):
        salvage.suspect(path)
        with closing(Outbox(path)) as outbox:
            assert outbox.damage.startswith("run.db was damaged: 20 records could be read. ")
            assert f"damaged-{count}." in outbox.damage
            assert outbox.read(0, 100) == RECORDS
    kept = {path.name} | {f"run.db.damaged-{count}" for count in (1, 2, 3)}
    assert {found.name for found in path.parent.iterdir()} == kept


def test_what_a_rescue_had_copied_when_it_was_killed_is_copied_anew(path: Path) -> None:
    half = path.with_name("run.db.rebuilt")
    with closing(Outbox(half)) as outbox:
        outbox.commit(Commit([Text(seq, 0.0, "other", None, None, "") for seq in range(1, 31)], {"run": b"other"}))
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert (outbox.read(0, 100), outbox.state()) == (RECORDS, STATE)


def test_what_a_backend_has_of_a_file_that_was_rescued_is_from_the_file(path: Path) -> None:
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        assert outbox.seq_offset("mlflow", 500) == 0, "it may have served it before the damage"


def test_what_a_backend_has_above_the_number_that_a_run_goes_on_after_is_from_elsewhere(path: Path) -> None:
    with closing(Outbox(path)) as outbox:
        outbox.forget_state()
        base = outbox.base

        assert outbox.seq_offset("mlflow", base + 5) == 5
        assert outbox.seq_offset("tensorboard", base) == 0
        assert outbox.seq_offset("trackio", 25) == 0
        assert outbox.seq_offset("wandb", base + 5) == 0, "the file has a mark of it"


def test_who_gives_up_what_a_run_knew_says_from_which_number_it_goes_on(path: Path) -> None:
    with closing(Outbox(path)) as outbox:
        assert outbox.damage == ""
        outbox.forget_state()

        assert f"records are numbered from {outbox.base + 1} on" in outbox.damage
        assert outbox.base > RECORDS[-1].seq


@pytest.mark.parametrize(
    "change", ["signal = x'00'", "signal = 'other'", "body = 'text'", "id = -4", f"id = {2**63 - 1}"]
)
def test_a_request_that_no_service_wrote_costs_itself_alone(tmp_path: Path, change: str) -> None:
    path = tmp_path / "journal.db"
    left_by_the_first_form(path, 6)
    execute(path, f"UPDATE journal SET {change} WHERE id = 4")

    again: Journal[str] = Journal(path, Receiver())

    assert [entry.id for entry in again.leftover()] == [2, 3, 5, 6]
    assert again.damage.startswith("The journal was damaged: 4 requests could be read and are taken up")
    again.close()


@pytest.mark.parametrize("ids", ["'many', 0", "-1, 0", "1, x'00'", "9223372036854775807, 0"])
def test_ids_that_no_service_gave_are_damage_and_no_request_is_lost_by_it(tmp_path: Path, ids: str) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    last = append(journal, b"x").result(10)
    journal.close()
    execute(path, "DELETE FROM ids")
    execute(path, f"INSERT INTO ids VALUES ({ids})")

    again = started(path, Receiver())

    assert [entry.id for entry in again.leftover()] == [last]
    assert "journal.db.damaged-1" in again.damage
    assert append(again, b"new").result(10) > last
    again.close()


@given(st.binary(min_size=1, max_size=60), st.binary(max_size=20), st.floats(0, 1, exclude_max=True))
def test_a_packed_row_is_read_whole_or_refused(content: bytes, dictionary: bytes, share: float) -> None:
    row = packed(content, dictionary)

    assert unpacked(row, dictionary) == content
    with pytest.raises(zlib.error):
        unpacked(row[: int(share * len(row))], dictionary)


def test_the_size_of_a_run_is_what_its_records_take_and_less_once_they_are_forgotten(tmp_path: Path) -> None:
    with closing(Outbox(tmp_path / "run.db")) as outbox:
        empty = outbox.size()
        outbox.commit(Commit([Text(seq, 0.0, "log", None, None, "x" * 10_000) for seq in range(1, 101)]))
        full = outbox.size()

        outbox.forget(100)

        assert 1_000_000 < full - empty < 1_500_000
        assert outbox.size() - empty < 100_000
