"""tensorboardX's writer of the whole program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from otel_ml.compat.tensorboard import GlobalSummaryWriter
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import events, steps_of


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Capture]:
    monkeypatch.chdir(tmp_path)
    with capture() as run:
        yield run


def test_the_writer_of_the_program_is_found_where_it_is_asked_for_and_counts_itself(
    captured: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = GlobalSummaryWriter.getSummaryWriter()
    for value in (1.0, 2.0):
        GlobalSummaryWriter.getSummaryWriter().add_scalar("loss", value)
    writer.add_text("note", "warm")
    writer.add_image("frame", np.zeros((4, 5)), dataformats="HW")

    assert GlobalSummaryWriter.getSummaryWriter() is writer
    assert steps_of(captured, "loss") == {0: 1.0, 1: 2.0}
    assert (events(captured, "text")["note"].body, list(events(captured, "image"))) == ("warm", ["frame"])
    assert writer.file_writer is not None
    assert f"Using the global logger in: {writer.file_writer.get_logdir()}" in capsys.readouterr().out
    writer.close()
    assert captured.notices == []


def test_a_writer_of_a_folder_of_its_own_is_another_one(captured: Capture) -> None:
    writer = GlobalSummaryWriter("runs/mine", write_to_disk=False)
    writer.add_scalar("loss", 1.0)

    assert (writer.smw.log_dir, captured.points) == ("runs/mine", [])
