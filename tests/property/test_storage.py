"""The two databases of the service against lists and dictionaries, whatever is done to them, however often opened."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from otel_ml_exporters import Record, StepRecord, Text
from otel_ml_service.storage.checksum import ONE_BY_ONE
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.journal import Committed, Entry, Journal
from otel_ml_service.storage.outbox import Commit, Outbox

LARGE = 3 * 2**20
"""Bytes of a text: three of them are more than is kept in memory."""

TORN = b"\xff\xfejrM" + bytes(4096)
"""The end of a journal's file whose host lost its power."""

sizes = st.lists(st.sampled_from([1, 10, 100, LARGE]), max_size=4)
keys = st.sampled_from(["a", "b", "disj", f"{ONE_BY_ONE}1", f"{ONE_BY_ONE}2", "dist", "z"])
changes = st.dictionaries(keys, st.none() | st.binary(max_size=20), max_size=4)
sentences = st.lists(st.sampled_from(["Rank 3 is quiet.", "It is back.", "A disk is full."]), max_size=3)
losses = st.dictionaries(st.sampled_from(["bad", "worse"]), st.integers(1, 9))
names = st.sampled_from(["jsonl", "wandb/a"])


class AnOutbox(RuleBasedStateMachine):
    """`run.db`: committed, forgotten, closed and opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "state" / "run.db"
        self.outbox = Outbox(self.path)
        self.heard = 0
        self.records: list[Record] = []
        self.first = 1
        self.state: dict[str, bytes] = {}
        self.notices: list[str] = []
        self.marks: dict[str, Mark] = {}
        self.unsaved: set[str] = set()
        self.consumed: tuple[str, int] | None = None

    @initialize()
    def listen(self) -> None:
        self.outbox.subscribe("replaced", lambda: self.hear(1000))
        self.outbox.subscribe("replaced", lambda: self.hear(1))

    def hear(self, count: int) -> None:
        self.heard += count

    @rule(sizes=sizes, changes=changes, notices=sentences, consumed=st.none() | st.integers(0, 99))
    def commit(
        self, sizes: list[int], changes: dict[str, bytes | None], notices: list[str], consumed: int | None
    ) -> None:
        last, heard = self.outbox.last_seq, self.heard
        records: list[Record] = [
            StepRecord(seq, "", "step", seq, 0, 0.5, {"x": size / 3}) if size < LARGE
            else Text(seq, 0.5, "text", "step", seq, "x" * size)
            for seq, size in enumerate(sizes, start=last + 1)
        ]  # fmt: skip
        self.records += records
        self.state = {key: value for key, value in {**self.state, **changes}.items() if value is not None}
        self.notices = list(dict.fromkeys([*self.notices, *notices]))
        where = None if consumed is None else ("journal-1", consumed)
        self.consumed = where or self.consumed

        self.outbox.commit(Commit(records, changes, where, notices))

        self.unsaved.clear()
        assert self.heard == heard + bool(records)

    @rule(
        name=names, seq=st.integers(0, 50), lost=st.dictionaries(st.sampled_from(["bad", "worse"]), st.integers(1, 9))
    )
    def mark(self, name: str, seq: int, lost: dict[str, int]) -> None:
        self.marks[name] = Mark(seq, lost)
        self.unsaved.add(name)
        self.outbox.set_mark(name, Mark(seq, lost))

    @precondition(lambda self: self.outbox.last_seq > self.first)
    @rule(share=st.floats(0, 1))
    def forget(self, share: float) -> None:
        up_to = self.first - 1 + int(share * (self.outbox.last_seq - self.first))
        self.records = [record for record in self.records if record.seq > up_to]
        self.first = up_to + 1
        self.outbox.forget(up_to)

    @rule()
    def open_again(self) -> None:
        self.outbox.close()
        self.outbox.close()
        self.unsaved.clear()
        self.outbox = Outbox(self.path)
        self.listen()

    @rule()
    def lose_the_file(self) -> None:
        assert self.outbox.is_intact
        self.path.unlink()
        assert not self.outbox.is_intact
        self.outbox.write_anew()
        assert self.outbox.is_intact

    @invariant()
    def has_what_it_was_given(self) -> None:
        last = self.records[-1].seq if self.records else 0
        assert (self.outbox.first_seq, self.outbox.last_seq) == (self.first, last)
        for after in {0, self.first - 1, self.first, last - 1, last, (self.first + last) // 2}:
            for limit in (1, 2, 50):
                expected = [record for record in self.records if record.seq > after][:limit]
                assert self.outbox.read(max(0, after), limit) == expected

    @invariant()
    def knows_what_it_was_told(self) -> None:
        assert self.outbox.state() == {k: v for k, v in self.state.items() if not k.startswith(ONE_BY_ONE)}
        for key in ("a", "z", f"{ONE_BY_ONE}1"):
            assert self.outbox.entry(key) == self.state.get(key)
        assert self.outbox.notices == self.notices
        assert {name: self.outbox.mark(name) for name in self.marks} == self.marks
        assert self.outbox.mark("another") == Mark()
        assert (self.outbox.consumed, self.outbox.unsaved) == (self.consumed, bool(self.unsaved))
        assert (self.outbox.damage, self.outbox.base) == ("", 0)

    def teardown(self) -> None:
        self.outbox.close()
        self.folder.cleanup()


class AJournal(RuleBasedStateMachine):
    """`journal.db` and its files: appended to from many threads' requests, dropped from, closed and opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "journal.db"
        self.entries: list[Entry] = []
        self.dropped = 0
        self.handed_on: list[Committed[object]] = []
        self.highest = 0
        self.begin()
        self.identity = self.journal.identity

    def begin(self) -> None:
        self.journal: Journal[object] = Journal(self.path, self.handed_on.extend)
        kept = [entry for entry in self.entries if entry.id > self.dropped]
        assert self.journal.leftover() == kept
        assert not self.journal.leftover()
        assert self.journal.damage == ""
        self.entries = kept
        self.journal.start()

    @rule(bodies=st.lists(st.binary(max_size=20), min_size=1, max_size=6), signal=st.sampled_from(["metrics", "logs"]))
    def append(self, bodies: list[bytes], signal: str) -> None:
        before = len(self.handed_on)
        answers: list[Future[int]] = [Future() for _ in bodies]
        for body, answer in zip(bodies, answers, strict=True):
            self.journal.append(signal, body, [body], told(answer))
        ids = [answer.result(20) for answer in answers]

        assert ids == list(range(self.highest + 1, self.highest + 1 + len(ids)))
        handed_on = self.handed_on[before:]
        assert [(one.id, one.payload, self.journal.body(one.id, one.place)) for one in handed_on] == [
            (number, [body], body) for number, body in zip(ids, bodies, strict=True)
        ]
        self.highest = ids[-1]
        self.entries += [Entry(number, signal, body) for number, body in zip(ids, bodies, strict=True)]

    @rule(share=st.floats(0, 1))
    def drop(self, share: float) -> None:
        up_to = int(share * self.highest)
        self.dropped = max(self.dropped, up_to)
        self.journal.drop(up_to)

    @rule()
    def open_again(self) -> None:
        self.journal.close()
        self.journal.close()
        refused: list[object] = []
        self.journal.append("metrics", b"", [], refused.append)
        assert [type(answer) for answer in refused] == [StorageError]
        self.begin()
        assert self.journal.identity == self.identity

    @rule(database=st.booleans(), files=st.booleans(), is_used=st.booleans())
    def lose(self, database: bool, files: bool, is_used: bool) -> None:
        lost = [*([self.path] if database else []), *(self.path.parent.glob("journal-*.log") if files else [])]
        for path in lost:
            path.unlink()
        if is_used:
            self.append([b"the next one"], "metrics")
        else:
            self.open_again()

    @rule()
    def leave_an_end_that_is_torn(self) -> None:
        self.journal.close()
        for path in self.path.parent.glob("journal-*.log"):
            if not path.read_bytes().endswith(TORN):  # nothing comes behind it
                with path.open("ab") as file:
                    file.write(TORN)
        self.begin()

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()


def told(answer: Future[int]) -> Callable[[int | StorageError], None]:
    return lambda result: (
        answer.set_exception(result) if isinstance(result, StorageError) else answer.set_result(result)
    )


TestAnOutbox = AnOutbox.TestCase
TestAnOutbox.settings = settings(max_examples=15, stateful_step_count=12)
TestAJournal = AJournal.TestCase
TestAJournal.settings = settings(max_examples=25, stateful_step_count=12)
