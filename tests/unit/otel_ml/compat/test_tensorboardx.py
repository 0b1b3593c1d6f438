"""A script for tensorboardX passes by place what torch's writer takes elsewhere, and asks for its attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorboardX
from torch.utils import tensorboard

from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.testing import Capture, capture
from otel_ml.wire.attributes import SESSIONS_PARAM
from tests.unit.otel_ml.compat.recorded import params, steps_of, written
from tests.unit.otel_ml.compat.test_tensorboard import picture


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


@pytest.mark.parametrize(
    "given",
    [("trial1", 5), (None, "trial1", 5)],
    ids=["tensorboardX", "torch"],
)
def test_the_name_of_a_set_of_hyper_parameters_is_taken_where_each_original_has_it(
    captured: Capture, given: tuple[Any, ...]
) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_hparams({"lr": 0.1}, {"acc": 0.5})
        writer.add_hparams({"lr": 0.2}, {"acc": 0.7}, *given)

    assert params(captured)[SESSIONS_PARAM] == ["trial1"]
    [notice] = captured.notices
    assert "add_hparams(global_step=5)" in notice


def test_a_step_after_no_name_is_a_step(captured: Capture) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_hparams({"lr": 0.1}, {"acc": 0.5}, None, 5)

    [notice] = captured.notices
    assert "add_hparams(global_step=5)" in notice


@pytest.mark.parametrize("given", [("HWC",), ("HWC", ["a cat"]), (1.5, "HWC")], ids=["X", "X-labels", "torch"])
def test_the_order_of_a_pictures_dimensions_is_taken_where_each_original_has_it(
    captured: Capture, given: tuple[Any, ...]
) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_image_with_boxes("cats", np.zeros((4, 6, 3), np.uint8), np.zeros((1, 4)), 1, None, *given)

    assert picture(captured.events[-1]).shape == (4, 6, 3)


SAID: dict[str, Callable[[Any], None]] = {
    "display_name=…": lambda writer: writer.add_scalar("loss", 0.5, 1, None, "Loss", "of the batch"),
    "add_graph": lambda writer: writer.add_graph("a model", None, False, False),
}


@pytest.mark.parametrize("said", SAID)
def test_what_tensorboardx_takes_by_place_is_accepted_and_said(captured: Capture, said: str) -> None:
    written(SAID[said])()

    assert [said in notice and "explain not-kept" in notice for notice in captured.notices] == [True]
    assert captured.values("loss") == ([0.5] if said == "display_name=…" else [])


def test_a_model_is_recorded_as_a_file_at_the_first_place(captured: Capture, tmp_path: Path) -> None:
    (model := tmp_path / "model.onnx").write_bytes(b"onnx")
    with SummaryWriter("runs/digits") as writer:
        writer.add_onnx_graph(str(model))

    assert [event.kind for event in captured.events if event.kind == "ml.artifact"] == ["ml.artifact"]


def test_a_writer_that_is_to_write_to_comet_says_that_it_does_not(captured: Capture) -> None:
    SummaryWriter("runs/digits", comet_config={"project_name": "digits"}).close()

    [notice] = captured.notices
    assert "comet_config" in notice


def test_a_writer_is_made_with_all_that_tensorboardx_takes_by_place(captured: Capture, tmp_path: Path) -> None:
    with SummaryWriter(None, "", None, 10, 120, "", True, str(tmp_path / "digits"), {"disabled": True}) as writer:
        writer.add_scalar("loss", 0.5, 1)

    assert writer.logdir == str(tmp_path / "digits")
    assert captured.values("loss") == [0.5]
    assert captured.notices == []


@pytest.mark.parametrize("original", [tensorboard.SummaryWriter, tensorboardX.SummaryWriter], ids=["torch", "X"])
def test_a_writer_has_the_attributes_of_the_originals(
    captured: Capture, tmp_path: Path, original: Callable[..., Any]
) -> None:
    given: tuple[Any, ...] = (str(tmp_path / "digits"), "", None, 5, 60, ".x")
    with original(*given) as theirs, SummaryWriter(*given) as ours:
        names = [name for name in vars(theirs) if not name.startswith("_") and name not in {"kwargs", "scalar_dict"}]
        same = {"all_writers", "file_writer"}  # objects of each one's own

        assert {name: getattr(ours, name) for name in names if name not in same} == {
            name: getattr(theirs, name) for name in names if name not in same
        }
        assert list(ours.all_writers or ()) == list(theirs.all_writers)
        for one in (ours.all_writers or {}).values():
            one.flush()
    assert (ours.all_writers, ours.file_writer) == (theirs.all_writers, theirs.file_writer) == (None, None)


def test_a_program_may_set_the_attributes_that_it_may_set_in_the_originals(captured: Capture, tmp_path: Path) -> None:
    class Mine(SummaryWriter):
        def __init__(self, folder: str) -> None:
            self.logdir, self.default_bins = folder, [0.0, 1.0]
            super().__init__(folder)

    with Mine(str(tmp_path / "a")) as writer:
        writer.all_writers = None

    assert (writer.logdir, writer.default_bins, writer.all_writers) == (str(tmp_path / "a"), [0.0, 1.0], None)


def test_the_name_of_a_set_of_hyper_parameters_may_be_a_path(captured: Capture) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_hparams({"lr": 0.1}, {"acc": 0.5})
        writer.add_hparams({"lr": 0.2}, {"acc": 0.7}, run_name=Path("trial1"))

    assert params(captured)[SESSIONS_PARAM] == ["trial1"]


def test_a_folder_is_the_path_that_was_given_and_a_block_of_metadata_has_the_writer(
    captured: Capture, tmp_path: Path
) -> None:
    with SummaryWriter(tmp_path / "run") as writer:
        assert (writer.logdir / "best.pt", writer.log_dir, writer.get_logdir()) == (
            tmp_path / "run" / "best.pt", tmp_path / "run", tmp_path / "run",
        )  # fmt: skip
        assert (writer.file_writer.get_logdir(), list(writer.all_writers)) == (
            str(tmp_path / "run"),
            [str(tmp_path / "run")],
        )
        with writer.use_metadata(global_step=7) as inside:
            inside.add_scalar("loss", 1.0)

    assert steps_of(captured, "loss") == {7: 1.0}
