"""A step that is a whole number is one in every layer, whatever its type: TensorBoard and MLflow take 3.0, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml.compat.forge import LoggingMode, MetricCollector, record_metric
from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.compat.itwinai import TensorBoardLogger
from otel_ml.compat.megatron import Timers
from otel_ml.compat.nemo_rl import Logger
from otel_ml.compat.roll import create_tracker
from otel_ml.compat.verl import Tracking
from otel_ml.testing import Capture


@pytest.fixture(autouse=True)
def nothing_is_held() -> Iterator[None]:
    COLLECTOR.forget()
    yield
    COLLECTOR.forget()


def nemo_rl(step: Any) -> None:
    Logger({"log_dir": "logs"}).log_metrics({"loss": 0.5}, step)


def roll(step: Any) -> None:
    create_tracker("jsonl", {}).log({"loss": 0.5}, step)


def itwinai(step: Any) -> None:
    with TensorBoardLogger().start_logging() as logger:
        logger.log(0.5, "loss", step=step)


def megatron(step: Any) -> None:
    timers = Timers(0, "max")
    timers("loss", log_level=0).set_elapsed(0.5)
    timers.write(["loss"], None, step)


def forge(step: Any) -> None:
    COLLECTOR.begin([LoggingMode.GLOBAL_REDUCE], 0)
    record_metric("loss", 0.5)
    asyncio.run(MetricCollector().flush(step))


def verl(step: Any) -> None:
    Tracking("grpo", "dev", default_backend="console").log({"loss": 0.5}, step)


@pytest.mark.parametrize("step", [3, 3.0, np.int32(3), np.float64(3.0), torch.tensor(3)], ids=repr)
@pytest.mark.parametrize("log", [nemo_rl, roll, itwinai, megatron, forge, verl])
def test_a_whole_number_of_another_type_is_a_step(
    otel_ml_capture: Capture, tmp_path: Path, log: Callable[[Any], None], step: Any
) -> None:
    log(step)

    [point] = [point for point in otel_ml_capture.points if point.name in {"loss", "loss-time"}]
    assert (point.step, point.value) == (3, 0.5)
