from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otel_ml_service.demo.digits import batches, held_out_set, save_digits, training_set


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    save_digits(folder)
    return folder


def test_every_digit_is_in_one_of_the_sets(digits: Path) -> None:
    assert len(training_set(digits).labels) + len(held_out_set(digits).labels) == 1797


def test_ranks_get_disjoint_shares_of_every_batch_of_an_epoch(digits: Path) -> None:
    data = training_set(digits)
    numbered = type(data)(np.arange(len(data.labels), dtype=np.float32)[:, None], data.labels)
    streams = [batches(numbered, rank=rank, world_size=4, batch_size=32, steps=11, seed=3) for rank in range(4)]

    for shares in zip(*streams, strict=True):
        images = np.concatenate([share.images for share in shares])
        assert len(np.unique(images)) == 128


def test_an_epoch_shows_every_digit_once(digits: Path) -> None:
    data = training_set(digits)
    numbered = type(data)(np.arange(len(data.labels), dtype=np.float32)[:, None], data.labels)
    steps = len(data.labels) // 32

    seen = np.concatenate(
        [b.images for b in batches(numbered, rank=0, world_size=1, batch_size=32, steps=steps, seed=3)]
    )

    assert len(np.unique(seen)) == steps * 32
