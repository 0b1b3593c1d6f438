from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otel_ml_service.demo.digits import batches, held_out_set, montage, save_digits, training_set


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


def test_images_stand_side_by_side_each_pixel_as_a_square_of_four() -> None:
    images = np.zeros((3, 64), dtype=np.float32)
    images[2, 0] = 1.0
    images[1, 63] = 0.5

    picture = montage(images)

    assert picture.shape == (70, 70)
    assert sorted(np.unique(picture)) == [0, 127, 255]
    assert (picture[36:40, 2:6] == 255).all()
    assert (picture[30:34, 64:68] == 127).all()
    assert (picture > 0).sum() == 32
    assert montage(images[:0]).shape == (36, 36)


def test_a_rank_takes_every_fourth_image_of_a_batch_and_an_epoch_ends_before_the_next_one_begins(digits: Path) -> None:
    data = training_set(digits)
    numbered = type(data)(np.arange(10, dtype=np.float32)[:, None], np.arange(10))

    ranks = [
        [batch.labels.tolist() for batch in batches(numbered, rank=rank, world_size=2, batch_size=3, steps=5, seed=3)]
        for rank in range(2)
    ]

    joint = [[image for pair in zip(*pairs, strict=True) for image in pair] for pairs in zip(*ranks, strict=True)]
    order = [image for batch in joint for image in batch]
    shuffle = np.random.default_rng(3)
    assert order == np.concatenate([shuffle.permutation(10) for _ in range(3)]).tolist()[:30]


def test_pixels_are_from_0_to_1(digits: Path) -> None:
    images = np.concatenate([training_set(digits).images, held_out_set(digits).images])

    assert (images.min(), images.max()) == (0.0, 1.0)
