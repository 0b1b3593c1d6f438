"""What fails beside training in Lightning's logger is said, and training goes on."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from otel_ml.testing import Capture


@pytest.fixture
def line() -> ModuleType:
    from tests.unit.otel_ml.integrations import line

    return line


def full(**_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("log_model", [True, "all"])
def test_a_disk_without_room_for_metadata_does_not_end_training(
    line: ModuleType, otel_ml_capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_model: bool | str
) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=log_model),
        callbacks=[line.ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1 if log_model == "all" else 1)],
    )

    fitted.fit(line.Line(), line.loader())

    assert fitted.state.finished
    kept = [str(event.name) for event in otel_ml_capture.events if event.kind == "ml.artifact"]
    assert len(kept) == (2 if log_model == "all" else 1)
    assert all(name.startswith("epoch=0-step=") and "metadata" not in name for name in kept)
    assert "No space left on device" in " ".join(otel_ml_capture.notices)


def test_a_module_that_cannot_say_what_it_is_trains(line: ModuleType, otel_ml_capture: Capture) -> None:
    class Odd(line.Line):  # type: ignore[misc] # of a package without types
        def extra_repr(self) -> str:
            raise AttributeError("not set up yet")

    fitted = line.trainer(logger=line.OtelMLLogger(log_model=False), enable_checkpointing=False)
    fitted.fit(Odd(), line.loader())

    assert otel_ml_capture.values("loss") == [float(step) for step in range(line.BATCHES)]
    assert "not set up yet" in " ".join(otel_ml_capture.notices)


def test_what_is_no_mapping_is_said(line: ModuleType, otel_ml_capture: Capture) -> None:
    line.OtelMLLogger(log_model=False).log_metrics(0.5, step=3)

    assert "log()" in otel_ml_capture.notices[0]
