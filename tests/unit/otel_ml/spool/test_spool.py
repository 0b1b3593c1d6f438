"""What is in the spool is read back, whatever happens to its writer and to the disk."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from otel_ml._internal.error_reporting import ErrorReporter
from otel_ml._internal.transport.recover_spools import recover_spools
from otel_ml._internal.transport.spool import Lost, Spool
from otel_ml._internal.transport.spool_overflow import SpoolOverflow
from otel_ml.wire.attributes import LEFT_FOR
from otel_ml.wire.spool_format import FRAME, Frame, read_spool
from tests.full_disk import no_file_larger_than
from tests.unit.otel_ml.spool.spool_files import Taking, files
from tests.waiting import eventually


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
    again = read_spool(path)
    assert again == found._replace(resource=again.resource)  # which says how long ago it was left
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
    assert f"{len(b'damaged') + FRAME.size} B of {str(kept)!r} are damaged" in sentence


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


def test_a_file_that_may_not_grow_says_why_and_keeps_what_is_in_it(tmp_path: Path, said: list[str]) -> None:
    spool = Spool(tmp_path, "writer", b"resource", limit=2**20, say=lambda _slug, sentence: said.append(sentence))
    spool.append(Frame("M", b"first"))

    with no_file_larger_than(10_000):
        spool.append(Frame("M", b"x" * 20_000))

    assert [len(frame.payload()) for frame in spool.pending] == [5, 20_000]
    assert len(said) == 1
    assert "File too large" in said[0]
    assert [frame.payload for frame in read_spool(files(tmp_path)[0]).frames] == [b"first"]
    spool.close()


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
