"""Everything that is not a scalar, as the service gets it."""

from __future__ import annotations

import hashlib
import io
import math
import tempfile
import time
import wave
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import otel_ml
from otel_ml._internal.messages.recorder import recorder
from otel_ml.testing import Capture, Event, capture


@pytest.fixture
def captured() -> Any:
    with capture(rank=1, world_size=2) as run:
        yield run


def newest(captured: Capture, kind: str) -> Event:
    return [event for event in captured.events if event.kind == kind][-1]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_clock_before_1970_loses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    with capture() as run:
        monkeypatch.setattr(time, "time_ns", lambda: -(10**18))
        otel_ml.log_text("note", "said")
        otel_ml.log_table("table", [[1]], columns=["a"])
        assert otel_ml.shutdown(20.0)

    assert [event.name for event in run.events if event.name] == ["note", "table"]
    [end] = [event for event in run.events if event.kind == "ml.writer.end"]
    assert end.attributes["otel_ml.dropped"] == {}


@pytest.mark.feature("N6", "yes", "mappings, dataclasses, namespaces, pydantic and OmegaConf")
@pytest.mark.feature("I7", "yes", "`log_params()`")
def test_params_may_be_nested_and_of_any_kind(captured: Capture) -> None:
    @dataclass
    class Optimizer:
        lr: float = 1e-3

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    otel_ml.log_params({"a": np.float32(0.5), "b": [1, None], "o": Optimizer(), "p": Path("x"), "odd": Odd(), 3: True})
    assert newest(captured, "ml.params").body == {
        "a": 0.5, "b": [1, None], "o": {"lr": 1e-3}, "p": "x", "odd": "<Odd>", "3": True,
    }  # fmt: skip

    otel_ml.log_params(Namespace(lr=0.1), prefix="train")
    assert newest(captured, "ml.params").body == {"train": {"lr": 0.1}}


@pytest.mark.parametrize(("prefix", "body"), [("train/", {"train": {"lr": 0.1}}), ("/", {"lr": 0.1})])
def test_a_slash_at_the_end_of_a_prefix_is_the_one_before_names_of_params(
    captured: Capture, prefix: str, body: dict[str, Any]
) -> None:
    otel_ml.log_params({"lr": 0.1}, prefix=prefix)
    assert newest(captured, "ml.params").body == body


def test_of_many_parameters_that_are_too_long_the_first_are_named_and_that_there_are_more(captured: Capture) -> None:
    for number in range(59):
        otel_ml.log_params({f"prompt{number}": "x" * (2**20 + 1)})

    [said] = [notice for notice in captured.notices if "cannot read" in notice]
    assert "cannot read prompt0 (more than 1,048,576 characters in all)" in said
    assert "Others are cut, too, without a further word." in said
    kept = [value for event in captured.events if event.kind == "ml.params" for value in event.body.values()]
    assert [len(value) for value in kept] == [2**20] * 59


@pytest.mark.feature("M22", "yes", "whatever is in it: what has no other form becomes text")
def test_params_that_hold_themselves_or_are_very_deep_end(captured: Capture) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop

    otel_ml.log_params(loop)

    assert "self" in newest(captured, "ml.params").body


@pytest.mark.parametrize(
    ("array", "mode", "size"),
    [
        (np.zeros((4, 6), np.uint8), "L", (6, 4)),
        (np.full((4, 6, 3), 0.5), "RGB", (6, 4)),
        (np.zeros((3, 4, 6), np.float32), "RGB", (6, 4)),
        (np.ones((4, 6, 4), bool), "RGBA", (6, 4)),
        (np.zeros((4, 6, 2), np.int64), "LA", (6, 4)),
        (Image.new("RGB", (6, 4)), "RGB", (6, 4)),
    ],
)
def test_images_of_all_forms_are_pngs_that_pillow_reads(
    captured: Capture, array: Any, mode: str, size: tuple[int, int]
) -> None:
    otel_ml.log_image("sample", array, caption="a 7", step=3)

    event = newest(captured, "ml.image")
    image = Image.open(io.BytesIO(event.body))
    assert (image.mode, image.size) == (mode, size)
    assert (event.name, event.step, event.axis) == ("sample", 3, "step")
    assert event.attributes == {"ml.width": 6, "ml.height": 4, "ml.caption": "a 7"}


def test_an_image_keeps_its_pixels(captured: Capture) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    given = pixels.copy()

    otel_ml.log_image("sample", given)
    given[:] = 0  # the caller's array is its own again

    assert np.array_equal(np.asarray(Image.open(io.BytesIO(newest(captured, "ml.image").body))), pixels)


@pytest.mark.feature("N8", "yes", "drawn in the call: it may be closed right after")
def test_a_figure_is_drawn_in_the_call(captured: Capture) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([1, 2, 3])
    otel_ml.log_figure("curve", figure)
    pyplot.close(figure)

    assert Image.open(io.BytesIO(newest(captured, "ml.image").body)).width > 100


def test_audio_is_a_wav_that_the_standard_library_reads(captured: Capture) -> None:
    otel_ml.log_audio("voice", np.array([[0.0, 1.0], [-1.0, 0.5]]), 16000)

    event = newest(captured, "ml.audio")
    with wave.open(io.BytesIO(event.body)) as sound:
        assert (sound.getnchannels(), sound.getframerate(), sound.getnframes()) == (2, 16000, 2)
        assert np.frombuffer(sound.readframes(2), "<i2").tolist() == [0, 32767, -32767, 16384]


@pytest.mark.feature("N7", "better", "real in TensorBoard, MLflow and W&B alike")
def test_histograms_of_values_and_of_counts(captured: Capture) -> None:
    otel_ml.log_histogram("weights", [0.0, 1.0, 1.0], bins=2)
    assert newest(captured, "ml.histogram").body == {"edges": [0.0, 0.5, 1.0], "counts": [1.0, 2.0]}

    otel_ml.log_histogram("weights", [3, 4], edges=[0, 1, 2])
    assert newest(captured, "ml.histogram").body == {"edges": [0.0, 1.0, 2.0], "counts": [3.0, 4.0]}


def test_a_histogram_counts_and_says_once_what_of_its_values_is_not_finite(captured: Capture) -> None:
    for _ in range(2):
        otel_ml.log_histogram("weights", [0.0, 1.0, 1.0, math.nan, -math.inf], bins=2)

    assert [event.body["counts"] for event in captured.events if event.kind == "ml.histogram"] == [[1.0, 2.0]] * 2
    [said] = captured.notices
    assert "'weights': 2 of 5 values are NaN or infinite" in said
    assert recorder.dropped == {"nonfinite": 4}


@pytest.mark.parametrize(("values", "edges"), [([math.nan, math.inf], None), ([math.nan, 1.0], [0, 1, 2])])
def test_a_histogram_without_a_finite_value_or_with_counts_that_are_none_is_absent_and_that_is_said(
    captured: Capture, values: list[float], edges: list[int] | None
) -> None:
    otel_ml.log_histogram("weights", values, edges=edges)

    assert len(captured.notices) == 1
    assert [event.kind for event in captured.events] == ["ml.notice"]
    assert recorder.dropped == {"bad_event": 1}


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        ([[1, "x"], [2, "y"]], ["a", "b"]),
        ([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], None),
        ({"a": [1, 2], "b": ["x", "y"]}, None),
        ({"a": np.array([1, 2]), "b": ["x", "y"]}, None),
    ],
)
def test_tables_of_all_forms(captured: Capture, data: Any, columns: list[str] | None) -> None:
    otel_ml.log_table("wrong", data, columns)

    assert newest(captured, "ml.table").body == {"columns": ["a", "b"], "rows": [[1, "x"], [2, "y"]]}


def test_texts_and_cells_are_what_they_were_at_the_call(captured: Capture) -> None:
    lines, cell, caption = ["before"], {"said": ["before"]}, ["before"]
    otel_ml.log_text("text", lines)
    otel_ml.log_table("table", [[1, "x", cell]], columns=["n", "s", "cell"])
    otel_ml.log_image("image", np.zeros((2, 2)), caption=caption)
    for changed in (lines, cell["said"], caption):
        changed[0] = "after"

    assert newest(captured, "ml.text").body == "['before']"
    assert newest(captured, "ml.table").body["rows"] == [[1, "x", {"said": ["before"]}]]
    assert newest(captured, "ml.image").attributes["ml.caption"] == "['before']"


def test_rows_of_a_table_keep_what_has_a_number_for_a_name(captured: Capture) -> None:
    otel_ml.log_table("confusion", [{0: 5, 1: 1}, {0: 2, 1: 7}])

    assert newest(captured, "ml.table").body == {"columns": ["0", "1"], "rows": [[5, 1], [2, 7]]}


def test_a_small_file_travels_and_is_hashed(captured: Capture, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"weights")

    otel_ml.log_checkpoint(path, step=5, aliases=["best"])

    event = newest(captured, "ml.artifact")
    assert event.body == b"weights"
    assert (event.name, event.step) == ("model.pt", 5)
    assert event.attributes["ml.artifact.sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert event.attributes["ml.artifact.type"] == "checkpoint"
    assert event.attributes["ml.artifact.aliases"] == ["best"]


def test_a_large_file_is_a_reference(captured: Capture, tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(bytes(5 * 2**20))

    otel_ml.log_artifact(path, type="dataset")

    event = newest(captured, "ml.artifact")
    assert event.body == b""
    assert event.attributes["ml.artifact.size"] == 5 * 2**20
    assert event.attributes["ml.artifact.uri"] == path.as_uri()
    assert event.attributes["ml.artifact.sha256"] == hashlib.sha256(bytes(5 * 2**20)).hexdigest()


def test_a_folder_is_one_artifact_of_several_files(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "vocab.json").write_text("{}")
    (tmp_path / "config.json").write_text("[]")

    otel_ml.log_artifact(tmp_path, name="bundle")

    files = [event for event in captured.events if event.name == "bundle"]
    assert [event.attributes["ml.artifact.path_in"] for event in files] == ["config.json", "tokenizer/vocab.json"]


def test_a_file_that_is_removed_or_replaced_right_after_the_call_is_the_one_of_the_call(
    captured: Capture, tmp_path: Path
) -> None:
    for content in (b"epoch 1", b"epoch 2"):
        path = tmp_path / "last.ckpt"
        beside = tmp_path / "last.ckpt.part"
        beside.write_bytes(content)
        beside.replace(path)
        otel_ml.log_checkpoint(path)
    path.unlink()

    found = [event.body for event in captured.events if event.name == "last.ckpt"]
    assert found == [b"epoch 1", b"epoch 2"]
    assert captured.notices == []


def test_a_folder_that_is_removed_right_after_the_call_is_whole(captured: Capture, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        for name in ("a.txt", "b.txt"):
            Path(folder, name).write_text(name)
        otel_ml.log_artifact(folder, name="bundle")

    assert [event.body for event in captured.events if event.name == "bundle"] == [b"a.txt", b"b.txt"]


def test_a_folder_of_many_files_is_read_without_holding_them_open(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    for number in range(200):
        (tmp_path / "shards" / f"{number:03}.txt").write_text(str(number))
    open_before = open_files()

    otel_ml.log_artifact(tmp_path / "shards")

    assert open_files() < open_before + 10
    found = [event.body for event in captured.events if event.name == "shards"]
    assert found == [str(number).encode() for number in range(200)]


def test_many_files_at_once_do_not_use_up_what_a_process_may_have_open(captured: Capture, tmp_path: Path) -> None:
    open_before = open_files()
    for number in range(300):
        (tmp_path / f"{number:03}.txt").write_text(str(number))
        otel_ml.log_artifact(tmp_path / f"{number:03}.txt")

    assert open_files() < open_before + 140
    assert len([event for event in captured.events if event.name.endswith(".txt")]) == 300
    assert open_files() < open_before + 10


def test_one_unreadable_file_of_a_folder_is_counted_and_the_others_are_there(captured: Capture, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for number in range(200):  # more than are opened at the call
        (folder / f"{number:03}.txt").write_text(str(number))
    (folder / "100.txt").unlink()
    (folder / "100.txt").symlink_to("/proc/self/mem")  # a file that nobody can read from its beginning

    otel_ml.log_artifact(folder)

    assert len([event for event in captured.events if event.name == "mixed"]) == 199
    assert [notice for notice in captured.notices if "100.txt' is not in the run" in notice]
    assert recorder.dropped == {"missing_artifact": 1}


def test_an_event_of_the_users_own(captured: Capture) -> None:
    otel_ml.event("preempted", {"node": "n7", "nested": {"a": [1]}}, step=9)

    event = newest(captured, "preempted")
    assert event.attributes == {"node": "n7", "nested": {"a": [1]}}
    assert event.step == 9


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: otel_ml.log_image("x", np.zeros((2, 3, 4, 5))), "log_image(): an image of shape (2, 3, 4, 5)"),
        (lambda: otel_ml.log_image("x", b"GIF89a"), "not a PNG"),
        (lambda: otel_ml.log_audio("x", np.zeros((2, 2, 2)), 8000), "log_audio(): audio of shape (2, 2, 2)"),
        (lambda: otel_ml.log_histogram("x", [1, 2], edges=[0, 1]), "2 counts and 2 edges"),
        (lambda: otel_ml.log_table("x", [[1, 2], [3]], ["a", "b"]), "row 1 of a table has 1 cells"),
        (lambda: otel_ml.log_table("x", {"a": [1], "b": [1, 2]}), "columns of lengths [1, 2]"),
        (lambda: otel_ml.log_artifact("/nowhere/at/all"), "no file or folder '/nowhere/at/all'"),
        (lambda: otel_ml.log_params(5), "log_params(): expected a mapping, dataclass or namespace, got 5"),
        (lambda: otel_ml.log_text("", "x"), "log_text(): expected a name, got ''"),
        (lambda: otel_ml.log_text("x", "y", step=-1), "expected a step that is a whole number from 0 on, got -1"),
    ],
)
def test_what_cannot_be_recorded_is_said_and_counted(call: Any, said: str) -> None:
    with capture() as run:
        call()

        assert [notice for notice in run.notices if said in notice]
        assert [event for event in run.events if event.kind != "ml.notice"] == []
