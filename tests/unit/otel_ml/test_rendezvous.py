from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml._internal.transport.spool import Spool
from otel_ml.wire.rendezvous import Rendezvous, Service
from otel_ml.wire.spool import Frame


@pytest.fixture
def rendezvous(tmp_path: Path) -> Rendezvous:
    found = Rendezvous(tmp_path / "otel-ml-0" / "run")
    found.create()
    return found


def test_one_process_at_a_time_has_the_lock(rendezvous: Rendezvous) -> None:
    first = rendezvous.acquire()
    assert first is not None
    assert rendezvous.acquire() is None
    os.close(first)

    again = rendezvous.acquire()

    assert again is not None
    os.close(again)


def test_a_folder_in_which_nothing_is_left_is_removed(rendezvous: Rendezvous) -> None:
    os.close(rendezvous.acquire() or -1)

    assert rendezvous.remove()
    assert not rendezvous.folder.exists()


def _keep_a_spool(rendezvous: Rendezvous) -> object:
    return (rendezvous.spool / "writer-000000.spool").write_bytes(b"")


def _announce(rendezvous: Rendezvous) -> object:
    return rendezvous.publish(Service("http://127.0.0.1:1", "", 1, ""))


def _be_starting(rendezvous: Rendezvous) -> object:
    return rendezvous.acquire()


@pytest.mark.parametrize("use", [_keep_a_spool, _announce, _be_starting])
def test_a_folder_that_is_in_use_stays(rendezvous: Rendezvous, use: Callable[[Rendezvous], object]) -> None:
    use(rendezvous)

    assert not rendezvous.remove()
    assert rendezvous.folder.is_dir()


def test_the_lock_of_a_folder_that_was_removed_gives_no_right(rendezvous: Rendezvous) -> None:
    old = os.open(rendezvous.lock, os.O_RDWR | os.O_CREAT)
    assert rendezvous.remove()

    fresh = rendezvous.acquire()

    assert fresh is not None
    assert os.fstat(fresh).st_ino == rendezvous.lock.stat().st_ino
    os.close(old)
    os.close(fresh)


def test_a_worker_that_starts_while_the_folder_is_removed_keeps_its_spool_on_disk(rendezvous: Rendezvous) -> None:
    said: list[str] = []
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            rendezvous.remove()

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for number in range(2000):
            spool = Spool(
                rendezvous.spool,
                f"writer-{number}",
                b"resource",
                limit=2**20,
                say=lambda _slug, sentence: said.append(sentence),
            )
            spool.append(Frame("M", b"metrics"))
            assert list(rendezvous.spool.glob(f"writer-{number}-*.spool"))
            spool.delete()
    finally:
        stop.set()
        remover.join()

    assert said == []
