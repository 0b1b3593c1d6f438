"""A spool that the program, another process or a person closes, deletes, moves or cuts."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_ml._internal.transport.recover_spools import recover_spools
from otel_ml._internal.transport.spool import Lost, Spool
from otel_ml.wire.spool_format import Frame, read_spool
from tests.unit.otel_ml.spool.spool_files import Taking, files, on_disk
from tests.waiting import eventually


def descriptor_of(folder: Path) -> int:
    """Return the number under which this process has the spool's file open."""
    [path] = files(folder)
    is_it = (int(one.name) for one in Path("/proc/self/fd").iterdir() if one.exists() and one.resolve() == path)
    return next(is_it)


def test_a_file_that_the_program_has_closed_is_opened_again(spool: Spool, tmp_path: Path, said: list[str]) -> None:
    spool.append(Frame("M", b"before", 1))

    os.close(descriptor_of(tmp_path))
    spool.append(Frame("M", b"after", 1))

    assert [held.payload() for held in spool.pending] == [b"before", b"after"]
    assert [frame.payload for frame in read_spool(files(tmp_path)[0]).frames] == [b"before", b"after"]
    assert said == []


def test_a_file_of_the_program_that_got_its_number_is_neither_written_to_nor_closed(
    spool: Spool, tmp_path: Path
) -> None:
    spool.append(Frame("M", b"before", 1))
    number = descriptor_of(tmp_path)
    with (tmp_path / "theirs").open("w+b", buffering=0) as theirs:
        os.dup2(theirs.fileno(), number)

        spool.append(Frame("M", b"after", 1))
        spool.acknowledge(2)
        spool.close()

        assert theirs.read() == b""
        assert os.fstat(number).st_ino == os.fstat(theirs.fileno()).st_ino
        os.close(number)


@pytest.mark.parametrize("notices", ["as it writes", "as it reads"])
def test_what_another_process_has_sent_while_the_program_had_closed_the_file_is_not_lost(
    spool: Spool, tmp_path: Path, said: list[str], notices: str
) -> None:
    lost: list[Lost] = []
    spool.on_lost = lost.append
    spool.append(Frame("M", b"first", 1), [("step", 1, 1)])
    spool.append(Frame("L", b"event"))
    receiver = Taking()

    os.close(descriptor_of(tmp_path))
    assert recover_spools(tmp_path, receiver, time.monotonic() + 10, lambda *_: None)
    if notices == "as it reads":
        with pytest.raises(OSError, match="writer") as found:
            spool.pending[0].payload()
        spool.give_up_unreadable(found.value)
    spool.append(Frame("M", b"next", 4))

    assert b"first" in receiver.taken
    assert b"event" in receiver.taken
    assert [frame.payload() for frame in spool.pending] == [b"next"]
    assert [(one.points, one.steps, sum(one.frames.values())) for one in lost] == [
        (0, [], 0)
    ]  # a request is formed anew
    assert said == []


def test_what_another_process_is_sending_while_the_program_had_closed_the_file_is_not_sent_twice(
    spool: Spool, tmp_path: Path
) -> None:
    spool.append(Frame("M", b"first", 1))
    [path] = files(tmp_path)
    number = descriptor_of(tmp_path)

    with path.open("rb") as sending, ThreadPoolExecutor(1) as background:
        os.close(number)
        fcntl.flock(sending, fcntl.LOCK_EX)
        reading = background.submit(spool.pending[0].payload)
        eventually(lambda: len(opened_on(path)) == 2)  # it waits for the lock
        path.unlink()
        fcntl.flock(sending, fcntl.LOCK_UN)

        with pytest.raises(FileNotFoundError):
            reading.result()


def opened_on(path: Path) -> list[Path]:
    """Return the descriptors of this process that are open on a file."""
    return [one for one in Path("/proc/self/fd").iterdir() if one.exists() and one.resolve() == path]


def test_what_another_program_has_cut_off_is_lost_and_counted_and_what_follows_is_kept(
    spool: Spool, tmp_path: Path, said: list[str]
) -> None:
    lost: list[Lost] = []
    spool.on_lost = lost.append
    spool.append(Frame("M", b"whole", 1), [("step", 1, 1)])
    whole = files(tmp_path)[0].stat().st_size
    spool.append(Frame("M", b"half", 2), [("step", 2, 2)])
    spool.append(Frame("L", b"event"))
    os.truncate(files(tmp_path)[0], whole + 3)

    spool.give_up_unreadable(OSError("cut"))
    spool.append(Frame("M", b"next", 4))

    assert [held.payload() for held in spool.pending] == [b"whole", b"next"]
    assert [(one.reason, one.points, one.steps, dict(one.frames)) for one in lost] == [
        ("spool_unreadable", 2, [("step", 2, 2)], {"M": 1, "L": 1})
    ]
    assert said == ["What was kept to be sent cannot be read again (cut); it is lost."]


def deleted(folder: Path) -> None:
    shutil.rmtree(folder)


def moved_away(folder: Path) -> None:
    folder.rename(folder.with_name("away"))


def replaced_by_a_file(folder: Path) -> None:
    moved_away(folder)
    folder.write_text("in the way")


@pytest.mark.parametrize("away", [deleted, moved_away])
def test_a_spool_that_others_delete_or_move_is_written_anew(
    tmp_path: Path, said: list[str], away: Callable[[Path], None]
) -> None:
    folder = tmp_path / "run" / "spool"
    spool = Spool(folder, "writer", b"resource", limit=2**20, say=lambda _slug, sentence: said.append(sentence))
    spool.append(Frame("M", b"before", 1))
    away(folder)

    spool.append(Frame("M", b"after", 2))
    spool.append(Frame("M", b"later", 4))

    assert on_disk(folder) == [b"before", b"after", b"later"]
    assert [held.payload() for held in spool.pending] == [b"before", b"after", b"later"]
    assert said == []  # nothing is lost
    spool.acknowledge(2)
    assert [held.payload() for held in spool.pending] == [b"later"]
    assert not spool.secure().frames


def test_one_of_many_files_that_is_deleted_is_written_anew_in_its_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "writer", b"resource", limit=2**20, say=lambda *_: None)
    payloads = [bytes([number]) * 300_000 for number in range(3)]  # a file each
    for payload in payloads:
        spool.append(Frame("M", payload, 1))
    files(tmp_path)[1].unlink()

    spool.append(Frame("M", b"last", 1))

    assert sorted(on_disk(tmp_path)) == sorted([*payloads, b"last"])
    for _ in range(3):
        assert [held.payload() for held in spool.pending] == [*payloads, b"last"][-len(spool.pending) :]
        spool.acknowledge(1)
    assert set(on_disk(tmp_path)) <= {b"last"} | set(payloads[2:])


def test_what_lies_where_no_file_can_be_written_is_told_from_what_the_disk_has(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spool = Spool(folder, "writer", b"resource", limit=2**20, say=lambda *_: None)
    spool.append(Frame("M", b"before", 1), [("step", 1, 1)])
    assert not spool.secure().frames
    replaced_by_a_file(folder)

    spool.append(Frame("M", b"after", 2), [("step", 2, 2)])
    gone = spool.secure()

    assert (gone.points, gone.steps) == (3, [("step", 1, 1), ("step", 2, 2)])
    assert [held.payload() for held in spool.pending] == [b"before", b"after"]
    folder.unlink()
    assert not spool.secure().frames
    assert on_disk(folder) == [b"before", b"after"]


def test_a_file_that_others_cut_gets_nothing_more_and_what_it_had_is_counted(tmp_path: Path, said: list[str]) -> None:
    lost: list[Lost] = []
    spool = Spool(tmp_path, "writer", b"resource", limit=2**20, say=lambda _slug, sentence: said.append(sentence))
    spool.on_lost = lost.append
    spool.append(Frame("M", b"before", 1), [("step", 1, 1)])
    os.truncate(files(tmp_path)[0], 0)

    for number in range(100):
        spool.append(Frame("M", b"after %d" % number, 1))

    assert [(one.reason, one.points, one.steps) for one in lost] == [("spool_unreadable", 1, [("step", 1, 1)])]
    assert on_disk(tmp_path) == [b"after %d" % number for number in range(100)]
    assert len(said) == 1


def test_a_folder_in_which_nothing_can_be_removed_costs_no_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, "writer", b"resource", limit=2**20, say=lambda *_: None)
    for number in range(3):
        spool.append(Frame("M", bytes([number]) * 300_000, 1))  # a file each

    def refused(self: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refused)  # a folder that was made read-only, as a user who is not root
    spool.acknowledge(2)

    assert [held.payload() for held in spool.pending] == [b"\x02" * 300_000]
    assert on_disk(tmp_path) == [b"\x02" * 300_000]


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Do as a program that has given up its rights, as a daemon does: nobody lets it look into `folder`."""
    user, mode = os.geteuid(), folder.stat().st_mode
    folder.chmod(0)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(mode)


def test_a_program_that_gives_up_its_rights_loses_only_what_its_open_file_has_no_room_for(
    tmp_path: Path, said: list[str]
) -> None:
    folder = tmp_path / "spool"
    spool = Spool(folder, "writer", b"resource", limit=2**20, say=lambda _slug, sentence: said.append(sentence))
    spool.append(Frame("M", b"before", 1), [("step", 1, 1)])
    large = bytes(300_000)  # more than a file

    with without_rights(folder):
        spool.append(Frame("M", large, 2), [("step", 2, 2)])
        assert said == []
        assert not spool.secure().frames

        spool.append(Frame("M", b"beyond", 4), [("step", 3, 4)])
        gone = spool.secure()

    assert (gone.points, gone.steps) == (4, [("step", 3, 4)])
    assert len(said) == 1
    assert on_disk(folder) == [b"before", large]
    assert not spool.secure().frames
    assert on_disk(folder) == [b"before", large, b"beyond"]
