"""What media and artifacts are made of may be used again before they are logged: they are kept as they were then."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from otel_ml.compat import wandb
from otel_ml.compat.wandb import files_as_added
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import events


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        wandb.init()
        yield run
        wandb.finish()


def corner(picture: Any) -> Any:
    return Image.open(io.BytesIO(picture.body)).convert("RGB").getpixel((0, 0))


def test_frames_of_one_buffer_are_pictures_of_their_own(captured: Capture) -> None:
    buffer = np.zeros((4, 4, 3), np.uint8)
    frames = []
    for step in range(3):
        buffer[:] = 50 * step
        frames.append(wandb.Image(buffer))
    wandb.log({"frames": frames})

    kept = events(captured, "image")
    assert [corner(kept[f"frames/{step}"]) for step in range(3)] == [(0, 0, 0), (50, 50, 50), (100, 100, 100)]


def test_a_figure_is_a_picture_of_what_it_showed(captured: Capture) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.figure().set_facecolor("red")
    picture, chart = wandb.Image(plt), wandb.Plotly(plt.gcf())
    plt.gcf().set_facecolor("blue")
    wandb.log({"picture": picture, "chart": chart})
    plt.close("all")

    kept = events(captured, "image")
    assert (corner(kept["picture"]), corner(kept["chart"])) == ((255, 0, 0), (255, 0, 0))


def test_a_picture_of_pillow_and_a_tensor_may_change_afterwards(captured: Capture) -> None:
    torch = import_module("torch")
    pillow, tensor = Image.new("RGB", (4, 4), (10, 10, 10)), torch.zeros(3, 4, 4)
    media = {"pillow": wandb.Image(pillow), "tensor": wandb.Image(tensor)}
    pillow.paste((200, 0, 0), (0, 0, 4, 4))
    tensor.fill_(1.0)
    wandb.log(media)

    kept = events(captured, "image")
    assert (corner(kept["pillow"]), corner(kept["tensor"])) == ((10, 10, 10), (0, 0, 0))


def test_a_distribution_a_sound_and_a_film_have_the_values_that_they_were_given(captured: Capture) -> None:
    values, sound, film = np.zeros(8), np.zeros(8), np.zeros((2, 3, 4, 4), np.uint8)
    listed = [0.0, 0.0]
    media = {
        "h": wandb.Histogram(values), "l": wandb.Histogram(listed), "s": wandb.Audio(sound, sample_rate=8),
        "v": wandb.Video(film),
    }  # fmt: skip
    values[:], sound[:], film[:], listed[0] = 5, 1, 200, 7
    wandb.log(media)

    histograms = events(captured, "histogram")
    for name, count in (("h", 8), ("l", 2)):
        edges, counts = histograms[name].body["edges"], histograms[name].body["counts"]
        assert (min(edges), max(edges), sum(counts)) == (-0.5, 0.5, count)
    assert corner(events(captured, "image")["v"]) == (0, 0, 0)
    assert not any(events(captured, "audio")["s"].body[44:])  # samples, after the head of a WAV file


def test_a_counted_distribution_has_plain_numbers_and_one_that_is_none_is_said(captured: Capture) -> None:
    counted = wandb.Histogram(np_histogram=np.histogram([1, 2, 3], bins=2))

    assert [type(count) for count in counted.histogram] == [int, int]
    assert wandb.Histogram(np_histogram=(1,)).histogram == []
    assert "wandb.Histogram(np_histogram=…)" in captured.notices[0]


def content(captured: Capture) -> dict[str, bytes]:
    return {
        event.attributes["ml.artifact.path_in"]: event.body for event in captured.events if event.kind == "ml.artifact"
    }


@pytest.mark.parametrize("add", [lambda artifact, folder: artifact.add_dir(folder),
                                 lambda artifact, folder: artifact.add_file(folder / "a.txt")])  # fmt: skip
@pytest.mark.parametrize("copied", [files_as_added._COPIED, 0])
def test_files_that_are_deleted_before_the_artifact_is_logged_are_in_it(
    captured: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, add: Callable[[Any, Path], Any], copied: int
) -> None:
    monkeypatch.setattr(files_as_added, "_COPIED", copied)  # of 4 MiB
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "a.txt").write_text("kept")
    artifact = wandb.Artifact("model", "model")
    add(artifact, folder)
    shutil.rmtree(folder)
    wandb.log_artifact(artifact)

    assert content(captured) == {"a.txt": b"kept"}


def test_a_file_that_is_written_over_is_in_the_artifact_as_it_was_added(captured: Capture, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_text("first")
    artifact = wandb.Artifact("model", "model")
    artifact.add_file(str(file))
    file.write_text("second one")
    wandb.log_artifact(artifact)

    assert content(captured) == {"weights": b"first"}


def test_one_file_may_be_added_again_with_other_content_and_another_name(captured: Capture, tmp_path: Path) -> None:
    file = tmp_path / "sample.txt"
    artifact = wandb.Artifact("samples", "dataset")
    for number in range(2):
        file.write_text(f"sample {number}")
        artifact.add_file(str(file), name=f"{number}.txt")
    wandb.log_artifact(artifact)

    assert content(captured) == {"0.txt": b"sample 0", "1.txt": b"sample 1"}
