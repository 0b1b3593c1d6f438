"""`add_embedding()` writes what TensorBoard's projector shows, where torch writes it, and the run has it, too."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf import text_format
from PIL import Image
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from torch.utils.tensorboard import SummaryWriter as Torchs
from werkzeug.test import Client
from werkzeug.wrappers import Response

from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.testing import Capture, capture
from tests.waiting import eventually

POINTS = np.arange(15, dtype=np.float32).reshape(5, 3) / 10
LABELS = ["zero", "öne", "two", "three", "four"]
PICTURES = np.linspace(0, 1, 5 * 3 * 4 * 4, dtype=np.float32).reshape(5, 3, 4, 4)


@pytest.fixture(autouse=True)
def captured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Capture]:
    monkeypatch.chdir(tmp_path)
    with capture() as run:
        yield run


def config(folder: str | Path) -> Any:
    return text_format.Parse(Path(folder, "projector_config.pbtxt").read_text(encoding="utf-8"), ProjectorConfig())


def calls(writer: Any) -> None:
    """Embeddings of every kind, as torch's writer takes them too."""
    points, pictures = torch.from_numpy(POINTS), torch.from_numpy(PICTURES)
    writer.add_embedding(points, metadata=LABELS, label_img=pictures, global_step=2)
    table = [[label, number] for number, label in enumerate(LABELS)]
    writer.add_embedding(points, table, None, 12, 'layer/1 "a"', ["label", "number"])
    writer.add_embedding(points, global_step=3, tag="bare")


def test_the_projector_is_given_the_files_that_torch_writes() -> None:
    with SummaryWriter("ours") as ours, Torchs("theirs") as theirs:
        calls(ours)
        calls(theirs)

    assert config("ours") == config("theirs")
    for written in (path for path in Path("theirs").rglob("*.tsv")):
        assert Path("ours", written.relative_to("theirs")).read_bytes() == written.read_bytes()
    sprite, expected = (np.asarray(Image.open(f"{of}/00002/default/sprite.png")) for of in ("ours", "theirs"))
    np.testing.assert_array_equal(sprite, expected)


def test_the_run_has_an_artifact_that_the_projector_shows_alone(captured: Capture) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_embedding(POINTS, LABELS, PICTURES, 2, "digits")

    files = {event.attributes["ml.artifact.path_in"]: event for event in captured.events if event.kind == "ml.artifact"}
    assert sorted(files) == ["metadata.tsv", "projector_config.pbtxt", "sprite.png", "tensors.tsv"]
    assert {(event.name, event.step) for event in files.values()} == {("digits", 2)}
    shown = text_format.Parse(files["projector_config.pbtxt"].body, ProjectorConfig()).embeddings[0]
    assert {shown.tensor_path, shown.metadata_path, shown.sprite.image_path} == {*files} - {"projector_config.pbtxt"}
    assert files["metadata.tsv"].body.decode().split("\n") == [*LABELS, ""]
    assert captured.notices == []


@pytest.mark.parametrize("shown", ["runs/digits", "runs/digits/00002/digits"])
def test_tensorboard_serves_points_labels_and_pictures(shown: str) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_embedding(POINTS, LABELS, PICTURES, 2, "digits")

    pages = EventMultiplexer()
    pages.AddRunsFromDirectory(shown)
    provider = MultiplexerDataProvider(pages, shown)
    plugin = ProjectorPlugin(TBContext(logdir=shown, multiplexer=pages, data_provider=provider))
    eventually(plugin.is_active)
    served = {
        route: Client(app, Response).get("/", query_string={"run": ".", "name": "digits:00002"}).data
        for route, app in plugin.get_plugin_apps().items()
        if route in {"/tensor", "/metadata", "/sprite_image"}
    }
    np.testing.assert_allclose(np.frombuffer(served["/tensor"], np.float32).reshape(5, 3), POINTS)
    assert served["/metadata"].decode().split() == LABELS
    assert Image.open(io.BytesIO(served["/sprite_image"])).size == (12, 12)


def test_without_a_step_each_call_of_a_tag_is_another_one() -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_embedding(POINTS)
        writer.add_embedding(POINTS + 1)

    assert [one.tensor_name for one in config("runs/digits").embeddings] == ["default:00000", "default:00001"]
    assert Path("runs/digits/00001/default/tensors.tsv").read_text(encoding="utf-8").startswith("1.0\t")


def test_a_step_that_is_done_again_replaces_its_files_and_is_named_once() -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_embedding(POINTS, LABELS, global_step=1)
        writer.add_embedding(POINTS + 1, global_step=1)

    assert len(config("runs/digits").embeddings) == 1
    assert sorted(path.name for path in Path("runs/digits").iterdir()) == ["00001", "projector_config.pbtxt"]
    files = sorted(path.name for path in Path("runs/digits/00001/default").iterdir())
    assert files == ["projector_config.pbtxt", "tensors.tsv"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"mat": np.zeros(5)},
        {"metadata": LABELS[1:]},
        {"label_img": PICTURES[1:]},
        {"label_img": np.zeros((5, 3, 8, 4))},
        {"metadata": [["a", "b"]] * 5, "metadata_header": ["one"]},
    ],
)
def test_what_torch_refuses_is_said_and_no_file_is_written(captured: Capture, wrong: dict[str, Any]) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_embedding(**{"mat": POINTS, **wrong})

    [said] = captured.notices
    assert "add_embedding(" in said
    assert "ValueError" in said
    assert list(Path("runs/digits").iterdir()) == []


def test_below_an_address_nothing_is_written_and_the_call_says_so(captured: Capture) -> None:
    with SummaryWriter("s3://bucket/digits") as writer:
        writer.add_embedding(POINTS)

    [said] = captured.notices
    assert "'s3://bucket/digits'" in said
    assert not Path("s3:").exists()
