"""Clouds of points, their boxes, and what a table has in its cells are read back as W&B gives them."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture
from tests.unit.otel_ml.compat.recorded import events


@pytest.mark.parametrize("orientation", [(1, 0, 0, 0), (0.5, 0.1, 0.3, 0.2), (0, 0, 0, 2), (3, 1, 1, 0)])
def test_a_box_has_the_corners_that_wandb_gives_it(captured_wandb: Capture, orientation: tuple[float, ...]) -> None:
    from wandb.sdk.data_types.object_3d import box3d

    given: dict[str, Any] = {"center": (1, 2, 3), "size": (2, 4, 6), "orientation": orientation, "color": (1, 0, 0)}
    ours, theirs = wandb.box3d(**given, label="car", score=0.5), box3d(**given, label="car", score=0.5)

    np.testing.assert_allclose(ours["corners"], theirs["corners"], atol=1e-12)
    assert {**ours, "corners": 0} == {**theirs, "corners": 0}
    wandb.log({"cloud": wandb.Object3D.from_point_cloud(points=np.zeros((2, 3)), boxes=[ours])})
    kept = json.loads(events(captured_wandb, "artifact")["cloud"].body)
    assert len(kept["boxes"][0]["corners"]) == 8
    assert captured_wandb.notices == []


def test_a_box_is_turned_as_its_quaternion_says_also_where_a_part_is_negative() -> None:
    half = np.sqrt(0.5)  # a quarter of a turn about z, backwards: x becomes -y
    box = wandb.box3d(center=(0, 0, 0), size=(4, 0, 0), orientation=(half, 0, 0, -half), color=(1, 0, 0))

    np.testing.assert_allclose(box["corners"][-1], (0, -2, 0), atol=1e-12)


@pytest.mark.parametrize("wrong", [{"center": (1, 2)}, {"size": 3}, {"orientation": (0, 0, 0, 0)}, {"size": "wide"}])
def test_a_box_that_wandb_refuses_is_said_with_its_error_and_has_no_corners(
    captured_wandb: Capture, wrong: dict[str, Any]
) -> None:
    given = {"center": (1, 2, 3), "size": (2, 4, 6), "orientation": (1, 0, 0, 0), "color": (1, 0, 0)}

    assert wandb.box3d(**{**given, **wrong})["corners"] == ()
    [said] = captured_wandb.notices
    assert "Error: " in said


def test_a_mesh_that_is_read_from_memory_is_kept_as_a_file_of_its_type(captured_wandb: Capture) -> None:
    wandb.log({"mesh": wandb.Object3D(io.StringIO("v 0 0 0\n"), file_type="obj")})

    kept = events(captured_wandb, "artifact")["mesh"]
    assert kept.attributes["ml.artifact.path_in"].endswith(".obj")
    assert kept.body == b"v 0 0 0\n"
    assert captured_wandb.notices == []


def test_a_column_of_pictures_is_an_array_of_their_pixels() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (2, 2, 2, 3)).astype("uint8")
    table = wandb.Table(columns=["picture", "note"], data=[[wandb.Image(picture), "a"] for picture in pictures])

    np.testing.assert_array_equal(table.get_column("picture", convert_to="numpy"), pictures)
    assert table.get_column("note", convert_to="numpy").tolist() == ["a", "a"]
