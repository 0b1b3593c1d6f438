"""The picture of ranks and steps, read back by a library that draws pictures."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from otel_ml_service.findings.heatmap import Heatmap


def test_the_slow_rank_is_the_hot_row_and_a_rank_without_a_timer_is_gray() -> None:
    heat = Heatmap()
    for step in range(64):
        heat.add(step, np.array([0.0, 1.5 if step >= 32 else 0.0, np.nan]))

    picture = heat.picture((0, 1, 2))

    assert picture is not None
    pixels = np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)
    assert pixels.shape[:2] == (picture.height, picture.width)
    row, column = picture.height // 3, picture.width // 64
    hot, cold = pixels[row + row // 2, -1], pixels[row // 2, -1]
    assert hot[0] > 200 > cold[0]
    assert (pixels[row + row // 2, column // 2] == cold).all()
    assert (pixels[-1, -1] == 120).all()
    assert "ranks 0 to 2" in picture.caption
    assert "steps 0 to 63" in picture.caption


def test_a_thousand_ranks_fit_and_none_is_hidden() -> None:
    heat, ranks = Heatmap(), 1000
    slowdowns = np.zeros(ranks)
    slowdowns[777] = 2.0
    heat.add(0, slowdowns)

    picture = heat.picture(tuple(range(ranks)))

    assert picture is not None
    assert picture.height <= 1024
    pixels = np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)
    assert (pixels[:, 0, 0] > 200).any()


def test_without_a_step_there_is_no_picture() -> None:
    assert Heatmap().picture((0, 1)) is None
