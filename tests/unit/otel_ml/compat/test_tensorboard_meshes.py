"""`add_mesh()` keeps meshes as PLY files, in every backend that has artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.testing import Capture, capture

VERTICES = np.arange(24, dtype=np.float32).reshape(2, 4, 3) / 4
COLORS = np.full((2, 4, 3), [255, 0, 300])
FACES = np.array([[[0, 1, 2]], [[1, 2, 3]]])


@pytest.fixture(autouse=True)
def captured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Capture]:
    monkeypatch.chdir(tmp_path)
    with capture() as run:
        yield run


def kept(captured: Capture) -> dict[tuple[str | None, Any, Any], str]:
    """Return the files of artifacts by name, step and place."""
    found = [event for event in captured.events if event.kind == "ml.artifact"]
    return {(one.name, one.step, one.attributes["ml.artifact.path_in"]): one.body.decode() for one in found}


def read(ply: str) -> dict[str, list[list[float]]]:
    """Return the elements of a text in PLY, as its header describes them."""
    lines = iter(ply.splitlines())
    header = list(iter(lambda: next(lines), "end_header"))
    assert header[:2] == ["ply", "format ascii 1.0"]
    counts = [line.split()[1:] for line in header if line.startswith("element")]
    found = {name: [list(map(float, next(lines).split())) for _ in range(int(count))] for name, count in counts}
    assert list(lines) == []
    return found


def test_meshes_are_kept_as_files_with_points_colors_and_triangles(captured: Capture) -> None:
    with SummaryWriter("runs/meshes") as writer:
        writer.add_mesh("body", torch.from_numpy(VERTICES), COLORS, torch.from_numpy(FACES), global_step=3)
        writer.add_mesh("cloud", VERTICES[:1])

    files = kept(captured)
    assert list(files) == [("body", 3, "0.ply"), ("body", 3, "1.ply"), ("cloud", 0, "0.ply")]
    second = read(files["body", 3, "1.ply"])
    assert second["face"] == [[3, 1, 2, 3]]
    assert second["vertex"] == [[*point, 255, 0, 255] for point in VERTICES[1].tolist()]
    assert read(files["cloud", 0, "0.ply"]) == {"vertex": VERTICES[0].tolist(), "face": []}
    assert [said.partition(" at ")[0] for said in captured.notices] == ["add_mesh('body')", "add_mesh('cloud')"]
    assert all("PLY files in an artifact" in said for said in captured.notices)


@pytest.mark.parametrize(
    "given",
    [
        {"vertices": VERTICES[0]},
        {"vertices": VERTICES, "faces": FACES[:1]},
        {"vertices": VERTICES, "colors": COLORS[:, :2]},
        {"vertices": "cube.ply"},
    ],
)
def test_arrays_that_are_no_mesh_are_said_and_not_kept(captured: Capture, given: dict[str, Any]) -> None:
    with SummaryWriter("runs/meshes") as writer:
        writer.add_mesh("body", **given)

    assert kept(captured) == {}
    assert any("SummaryWriter.add_mesh(tag='body'" in notice and "ValueError" in notice for notice in captured.notices)
