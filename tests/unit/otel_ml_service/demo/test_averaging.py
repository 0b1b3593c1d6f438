from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Timer

import numpy as np
import pytest

from otel_ml_service.demo.averaging import Averaging


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder: the address of a Unix socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="avg-") as name:
        yield Path(name)


def test_every_rank_gets_the_same_mean(folder: Path) -> None:
    def rank(number: int) -> bytes:
        with Averaging(folder, number, 4) as averaging:
            return averaging.mean(np.full(1000, number + 0.1, dtype=np.float32)).tobytes()

    with ThreadPoolExecutor(4) as ranks:
        means = list(ranks.map(rank, range(4)))

    assert len(set(means)) == 1
    assert np.allclose(np.frombuffer(means[0], dtype=np.float32), 1.6)


def test_a_rank_that_comes_between_bind_and_listen_waits(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "averaging.sock"))
        later = Timer(0.1, listener.listen)
        later.start()

        with Averaging(folder, 1, 2):
            accepted, _ = listener.accept()
        with Connection(accepted.detach()) as peer:
            assert peer.recv() == 1
        later.join()
