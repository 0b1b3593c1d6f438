from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from otel_ml._internal.error_reporting import ErrorReporter
from otel_ml._internal.transport.answer import Answer
from otel_ml._internal.transport.recover_spools import recover_spools
from otel_ml._internal.transport.spool import Lost, Spool
from otel_ml._internal.transport.spool_overflow import SpoolOverflow
from otel_ml.wire.attributes import LEFT_FOR
from otel_ml.wire.spool_format import FRAME, Frame, read_spool
from tests.waiting import eventually


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def spool(tmp_path: Path, said: list[str]) -> Spool:
    return Spool(tmp_path, "writer", b"resource", limit=64 * 1024, say=lambda _slug, sentence: said.append(sentence))


class Taking:
    """A receiver that takes everything."""

    def __init__(self) -> None:
        self.taken = b""

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        del path, timeout
        self.taken += body
        return Answer("ok")


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spool"))


def test_what_is_appended_is_read_back_from_the_file(spool: Spool, tmp_path: Path) -> None:
    spool.append(Frame("M", b"metrics", 3))
    spool.append(Frame("L", b"event"))

    found = read_spool(files(tmp_path)[0])

    assert found.resource.startswith(b"resource")
    assert LEFT_FOR.encode() in found.resource
    assert found.frames == (Frame("M", b"metrics", 3), Frame("L", b"event"))


def test_frames_that_are_appended_together_are_read_back_one_by_one(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "writer", b"resource", limit=2**20, say=lambda _slug, _sentence: None)
    small, large = [Frame("M", b"m" * size, size) for size in (1, 20)], Frame("S", bytes(70 * 1024))
    together = [(small[0], [("step", 1, 1)]), (large, ()), (small[1], [("step", 2, 20)]), (Frame("L", b"event"), ())]

    spool.extend(together)

    assert [held.payload() for held in spool.pending] == [frame.payload for frame, _ in together]
    assert [held.steps for held in spool.pending] == [steps for _, steps in together]
    spool.acknowledge(3)
    assert [held.payload() for held in spool.pending] == [b"event"]


def test_acknowledged_frames_leave_the_file(spool: Spool, tmp_path: Path) -> None:
    spool.append(Frame("M", b"first"))
    spool.append(Frame("M", b"second"))

    spool.acknowledge(2)

    assert read_spool(files(tmp_path)[0]).frames == ()
    assert not spool.pending


def test_frames_that_are_not_acknowledged_with_their_neighbours_keep_their_order_and_the_file(
    spool: Spool, tmp_path: Path
) -> None:
    for kind, payload in (("S", b"1"), ("M", b"2"), ("S", b"3"), ("M", b"4")):
        spool.append(Frame(kind, payload))  # type: ignore[arg-type]

    spool.acknowledge(3, but="S")

    assert [frame.payload() for frame in spool.pending] == [b"1", b"3", b"4"]
    assert {b"1", b"3", b"4"} <= {frame.payload for frame in read_spool(files(tmp_path)[0]).frames}
    spool.acknowledge(3)
    assert read_spool(files(tmp_path)[0]).frames == ()


def test_what_follows_an_acknowledgement_is_still_readable(spool: Spool, tmp_path: Path) -> None:
    spool.append(Frame("M", b"first"))
    spool.acknowledge(1)
    spool.append(Frame("M", b"second"))

    assert [frame.payload() for frame in spool.pending] == [b"second"]
    assert read_spool(files(tmp_path)[0]).frames == (Frame("M", b"second"),)


def test_a_file_cut_inside_a_frame_keeps_what_was_before(spool: Spool, tmp_path: Path) -> None:
    spool.append(Frame("M", b"whole"))
    spool.append(Frame("M", b"cut off"))
    path = files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-3])

    assert read_spool(path).frames == (Frame("M", b"whole"),)


def test_a_damaged_frame_is_left_out_and_counted_and_costs_none_of_its_neighbors(spool: Spool, tmp_path: Path) -> None:
    for payload in (b"before", b"damaged", b"after"):
        spool.append(Frame("M", payload, 1))
    path = files(tmp_path)[0]
    path.write_bytes(path.read_bytes().replace(b"damaged", b"dAmaged"))

    found = read_spool(path)

    assert [frame.payload for frame in found.frames] == [b"before", b"after"]
    assert found.damaged == len(b"damaged") + FRAME.size
    path.write_bytes(path.read_bytes() + bytes(4096))  # as after a loss of power
    assert read_spool(path) == found._replace(resource=read_spool(path).resource)
    path.write_bytes(path.read_bytes() + b"x" * 100)
    assert read_spool(path).damaged > found.damaged + 100


def test_of_a_damaged_spool_the_rest_is_sent_and_it_is_kept_and_reported(
    spool: Spool, tmp_path: Path, said: list[str]
) -> None:
    for payload in (b"before", b"damaged", b"after"):
        spool.append(Frame("M", payload, 1))
    path = files(tmp_path)[0]
    spool.close()
    damaged = path.read_bytes().replace(b"damaged", b"dAmaged")
    path.write_bytes(damaged)
    transport = Taking()

    assert recover_spools(tmp_path, transport, time.monotonic() + 60, lambda _slug, sentence: said.append(sentence))

    assert b"before" in transport.taken
    assert b"after" in transport.taken
    assert files(tmp_path) == []
    [kept] = tmp_path.glob("*.unreadable")
    assert kept.read_bytes() == damaged
    [sentence] = said
    assert f"{len(b'damaged') + FRAME.size} bytes of {str(kept)!r} are damaged" in sentence


def test_a_full_spool_drops_the_oldest_and_tells_which_steps(spool: Spool) -> None:
    lost: list[Lost] = []
    spool.on_lost = lost.append

    for step in range(100):
        spool.append(Frame("M", bytes(2048), 7), [("step", step, 7)])

    assert spool.size <= 64 * 1024
    dropped = [step for one in lost for step in one.steps]
    assert dropped == [("step", step, 7) for step in range(len(dropped))]
    assert sum(one.points for one in lost) == 7 * len(dropped)
    assert len(spool.pending) + len(dropped) == 100


@pytest.mark.parametrize(("endpoint", "variable"), [("", ""), ("http://gateway:4318", "OTEL_EXPORTER_OTLP_ENDPOINT")])
def test_a_file_says_where_its_writer_sent_to_and_nothing_of_that_is_sent(
    tmp_path: Path, endpoint: str, variable: str
) -> None:
    spool = Spool(
        tmp_path, "writer", b"resource", limit=2**20, say=lambda *_: None, endpoint=endpoint, variable=variable
    )
    spool.append(Frame("M", b"first", 1))
    [path] = tmp_path.iterdir()

    left = read_spool(path)

    assert (left.endpoint, left.variable) == (endpoint, variable)
    assert left.resource.startswith(b"resource")
    assert b"gateway" not in left.resource
    assert left.frames == (Frame("M", b"first", 1),)
    spool.acknowledge(1)
    assert read_spool(path) == left._replace(frames=(), resource=read_spool(path).resource)  # the head stays
    spool.delete()


def test_a_folder_that_cannot_be_written_keeps_frames_in_memory_and_says_so(said: list[str]) -> None:
    spool = Spool(
        Path("/proc/nowhere"), "writer", b"resource", limit=64 * 1024, say=lambda _slug, sentence: said.append(sentence)
    )

    spool.append(Frame("M", b"first"))
    spool.append(Frame("M", b"second"))

    assert [frame.payload() for frame in spool.pending] == [b"first", b"second"]
    assert len(said) == 1
    assert "kept in memory" in said[0]


def test_a_folder_that_can_be_written_again_gets_what_was_in_memory(tmp_path: Path, said: list[str]) -> None:
    folder = tmp_path / "spool"
    folder.write_text("in the way")
    spool = Spool(folder, "writer", b"resource", limit=64 * 1024, say=lambda _slug, sentence: said.append(sentence))
    spool.append(Frame("M", b"first", 1))
    folder.unlink()

    def is_on_disk() -> bool:
        spool.append(Frame("M", b"more", 1))
        return bool(files(folder))

    eventually(is_on_disk)

    assert read_spool(files(folder)[0]).frames[0] == Frame("M", b"first", 1)
    on_disk = [frame.payload for frame in read_spool(files(folder)[0]).frames]
    assert [frame.payload() for frame in spool.pending] == on_disk
    spool.acknowledge(len(spool.pending))
    assert read_spool(files(folder)[0]).frames == ()


def test_deleting_leaves_no_file(spool: Spool, tmp_path: Path) -> None:
    spool.append(Frame("M", b"x"))

    spool.delete()

    assert files(tmp_path) == []


def test_a_live_writer_locks_its_file_and_a_closed_one_does_not(spool: Spool, tmp_path: Path) -> None:
    spool.append(Frame("M", b"x"))
    path = files(tmp_path)[0]
    probe = f"import fcntl; fcntl.flock(open({str(path)!r}, 'rb'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    while_live = subprocess.run([sys.executable, "-c", probe], capture_output=True)
    spool.close()
    after = subprocess.run([sys.executable, "-c", probe], capture_output=True)

    assert while_live.returncode != 0
    assert after.returncode == 0


def test_a_file_is_not_taken_for_a_dead_writers_before_its_writer_has_locked_it(tmp_path: Path) -> None:
    """Somebody looks for files of the dead all the time, and removes what he can lock."""
    stopping = threading.Event()

    def look() -> None:
        while not stopping.is_set():
            for path in files(tmp_path):
                with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as found:
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for number in range(1000):
            spool = Spool(tmp_path, f"writer{number}", b"resource", limit=2**20, say=lambda *_: None)
            spool.append(Frame("M", b"metrics", 1))
            assert files(tmp_path), number
            spool.delete()
    finally:
        stopping.set()
        thread.join()


def test_events_and_spans_that_a_full_spool_drops_are_counted_as_points_are(spool: Spool) -> None:
    reporter, lost = ErrorReporter(), []
    losses = SpoolOverflow(reporter)
    spool.on_lost = lambda gone: (lost.append(gone), losses.add(gone))
    for frame in (Frame("L", bytes(9_000)), Frame("S", bytes(9_000)), Frame("M", bytes(9_000), 7)) * 5:
        spool.append(frame, [("step", 3, frame.points)] if frame.points else [])

    losses.settle()

    events, spans, points = (sum(gone.frames[kind] for gone in lost) for kind in "LSM")
    assert min(events, spans, points) > 0
    assert reporter.dropped == {"spool_full": 7 * points, "events_spool_full": events, "spans_spool_full": spans}
    [_, total] = reporter._kept
    said = f"{7 * points} points were dropped, of steps 3 to 3 of axis 'step', and {events} events."
    assert said in total


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


def on_disk(folder: Path) -> list[bytes]:
    return [frame.payload for path in files(folder) for frame in read_spool(path).frames]


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
