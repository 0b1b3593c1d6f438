"""A script written for TensorBoard's writer records the tags and steps that it gives, with only its import changed."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import otel_ml
from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.testing import Capture, Event, capture
from tests.e2e.jobs import the_run_in
from tests.unit.otel_ml.compat.recorded import events, steps_of


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


@pytest.fixture
def writer(captured: Capture) -> Iterator[SummaryWriter]:
    with SummaryWriter("runs/digits") as opened:
        yield opened


def picture(event: Event) -> Any:
    return np.asarray(Image.open(io.BytesIO(event.body)))


@pytest.mark.feature("F23", "yes", "a TensorBoard script runs with only its import changed")
def test_scalars_are_at_the_steps_they_are_given(captured: Capture, writer: SummaryWriter) -> None:
    for step in range(3):
        writer.add_scalar("loss", np.float32(step / 2), step, walltime=1.0)
    writer.add_scalar("loss", 9.0, np.int64(2))

    assert steps_of(captured, "loss") == {0: 0.0, 1: 0.5, 2: 9.0}


def test_values_without_a_step_are_all_kept_where_tensorboard_puts_them_at_0(
    captured: Capture, writer: SummaryWriter
) -> None:
    for value in (3.0, 2.0, 1.0):
        writer.add_scalar("loss", value)
    writer.add_scalar("test/acc", 0.5)

    assert steps_of(captured, "loss") == {0: 3.0, 1: 2.0, 2: 1.0}
    assert steps_of(captured, "test/acc") == {2: 0.5}


def test_what_is_no_scalar_keeps_its_tag_at_whatever_step_it_is_given(captured: Capture, writer: SummaryWriter) -> None:
    for batch in range(3000):
        writer.add_scalar("loss", 1.0, batch)
    writer.add_scalar("val/acc", 0.5, 2)
    for kind in ("", "val/"):
        writer.add_histogram(f"{kind}weights", np.arange(10.0), 2)
        writer.add_image(f"{kind}input", np.zeros((3, 4, 6)), 2)
        writer.add_text(f"{kind}note", "fine", 10**6)

    found = {(event.name, event.axis, event.step) for kind in ("histogram", "image", "text")
             for event in events(captured, kind).values()}  # fmt: skip
    assert found == {
        ("weights", "step", 2), ("input", "step", 2), ("note", "step", 10**6),
        ("val/weights", "val", 2), ("val/input", "val", 2), ("val/note", "val", 10**6),
    }  # fmt: skip
    assert captured.notices == []


@pytest.mark.feature("M13", "yes", "another count is another axis")
def test_tags_that_count_epochs_or_samples_keep_their_own_steps(captured: Capture, writer: SummaryWriter) -> None:
    for batch in range(500):
        writer.add_scalar("train/loss", 1.0, batch)
        if batch % 100 == 99:
            writer.add_scalar("val/acc", batch / 500, batch // 100)
            writer.add_scalar("samples/loss", 1.0, batch * 64)

    assert len(steps_of(captured, "train/loss")) == 500
    assert list(steps_of(captured, "val/acc", "val")) == [0, 1, 2, 3, 4]
    assert list(steps_of(captured, "samples/loss", "samples")) == [6336, 12736, 19136, 25536, 31936]
    assert captured.notices == []


def test_an_evaluation_before_the_first_step_moves_no_other_metric(captured: Capture, writer: SummaryWriter) -> None:
    for name in ("accuracy", "val/accuracy"):
        writer.add_scalar(name, 0.1, 0)
    for iteration in range(2000, 100_001, 2000):
        writer.add_scalar("loss", 1 / iteration, iteration)
        writer.add_scalar("train/loss", 1 / iteration, iteration)
    writer.add_scalar("accuracy", 0.9, 100_000)

    assert list(steps_of(captured, "loss", "step")) == list(range(2000, 100_001, 2000))
    assert list(steps_of(captured, "train/loss", "step")) == list(range(2000, 100_001, 2000))
    assert steps_of(captured, "accuracy", "step") == {0: 0.1, 100_000: 0.9}


def test_a_metric_keeps_its_name_where_a_resumed_script_validates_first() -> None:
    before = [*(("loss", step) for step in range(0, 40_000, 100)), ("accuracy", 12)]
    after = [("accuracy", 12), ("loss", 40_000), ("accuracy", 13)]
    for calls, validated in ((before, [12]), (after, [12, 13])):
        with capture() as run, SummaryWriter("runs/digits") as writer:
            for name, step in calls:
                writer.add_scalar(name, 1.0, step)
        assert list(steps_of(run, "accuracy", "step")) == validated
        assert list(steps_of(run, "loss", "step")) == [step for name, step in calls if name == "loss"]
        assert run.notices == []


@pytest.mark.feature("R7", "yes", "`add_scalars`, `add_text`")
def test_groups_texts_and_hyper_parameters_are_kept(captured: Capture, writer: SummaryWriter) -> None:
    writer.add_scalars("loss", {"train": 1.0, "val": 2.0}, 3)
    writer.add_text("note", "**fine**", 3)
    writer.add_hparams({"lr": 0.1}, {"acc": 0.9}, run_name="trial")

    assert steps_of(captured, "loss/train") == {3: 1.0}
    assert steps_of(captured, "loss/val") == {3: 2.0}
    assert (events(captured, "text")["note"].body, events(captured, "text")["note"].step) == ("**fine**", 3)
    bodies = {event.kind: event.body for event in captured.events}
    assert (bodies["ml.params"], bodies["ml.summary"]) == ({"lr": 0.1}, {"acc": 0.9})


def test_pictures_of_all_layouts_are_kept_as_they_look(captured: Capture, writer: SummaryWriter) -> None:
    import torch

    chw = torch.zeros(3, 4, 6)
    chw[0] = 1.0
    writer.add_image("chw", chw, 0)
    writer.add_image("hwc", np.moveaxis(chw.numpy(), 0, -1), 0, dataformats="HWC")
    writer.add_image("hw", np.full((4, 6), 255.0), 0, dataformats="HW")
    writer.add_images("several", torch.zeros(5, 1, 4, 6), 0)
    writer.add_video("film", torch.zeros(1, 40, 3, 4, 6), 0)

    kept = events(captured, "image")
    assert picture(kept["chw"]).shape == (4, 6, 3)
    assert (picture(kept["chw"])[0, 0] == [255, 0, 0]).all()
    assert (picture(kept["hwc"]) == picture(kept["chw"])).all()
    assert picture(kept["hw"])[0, 0] == 255
    assert picture(kept["several"]).shape == (8, 18)
    assert picture(kept["film"]).shape == (4, 84, 3)


def test_figures_are_drawn_and_closed(captured: Capture, writer: SummaryWriter) -> None:
    import matplotlib.pyplot as plt

    figure, _ = plt.subplots()
    writer.add_figure("curve", figure, 7)

    assert events(captured, "image")["curve"].step == 7
    assert not plt.fignum_exists(figure.number)


def test_distributions_sounds_curves_and_models_are_kept(captured: Capture, writer: SummaryWriter) -> None:
    import torch

    writer.add_histogram("weights", torch.arange(10.0), 1)
    writer.add_histogram_raw("raw", 0.0, 2.0, 4, 3.0, 5.0, [1.0, 2.0], [3, 1], 1)
    writer.add_audio("sound", torch.zeros(1, 100), 1, sample_rate=8000)
    writer.add_pr_curve("pr", np.array([0, 1, 1]), np.array([0.1, 0.9, 0.4]), 1, num_thresholds=3)
    writer.add_graph(torch.nn.Linear(2, 1), torch.zeros(1, 2))

    assert sum(events(captured, "histogram")["weights"].body["counts"]) == 10
    assert events(captured, "histogram")["raw"].body == {"counts": [3.0, 1.0], "edges": [0.0, 1.0, 2.0]}
    assert events(captured, "audio")["sound"].attributes["ml.sample_rate"] == 8000
    rows = events(captured, "table")["pr"].body["rows"]
    assert rows == [[0.0, pytest.approx(2 / 3), 1.0], [0.5, pytest.approx(1.0), 0.5], [1.0, 0.0, 0.0]]
    assert "Linear(in_features=2" in events(captured, "text")["graph"].body


def test_a_counted_distribution_begins_at_its_smallest_value_where_that_is_below_the_first_limit(
    captured: Capture, writer: SummaryWriter
) -> None:
    """TensorBoard's own writers give the smallest value of the data, which may lie in any bucket."""
    writer.add_histogram_raw("below", -3.0, 2.0, 4, 3.0, 5.0, [1.0, 2.0], [3, 1], 1)
    writer.add_histogram_raw("at", 1.0, 2.0, 4, 3.0, 5.0, [1.0, 2.0], [3, 1], 1)
    writer.add_histogram_raw("above", 1.5, 2.0, 4, 7.0, 12.0, [1.0, 2.0], [0, 4], 1)

    edges = {name: event.body["edges"] for name, event in events(captured, "histogram").items()}
    assert edges == {"below": [-3.0, 1.0, 2.0], "at": [0.0, 1.0, 2.0], "above": [0.0, 1.0, 2.0]}
    assert captured.notices == []


def test_what_is_not_kept_is_said_with_its_place_and_nothing_is_raised(
    captured: Capture, writer: SummaryWriter
) -> None:
    writer.add_custom_scalars({})
    writer.add_scalar("loss", 1.0, "three")  # type: ignore[arg-type]
    writer.add_image("bad", object(), 0)
    writer.flush()

    said = " ".join(captured.notices)
    for what in ("add_custom_scalars()", "global_step='three'", "SummaryWriter.add_image(tag='bad'"):
        assert f"{what}" in said
    assert said.count("test_tensorboard.py:") == 3
    assert steps_of(captured, "loss") == {0: 1.0}


def test_a_second_folder_is_a_second_curve(captured: Capture, writer: SummaryWriter) -> None:
    with SummaryWriter(log_dir="runs/val") as val:
        writer.add_scalar("loss", 1.0, 0)
        val.add_scalar("loss", 2.0, 0)

    assert steps_of(captured, "loss") == {0: 1.0}
    assert steps_of(captured, "val/loss") == {0: 2.0}
    assert (val.get_logdir(), val.log_dir) == ("runs/val", "runs/val")


def test_the_last_writer_ends_the_run_and_one_that_writes_on_continues_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    first = SummaryWriter("runs/a")
    first.add_scalar("loss", 1.0, 5)
    began = first._run
    first.close()
    first.close()

    assert otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["loss"] == ([5], [1.0])
    first.add_scalar("loss", 2.0, 6)  # as there, it writes on
    assert first._run.id == began.id
    first.close()
    assert otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["loss"] == ([5, 6], [1.0, 2.0])


def test_every_public_name_of_both_writers_is_there(writer: SummaryWriter) -> None:
    import tensorboardX
    from torch.utils import tensorboard

    for original in (tensorboard.SummaryWriter, tensorboardX.SummaryWriter):
        names = [name for name in dir(original) if not name.startswith("_")]
        assert [name for name in names if not hasattr(writer, name)] == [], original


def test_the_folder_of_a_writer_is_there_for_files_of_the_program(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with SummaryWriter("logs/exp1") as named, SummaryWriter(comment="-big") as unnamed:
        (Path(named.log_dir) / "args.json").write_text("{}")
        (Path(unnamed.get_logdir()) / "args.json").write_text("{}")

    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.endswith(f"_{socket.gethostname()}-big")
    assert named.log_dir == "logs/exp1"


def test_a_folder_that_cannot_be_made_does_not_stop_training(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with SummaryWriter(tmp_path / "taken" / "run") as writer:
        writer.add_scalar("loss", 1.0, 0)

    assert steps_of(captured, "loss") == {0: 1.0}
    assert captured.notices


def test_a_curve_is_the_one_that_torch_computes(captured: Capture, writer: SummaryWriter) -> None:
    from torch.utils.tensorboard.summary import compute_curve

    generator = np.random.default_rng(0)
    labels, scores, weights = generator.integers(0, 2, 50), generator.random(50), generator.random(50)
    writer.add_pr_curve("computed", labels, scores, 0, num_thresholds=11, weights=weights)
    theirs = compute_curve(labels, scores, num_thresholds=11, weights=weights)
    writer.add_pr_curve_raw("raw", *theirs, 0, num_thresholds=11)

    tables = events(captured, "table")
    expected = [[place / 10, precision, recall] for place, (precision, recall) in enumerate(theirs[-2:].T.tolist())]
    for name in ("computed", "raw"):
        assert [row[:3] for row in tables[name].body["rows"]] == [pytest.approx(row) for row in expected], name
    counts = ["true_positives", "false_positives", "true_negatives", "false_negatives"]
    assert tables["raw"].body["columns"][3:] == counts
    assert [row[3:] for row in tables["raw"].body["rows"]] == [pytest.approx(row) for row in theirs[:4].T.tolist()]


def test_several_figures_are_one_picture(captured: Capture, writer: SummaryWriter) -> None:
    import matplotlib.pyplot as plt

    figures = [plt.figure(figsize=(1, 1), dpi=50) for _ in range(3)]
    writer.add_figure("curves", figures, 7)

    assert picture(events(captured, "image")["curves"]).shape[:2] == (100, 100)
    assert not any(plt.fignum_exists(figure.number) for figure in figures)


def test_hyper_parameters_of_a_second_session_replace_none_of_the_first(
    captured: Capture, writer: SummaryWriter
) -> None:
    writer.add_hparams({"lr": 0.1}, {"acc": 1.0})
    writer.add_hparams({"lr": 0.2}, {"acc": 2.0}, run_name="second")

    assert [event.body for event in captured.events if event.kind == "ml.params"] == [
        {"lr": 0.1},
        {"otel_ml.sessions": ["second"], "second": {"lr": 0.2}},
    ]
    assert [event.body for event in captured.events if event.kind == "ml.summary"] == [
        {"acc": 1.0},
        {"second/acc": 2.0},
    ]


def test_hyper_parameters_of_another_writer_replace_none_of_the_first(captured: Capture, writer: SummaryWriter) -> None:
    writer.add_hparams({"lr": 0.1}, {"acc": 1.0})
    for lr in (0.2, 0.3):
        with SummaryWriter() as other:
            other.add_hparams({"lr": lr}, {"acc": 10 * lr})

    assert [event.body for event in captured.events if event.kind == "ml.params"] == [
        {"lr": 0.1},
        {"otel_ml.sessions": ["session-2"], "session-2": {"lr": 0.2}},
        {"otel_ml.sessions": ["session-2", "session-3"], "session-3": {"lr": 0.3}},
    ]


def test_a_step_is_given_once_for_a_block(captured: Capture, writer: SummaryWriter) -> None:
    with writer.use_metadata(global_step=7):
        writer.add_scalar("loss", 1.0)
        writer.add_scalar("acc", 2.0, 8)

    assert (steps_of(captured, "loss"), steps_of(captured, "acc")) == ({7: 1.0}, {8: 2.0})


def test_a_writer_that_is_not_to_write_records_nothing(captured: Capture, tmp_path: Path) -> None:
    for rank in (0, 1):
        with SummaryWriter(tmp_path / "logs", write_to_disk=rank == 0) as writer:
            writer.add_scalar("loss", float(rank), 0)
            writer.add_text("rank", str(rank), 0)
            writer.add_hparams({"rank": rank}, {"acc": 0.5})
            writer.flush()

    assert steps_of(captured, "loss") == {0: 0.0}
    assert events(captured, "text")["rank"].body == "0"
    assert [event.body for event in captured.events if event.kind == "ml.params"] == [{"rank": 0}]
    SummaryWriter(tmp_path / "nobody", "", None, 10, 120, "", False).close()
    assert not (tmp_path / "nobody").exists()
