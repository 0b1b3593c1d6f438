"""JAX's arrays in CPU memory are read as numpy's are; one on a device is not, as that would wait for it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_ml.compat import mlflow, wandb
from otel_ml.compat.itwinai import ConsoleLogger
from otel_ml.compat.verl.file_logger import FileLogger
from otel_ml.testing import Capture


@dataclass(frozen=True)
class Device:
    platform: str
    id: int = 0


class OfJax:
    """As measured of jaxlib 0.10.2: no `numbers.Real`, and a device that is no text and has a platform, but no type."""

    def __init__(self, value: object, platform: str = "cpu") -> None:
        self._value = np.asarray(value, dtype="float32")
        self.device = Device(platform)
        self.shape, self.ndim, self.size = self._value.shape, self._value.ndim, self._value.size
        self.dtype = self._value.dtype

    def devices(self) -> set[Device]:
        return {self.device}

    def is_ready(self) -> bool:
        return self.device.platform == "cpu"

    def reshape(self, *shape: Any) -> OfJax:
        return OfJax(self._value.reshape(*shape), self.device.platform)

    def item(self) -> float:
        return self._read().item()

    def tolist(self) -> Any:
        return self._read().tolist()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._read()

    def __float__(self) -> float:
        return float(self._read())

    def __repr__(self) -> str:
        return f"Array({self._read()}, dtype=float32)"

    def _read(self) -> Any:
        assert self.is_ready(), "reading it waits for the device"
        return self._value


ROW = {"loss": OfJax(0.5), "one": OfJax([0.25]), "several": OfJax([1.0, 2.0]), "far": OfJax(4.0, "gpu")}


def test_wandb_has_what_is_in_memory_in_its_summary(otel_ml_capture: Capture) -> None:
    with wandb.init(project="digits") as run:
        wandb.log({**ROW, "listed": [OfJax(1.0), OfJax(2.0)]}, step=0)
        run.summary["best"] = OfJax(0.125)

        found = dict(run.summary)
    assert found == {"loss": 0.5, "one": 0.25, "several": [1.0, 2.0], "listed": [1.0, 2.0], "best": 0.125}
    assert not otel_ml_capture.notices


def test_mlflow_has_what_is_in_memory_in_the_metrics_of_a_run(otel_ml_capture: Capture) -> None:
    with mlflow.start_run() as run:
        mlflow.log_metrics({name: ROW[name] for name in ("loss", "one", "far")}, step=0)

        assert run.data.metrics == {"loss": 0.5, "one": 0.25}
    assert otel_ml_capture.values("loss") == [0.5]


def test_verls_file_has_what_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    logger = FileLogger("digits", "first")
    logger.log(ROW, OfJax(3))
    logger.finish()

    assert json.loads(Path(logger.filepath).read_text()) == {
        "step": 3,
        "data": {"loss": 0.5, "one": [0.25], "several": [1.0, 2.0]},
    }


def test_itwinais_console_does_not_wait_for_a_device(
    otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), ConsoleLogger().start_logging() as logger:
        logger.log(ROW["loss"], "loss", step=0)
        logger.log(ROW["far"], "far", step=0)

    assert "loss = Array(0.5" in caplog.text
    assert "far" not in caplog.text
