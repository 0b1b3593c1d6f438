"""What a script gives TensorBoard's writer as a value, a step or a time is taken for what TensorBoard takes it for."""

from __future__ import annotations

import io
import math
import wave
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml._internal.error_reporting import reporter
from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import events, steps_of


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


@pytest.fixture
def writer(captured: Capture) -> Iterator[SummaryWriter]:
    with SummaryWriter("runs/digits") as opened:
        yield opened


@pytest.mark.parametrize(
    ("step", "cut"), [(1.7, 1), (np.float64(2.9), 2), (torch.tensor(3.5), 3), ("4", 4), (-0.5, 0), (True, 1)]
)
def test_a_step_is_cut_as_in_the_files_of_tensorboard(
    captured: Capture, writer: SummaryWriter, step: Any, cut: int
) -> None:
    from torch.utils.tensorboard import SummaryWriter as Theirs

    writer.add_scalar("loss", 1.0, 9)
    writer.add_scalar("loss", 2.0, step)
    with Theirs("theirs") as theirs:
        theirs.add_scalar("loss", 2.0, step)

    assert steps_of(captured, "loss") == {9: 1.0, cut: 2.0}
    assert steps_in("theirs") == [cut]


def steps_in(folder: str) -> list[int]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return [event.step for event in EventAccumulator(folder).Reload().Scalars("loss")]


def test_fractions_of_epochs_are_said_once_for_each_place(captured: Capture, writer: SummaryWriter) -> None:
    for batch in range(8):
        writer.add_scalar("loss", float(batch), batch / 4)
        writer.add_scalar("acc", float(batch), batch / 4 - 3)

    assert steps_of(captured, "loss") == {0: 3.0, 1: 7.0}
    negative, cut = captured.notices
    assert "global_step=0.25 of 'loss'" in cut
    assert "cut to 0, as TensorBoard does" in cut
    assert "global_step=-3.0 of 'acc'" in negative


@pytest.mark.parametrize(
    ("value", "number"),
    [("1.5", 1.5), ("-inf", -math.inf), (np.array([[2.0]]), 2.0), (torch.ones(1, 1), 1.0), (np.bool_(True), 1.0)],
)  # fmt: skip
def test_a_text_and_an_array_of_one_element_are_numbers(
    captured: Capture, writer: SummaryWriter, value: Any, number: float
) -> None:
    writer.add_scalar("one", value, 3)
    writer.add_scalars("group", {"a": value}, 3)

    assert steps_of(captured, "one") == {3: number}
    assert steps_of(captured, "group/a") == {3: number}
    assert captured.notices == []


def test_what_stands_beside_an_array_of_several_elements_is_recorded(captured: Capture, writer: SummaryWriter) -> None:
    writer.add_scalars("group", {"several": np.arange(3.0), "text": "high", "loss": 0.5}, 1)

    assert [(point.name, point.value) for point in captured.points] == [("group/loss", 0.5)]
    assert reporter.dropped["bad_value"] == 2
    several, text = captured.notices
    assert "'group/several' at test_tensorboard_numbers.py:" in several
    assert "of shape (3,), expected one number" in several
    assert "'high'" in text


def test_a_time_that_is_given_is_said_not_to_be_kept(captured: Capture, writer: SummaryWriter) -> None:
    for step in range(2):
        writer.add_scalar("loss", 0.5, step, walltime=0.0)
    writer.add_text("note", "fine", 1, 12.5)
    with writer.use_metadata(walltime=12.5):
        writer.add_scalar("loss", 0.25, 2)

    assert steps_of(captured, "loss") == {0: 0.5, 1: 0.5, 2: 0.25}
    assert [notice.split(" at ")[0] for notice in captured.notices] == [
        "walltime= of 'loss'",
        "walltime= of 'note'",
        "SummaryWriter.use_metadata(walltime=…)",
    ]


def test_tensors_with_a_graph_are_recorded_by_every_call(captured: Capture, writer: SummaryWriter) -> None:
    ones = torch.ones(4, requires_grad=True)
    writer.add_scalar("loss", ones.sum(), 0)
    writer.add_histogram("weights", ones, 0)
    writer.add_tensor("tensor", ones, 0)
    writer.add_audio("sound", ones * 0.5, 0)
    writer.add_image("picture", ones.reshape(1, 2, 2), 0)
    writer.add_pr_curve("curve", torch.tensor([0, 1, 1, 0]), ones * 0.5, 0)
    writer.add_video("film", ones.reshape(1, 1, 1, 2, 2), 0)

    assert steps_of(captured, "loss") == {0: 4.0}
    assert events(captured, "histogram").keys() == {"weights", "tensor"}
    assert events(captured, "image").keys() == {"picture", "film"}
    assert (events(captured, "audio").keys(), events(captured, "table").keys()) == ({"sound"}, {"curve"})
    assert [notice for notice in captured.notices if "not-kept" not in notice] == []


def test_messages_of_tensorboard_itself_are_taken_and_said(captured: Capture) -> None:
    """Programs write hyper-parameters beside the scalars so, since `add_hparams()` makes a folder of its own."""
    from torch.utils.tensorboard.summary import hparams

    messages = hparams({"lr": 0.1}, {"acc": 0.5})
    with SummaryWriter("runs/digits") as writer:
        for message in messages:
            writer.file_writer.add_summary(message)
            writer._get_file_writer().add_summary(message)
        assert writer.file_writer.get_logdir() == "runs/digits"
        writer.file_writer.flush()
        writer.add_scalar("acc", 0.5, 0)

    assert writer.file_writer is None
    assert captured.values("acc") == [0.5]
    assert len(captured.notices) == 2
    assert "SummaryWriter.file_writer.add_summary()" in captured.notices[0]


def test_shares_as_labels_and_predictions_outside_of_0_to_1_count_as_in_tensorboard(
    captured: Capture, writer: SummaryWriter
) -> None:
    from torch.utils.tensorboard.summary import compute_curve

    labels, predictions = np.array([1.0, 0.9, 0.1, 1.0, 0.0]), np.array([0.75, 0.5, 0.25, 4.0, -2.0])
    writer.add_pr_curve("curve", labels, predictions, 0, num_thresholds=5)

    *_, precision, recall = compute_curve(labels, predictions, num_thresholds=5, weights=1.0)
    rows = events(captured, "table")["curve"].body["rows"]
    assert [row[1:] for row in rows] == [
        [pytest.approx(p), pytest.approx(r)] for p, r in zip(precision, recall, strict=True)
    ]


def shape_of(sound: bytes) -> tuple[int, int]:
    with wave.open(io.BytesIO(sound)) as file:
        return file.getnchannels(), file.getnframes()


def test_a_sound_has_two_channels_as_in_tensorboardx(captured: Capture, writer: SummaryWriter) -> None:
    left, right = np.linspace(-1, 1, 50), np.zeros(50)
    writer.add_audio("two", np.stack([left, right], axis=1), 0, sample_rate=8000)
    writer.add_audio("one", torch.zeros(1, 50), 0, sample_rate=8000)
    writer.add_audio("none", np.zeros((3, 50)), 0, sample_rate=8000)

    kept = {name: shape_of(event.body) for name, event in events(captured, "audio").items()}
    assert kept == {"two": (2, 50), "one": (1, 50)}
    assert reporter.dropped["bad_event"] == 1
