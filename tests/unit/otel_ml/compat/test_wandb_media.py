"""What a script logs through W&B's interface beside numbers is kept: pictures, sounds, pages and files."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.fake_cuda import FakeCuda
from tests.unit.otel_ml.compat.recorded import events, params


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


def test_lists_of_numbers_are_distributions_and_other_lists_are_texts(captured: Capture) -> None:
    wandb.init()
    wandb.log({"numbers": [1, 2.5, 3], "words": ["a", "b"], "mixed": (1, "b"), "nothing": []})

    assert set(events(captured, "histogram")) == {"numbers"}
    assert {name: event.body for name, event in events(captured, "text").items()} == {
        "words": "['a', 'b']",
        "mixed": "(1, 'b')",
        "nothing": "[]",
    }


@pytest.mark.parametrize(
    "numbers",
    [[np.float32(1), np.float32(3)], [torch.tensor(1.0), torch.tensor([3.0], requires_grad=True)], (1, np.int64(3))],
    ids=["numpy", "torch", "mixed"],
)
def test_a_list_of_numbers_of_numpy_or_torch_is_a_distribution(captured: Capture, numbers: Any) -> None:
    wandb.init()
    wandb.log({"norms": numbers})

    assert sum(events(captured, "histogram")["norms"].body["counts"]) == 2
    assert wandb.summary["norms"] == [1.0, 3.0]
    assert (captured.notices, events(captured, "text")) == ([], {})


def test_a_list_of_numbers_on_a_device_is_a_distribution_and_nothing_waits(captured: Capture, cuda: FakeCuda) -> None:
    wandb.init()
    wandb.log({"norms": [cuda.tensor(1.0), cuda.tensor(3.0)]})
    assert cuda.waits == []

    assert sum(events(captured, "histogram")["norms"].body["counts"]) == 2


def test_what_is_to_be_looked_at_is_kept_where_it_is_set_in_the_summary(captured: Capture) -> None:
    run = wandb.init()
    run.log({"loss": 1.0}, step=4)
    run.summary["weights"] = wandb.Histogram([1.0, 2.0])
    run.summary.update({"worst": wandb.Table(columns=["a"], data=[[1]]), "end": {"first": [wandb.Image(np.eye(4))]}})
    run.summary["note"] = "kept"

    assert sum(events(captured, "histogram")["weights"].body["counts"]) == 2
    assert {"worst", "weights", "end.first"} <= {event.name for event in captured.events if event.step == 4}
    assert params(captured) == {"summary": {"note": "kept"}}
    assert sum(run.summary["weights"].histogram) == 2


@pytest.mark.feature("N8", "yes", "figures and pictures with captions")
def test_pictures_of_all_kinds_are_kept(captured: Capture, tmp_path: Path) -> None:
    Image.new("RGB", (6, 4)).save(tmp_path / "a.jpg")
    import matplotlib.pyplot as plt

    figure, _ = plt.subplots()
    wandb.init()
    wandb.log(
        {
            "array": wandb.Image(np.full((4, 6, 3), 200.0), caption="bright"),
            "file": wandb.Image(str(tmp_path / "a.jpg")),
            "pillow": Image.new("L", (6, 4)),
            "figure": figure,
            "several": [wandb.Image(np.zeros((4, 6))), wandb.Image(np.ones((4, 6)))],
            "film": wandb.Video(np.zeros((40, 3, 4, 6), np.uint8), fps=4),
        }
    )
    plt.close(figure)

    kept = events(captured, "image")
    assert set(kept) == {"array", "file", "pillow", "figure", "several/0", "several/1", "film"}
    assert Image.open(io.BytesIO(kept["array"].body)).getpixel((0, 0)) == (200, 200, 200)
    assert kept["array"].attributes["ml.caption"] == "bright"
    assert "14 of its 40 frames are kept as one picture" in captured.notices[0]


@pytest.mark.feature("N7", "better", "values or counts; real in every backend that has histograms")
def test_histograms_of_values_and_of_counts_are_kept(captured: Capture) -> None:
    wandb.init()
    wandb.log({"values": wandb.Histogram([1, 2, 2, 3], num_bins=2)})
    wandb.log({"counts": wandb.Histogram(np_histogram=(np.array([3, 1]), np.array([0.0, 1.0, 2.0])))})

    kept = events(captured, "histogram")
    assert kept["values"].body["counts"] == [1.0, 3.0]
    assert kept["counts"].body == {"counts": [3.0, 1.0], "edges": [0.0, 1.0, 2.0]}


def test_audio_pages_and_files_are_kept(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "cloud.obj").write_text("v 0 0 0")
    wandb.init()
    wandb.log(
        {
            "sound": wandb.Audio(np.zeros(10), sample_rate=8000, caption="silence"),
            "page": wandb.Html("<b>hi</b>"),
            "cloud": wandb.Object3D(str(tmp_path / "cloud.obj")),
        }
    )

    assert events(captured, "audio")["sound"].attributes["ml.sample_rate"] == 8000
    assert events(captured, "text")["page"].body == "<b>hi</b>"
    assert events(captured, "artifact")["cloud"].body == b"v 0 0 0"


@pytest.mark.feature("I12", "yes", "files, folders, models and what is written for them, under names and aliases")
def test_artifacts_are_kept_with_their_files_metadata_and_aliases(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"w")
    run = wandb.init()
    artifact = wandb.Artifact("model", type="model", metadata={"acc": 0.9})
    artifact.add_file(str(tmp_path / "weights.pt"))
    with artifact.new_file("notes.txt") as file:
        file.write("fine")
    run.log_artifact(artifact, aliases=["best"]).wait()
    wandb.save(str(tmp_path / "*.pt"))

    kept = [event for event in captured.events if event.kind == "ml.artifact"]
    shown = {(event.name, event.attributes["ml.artifact.path_in"]): event.body for event in kept}
    assert shown == {
        ("model", "weights.pt"): b"w",
        ("model", "notes.txt"): b"fine",
        (f"{tmp_path.name}/weights.pt", "weights.pt"): b"w",
    }
    assert kept[0].attributes["ml.artifact.type"] == "model"
    assert list(kept[0].attributes["ml.artifact.aliases"]) == ["best"]
    assert params(captured)["artifacts"] == {"model": {"acc": 0.9}}


def test_files_and_folders_are_in_an_artifact_under_the_names_that_they_were_given(
    captured: Capture, tmp_path: Path
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "epoch_7.pt").write_bytes(folder.encode())
    artifact = wandb.Artifact("model", type="model")
    artifact.add_file(str(tmp_path / "one" / "epoch_7.pt"), name="best/model.pt")
    artifact.add_file(tmp_path / "two" / "epoch_7.pt")
    artifact.add_dir(tmp_path / "two", name="all")
    with artifact.new_file("notes/a.txt") as file:
        file.write("fine")
    artifact.add_file(tmp_path / "none.pt")
    artifact.add_dir(tmp_path / "none")
    wandb.init().log_artifact(artifact)

    kept = [event for event in captured.events if event.kind == "ml.artifact"]
    wanted = {"best/model.pt": b"one", "epoch_7.pt": b"two", "all/epoch_7.pt": b"two", "notes/a.txt": b"fine"}
    assert {event.attributes["ml.artifact.path_in"]: event.body for event in kept} == wanted
    copied = Path(artifact.download(tmp_path / "copy"))
    assert {path.relative_to(copied).as_posix(): path.read_bytes() for path in copied.rglob("*.*")} == wanted
    for wrong in ("ValueError: Path is not a file", "ValueError: Path is not a directory"):
        assert sum(wrong in notice for notice in captured.notices) == 1


@pytest.mark.parametrize("shape", [(4, 3, 8, 6), (4, 8, 6, 3)])
def test_a_batch_of_pictures_is_one_picture(captured: Capture, shape: tuple[int, ...]) -> None:
    picture = wandb.Image(np.random.default_rng(0).random(shape))
    wandb.log({"grid": picture})

    assert picture.image.size == (12, 16)
    assert events(captured, "image")["grid"].body


def test_a_picture_and_a_histogram_can_be_looked_at() -> None:
    assert wandb.Image(np.zeros((8, 6, 3))).image.size == (6, 8)
    assert wandb.Histogram([1, 2, 2], num_bins=2).histogram == [1, 2]
    assert wandb.Histogram(np_histogram=([1, 2], [0, 1, 2])).bins == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (np.array([[-0.2, 0.6]]), [[102, 204]]),
        (np.array([[0.2, 0.3]]), [[51, 76]]),
        (np.array([[0, 1]]), [[0, 255]]),
        (np.array([[-9, 0.1, 100, 254.5, 270]]), [[0, 0, 100, 254, 255]]),
        (np.array([[np.nan, 1.0]]), [[0, 255]]),
    ],
)
def test_numbers_of_a_picture_are_rescaled_as_wandb_does(captured: Capture, given: Any, shown: list[list[int]]) -> None:
    import torch

    wandb.log({"array": wandb.Image(given), "tensor": wandb.Image(torch.from_numpy(given))})

    assert wandb.Image(given).to_data_array() == shown
    for name in ("array", "tensor"):
        kept = Image.open(io.BytesIO(events(captured, "image")[name].body)).convert("L")
        assert list(kept.getdata()) == shown[0], name


def test_what_media_say_of_themselves_is_what_wandbs_say(captured: Capture) -> None:
    one, two = (wandb.Audio(np.zeros(size), sample_rate=10, caption=text) for size, text in ((10, "dog"), (20, None)))

    assert wandb.Audio.durations([one, two]) == [1.0, 2.0]
    assert (wandb.Audio.sample_rates([one]), wandb.Audio.captions([one, two]), wandb.Audio.captions([two])) == (
        [10], ["dog", ""], False,
    )  # fmt: skip
    assert wandb.Image.all_captions([wandb.Image(np.zeros((2, 2)), caption="cool")]) == ["cool"]
    assert wandb.Html(io.StringIO("<b>hi</b>")).html == "<b>hi</b>"


def test_media_that_wandb_refuses_are_said_with_its_error_and_kept_as_far_as_they_go(captured: Capture) -> None:
    wandb.log(
        {
            "uneven": wandb.Histogram(np_histogram=([1, 2, 3], [0, 1])),
            "fine": wandb.Histogram(range(10), num_bins=600),
            "sound": wandb.Audio(np.zeros(10)),
            "film": wandb.Video(np.zeros((3, 8, 8), np.uint8)),
        }
    )

    assert sum("ValueError" in notice for notice in captured.notices) == 4, captured.notices
    assert events(captured, "histogram")["uneven"].body == {"counts": [1.0], "edges": [0.0, 1.0]}
    assert len(events(captured, "histogram")["fine"].body["counts"]) == 512
    assert {"sound", "film"} <= {event.name for event in captured.events}


def test_options_that_no_backend_has_are_said_where_they_are_given(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x")
    wandb.init()

    artifact = wandb.Artifact("data", type="dataset", incremental=True)
    wandb.init().log_artifact(artifact, tags=["gold"])
    wandb.Table(columns=["a"], log_mode="INCREMENTAL", allow_mixed_types=True)
    wandb.Image(np.zeros((2, 3), np.uint8), file_type="jpg", normalize=False)

    for said in (
        "wandb.Artifact(incremental=True) at test_wandb_media.py",
        "run.log_artifact(tags=['gold']) at test_wandb_media.py",
        "wandb.Table(log_mode='INCREMENTAL') at test_wandb_media.py",
        "wandb.Image(file_type='jpg', normalize='False') at test_wandb_media.py",
    ):
        assert sum(said in notice for notice in captured.notices) == 1, (said, captured.notices)


def test_what_is_given_as_it_always_is_here_is_not_said(captured: Capture) -> None:
    wandb.init()

    wandb.Table(columns=["a"], optional=True, allow_mixed_types=True, log_mode="IMMUTABLE")
    wandb.Image(np.zeros((2, 3), np.uint8), file_type="png")
    wandb.Artifact("data", type="dataset", metadata={"rows": 1})

    assert not captured.notices


def test_an_artifact_knows_its_files_and_says_what_only_the_server_knows(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.txt").write_text("12")
    (tmp_path / "inner" / "b.txt").write_text("345")
    wandb.init()
    artifact = wandb.Artifact("data", type="dataset")
    artifact.add_dir(tmp_path)
    artifact.finalize()
    artifact.save()

    assert (artifact.file_count, artifact.size, artifact.is_draft()) == (2, 5, True)
    assert "data" in events(captured, "artifact")
    with pytest.raises(AttributeError, match="is what W&B's server knows"):
        artifact.digest  # noqa: B018 (reading it is the test)
    assert not hasattr(artifact, "no_such_member")


def test_a_cloud_of_points_is_kept_with_all_its_points(captured: Capture) -> None:
    points = np.arange(3000.0).reshape(1000, 3)
    wandb.init()
    wandb.log({"cloud": wandb.Object3D(points), "scene": wandb.Object3D.from_point_cloud(points, [{"label": "car"}])})

    kept = {name: json.loads(event.body) for name, event in events(captured, "artifact").items()}
    assert kept["cloud"] == points.tolist()
    assert kept["scene"]["points"] == points.tolist()
    assert kept["scene"]["boxes"] == [{"label": "car"}]
    assert captured.notices == []


@pytest.mark.parametrize("kind", [wandb.Object3D, wandb.Molecule, wandb.Bokeh, wandb.Plotly])
def test_a_text_that_no_file_could_be_called_by_is_kept(captured: Capture, kind: Any) -> None:
    described = "v 0 0 0\n" * 1000
    wandb.init()
    wandb.log({"mesh": kind(io.StringIO(described))})

    assert events(captured, "text")["mesh"].body == described


def test_a_page_that_ends_as_a_file_is_called_is_kept(captured: Capture, tmp_path: Path) -> None:
    wandb.init()
    wandb.log({"page": wandb.Html("<p>see index.html"), "long": wandb.Html("<p>" + "x" * 5000 + ".html")})

    assert events(captured, "text")["page"].body == "<p>see index.html"
    assert len(events(captured, "text")["long"].body) == 5008


def test_a_graph_is_built_and_kept_as_a_text(captured: Capture) -> None:
    wandb.init()
    graph = wandb.Graph()
    first = graph.add_node(wandb.data_types.Node("a", "Node A", size=(4,)))
    second = graph.add_node(id="b", name="Node B")
    graph.add_edge(first, second)
    wandb.log({"graph": graph})

    assert graph["b"] is second
    assert json.loads(events(captured, "text")["graph"].body) == {
        "format": "keras",
        "nodes": [{"id": "a", "name": "Node A", "size": [4]}, {"id": "b", "name": "Node B"}],
        "edges": [["a", "b"]],
    }


def test_names_of_the_submodules_that_are_not_here_are_wandbs_own_or_are_explained() -> None:
    assert isinstance(wandb.data_types.PartitionedTable, type)
    assert issubclass(wandb.errors.AuthenticationError, Exception)
    for module in (wandb.data_types, wandb.errors, wandb.util):
        with pytest.raises(AttributeError, match=r"has no 'nothing_of_the_kind'.*explain not-kept"):
            _ = module.nothing_of_the_kind


@pytest.mark.parametrize(
    "make",
    [
        lambda: wandb.Object3D([[1, 2, 3]]),
        lambda: wandb.Object3D.from_numpy(np.zeros((3, 2))),
        lambda: wandb.Object3D(np.zeros(9)),
        lambda: wandb.Object3D("INVALID"),
        lambda: wandb.Object3D({"type": "INVALID"}),
        lambda: wandb.Object3D.from_point_cloud([], [], [], "invalid"),
        lambda: wandb.Object3D.from_file(io.StringIO("some text")),
        lambda: wandb.Molecule.from_rdkit("test"),
        lambda: wandb.Table(dataframe=[["a", 1]]),
    ],
)
def test_what_wandb_refuses_is_said_with_its_error(captured: Capture, make: Any) -> None:
    make()

    assert any("ValueError: " in said or "AssertionError: " in said for said in captured.notices), captured.notices


def test_clouds_that_wandb_takes_are_not_said(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "cube.obj").write_text("v 0 0 0")
    wandb.Object3D(np.zeros((2, 6)))
    wandb.Object3D.from_point_cloud([], [], [])
    wandb.Object3D(io.StringIO("v 0 0 0"), file_type="obj")
    with (tmp_path / "cube.obj").open() as file:
        wandb.Object3D(file)
    wandb.Object3D(tmp_path / "cube.obj")
    (tmp_path / "test.pdb").touch()
    wandb.Molecule(str(tmp_path / "test.pdb"))
    wandb.Molecule.from_rdkit("test.mol")

    assert captured.notices == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_picture_of_half_precision_is_the_one_of_full_precision(captured: Capture, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    picture = torch.linspace(0, 1, 3 * 4 * 6).reshape(3, 4, 6).to(getattr(torch, dtype))
    wandb.init()
    wandb.log({"half": wandb.Image(picture), "full": wandb.Image(picture.float())})

    kept = events(captured, "image")
    assert kept["half"].body == kept["full"].body
