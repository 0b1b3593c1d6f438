from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from otel_ml_exporters.demo.averaging import Averaging


def test_every_rank_gets_the_same_mean() -> None:
    def rank(folder: Path, number: int) -> bytes:
        with Averaging(folder, number, 4) as averaging:
            return averaging.mean(np.full(1000, number + 0.1, dtype=np.float32)).tobytes()

    # A short folder: the address of a Unix socket has at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="avg-") as name, ThreadPoolExecutor(4) as ranks:
        means = list(ranks.map(lambda number: rank(Path(name), number), range(4)))

    assert len(set(means)) == 1
    assert np.allclose(np.frombuffer(means[0], dtype=np.float32), 1.6)
