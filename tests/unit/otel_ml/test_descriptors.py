"""What cannot be written, locked or read costs a message, and neither a descriptor nor a file that is left behind."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from otel_ml._internal.transport.spool import Spool
from otel_ml.diagnostics.hardware.election import Election, HostFolder
from otel_ml.diagnostics.hardware.process_memory import Statm
from otel_ml.wire.rendezvous import Rendezvous, Service
from otel_ml.wire.spool_format import Frame, read_spool
from tests.full_disk import no_file_larger_than


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def spool_in(folder: Path) -> Spool:
    return Spool(folder, "writer", b"the resource", limit=2**20, say=lambda _slug, _sentence: None)


@pytest.mark.parametrize("room", [0, 5], ids=["no byte", "a few bytes"])
def test_a_disk_that_stays_full_costs_no_descriptor_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr("otel_ml._internal.transport.spool.DISK_AGAIN_S", 0.0)
    spool = spool_in(tmp_path)
    before = descriptors()
    with no_file_larger_than(room):
        for number in range(20):
            spool.append(Frame("M", b"%d" % number, 1))
        during, left = descriptors(), list(tmp_path.iterdir())
    spool.append(Frame("M", b"20", 1))

    assert (during, left) == (before, [])
    [path] = tmp_path.iterdir()
    assert [frame.payload for frame in read_spool(path).frames] == [b"%d" % number for number in range(21)]


def lock_of_a_spool(folder: Path) -> None:
    spool_in(folder).append(Frame("M", b"", 1))


def lock_of_a_service(folder: Path) -> None:
    Rendezvous(folder / "otel-ml-0" / "run").acquire()


def lock_of_a_sampler(_: Path) -> None:
    Election(HostFolder("one"), "gpu").is_won()


def test_a_sampler_whose_lock_was_made_anew_takes_that_one_and_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = HostFolder("one")
    mine = Election(folder, "gpu")
    assert mine.is_won()
    before = descriptors()
    for _ in range(3):
        (folder.path / "gpu.lock").rename(folder.path / "removed")
        (folder.path / "gpu.lock").touch()
        assert mine.is_won()

    assert descriptors() == before
    assert not Election(folder, "gpu").is_won()
    mine.release()


def test_a_sampler_whose_lock_the_program_has_closed_takes_it_again_and_leaves_what_has_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = HostFolder("one")
    mine = Election(folder, "gpu")
    assert mine.is_won()
    [number] = [int(path.name) for path in Path("/proc/self/fd").iterdir() if is_link_to(path, folder.path)]
    with (tmp_path / "of the program").open("wb") as own:
        os.dup2(own.fileno(), number)  # closes the lock, and opens another file of its number

        assert mine.is_won()
        assert not Election(folder, "gpu").is_won()
        assert is_link_to(Path(f"/proc/self/fd/{number}"), tmp_path / "of the program")
        os.close(number)
    mine.release()


def is_link_to(link: Path, path: Path) -> bool:
    with suppress(OSError):
        return link.readlink().is_relative_to(path)
    return False


@pytest.mark.parametrize("use", [lock_of_a_spool, lock_of_a_service, lock_of_a_sampler], ids=lambda use: use.__name__)
def test_a_file_system_without_locks_costs_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], None]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", refuse)
    before = descriptors()
    for _ in range(5):
        with suppress(OSError):
            use(tmp_path)

    assert descriptors() == before


def test_a_service_that_cannot_be_announced_leaves_no_file(tmp_path: Path) -> None:
    rendezvous = Rendezvous(tmp_path / "otel-ml-0" / "run")
    rendezvous.create()
    before, there = descriptors(), set(rendezvous.folder.iterdir())
    with no_file_larger_than(0), pytest.raises(OSError, match="too large"):
        rendezvous.publish(Service("http://127.0.0.1:1", "token", 1, "runs/one"))

    assert (descriptors(), set(rendezvous.folder.iterdir())) == (before, there)


def test_numbers_of_the_kernel_that_cannot_be_read_cost_no_descriptor(tmp_path: Path) -> None:
    statm = Statm(str(tmp_path))  # a folder opens, and does not read
    before = descriptors()
    with pytest.raises(IsADirectoryError):
        statm.read()

    assert descriptors() == before
