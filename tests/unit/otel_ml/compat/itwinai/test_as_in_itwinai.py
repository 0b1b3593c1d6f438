"""Held against itwinai's own loggers: what raises nothing there raises nothing here, and what is not here is said."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.compat.itwinai import (
    ConsoleLogger,
    Logger,
    LoggersCollection,
    Prov4MLLogger,
    TensorBoardLogger,
    WandBLogger,
)
from otel_ml.exceptions import MissingDependencyError
from otel_ml.testing import Capture


class Refusing(Logger):
    """One of the program's, whose context cannot be created."""

    def create_logger_context(self, rank: int = 0, **kwargs: Any) -> str | None:
        raise OSError("no space left")


def test_a_console_logger_goes_on_showing_after_its_context_and_says_that_nothing_is_recorded(
    otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    logger = ConsoleLogger()
    with logger.start_logging():
        logger.log(0.5, "loss", step=0)
    caplog.clear()

    with caplog.at_level(logging.INFO):
        logger.log(0.25, "loss", step=1)
        logger.log("a text", "note", kind="text")
        logger.save_hyperparameters({"lr": 0.1})
        logger.destroy_logger_context()

    assert "ConsoleLogger: loss = 0.25" in caplog.text
    assert caplog.text.count("has no context anymore") == 1
    assert otel_ml_capture.values("loss") == [0.5]
    assert not [event for event in otel_ml_capture.events if event.kind == "ml.params"]


def test_a_console_logger_that_never_had_a_context_raises_as_the_others() -> None:
    with pytest.raises(RuntimeError):
        ConsoleLogger().log(0.5, "loss")


def test_a_context_that_could_not_be_created_is_none(otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = Prov4MLLogger()
    with monkeypatch.context() as lacking:
        lacking.setitem(sys.modules, "prov.model", None)
        with pytest.raises(MissingDependencyError):
            logger.create_logger_context()

    with pytest.raises(RuntimeError, match="has not been initialized"):
        logger.log(0.5, "loss", step=0)
    with logger.start_logging():
        logger.log(0.25, "loss", step=1)
    assert otel_ml_capture.values("loss") == [0.25]


def test_a_run_that_a_context_has_begun_ends_where_it_could_not_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")
    monkeypatch.setitem(sys.modules, "prov.model", None)
    with pytest.raises(MissingDependencyError):
        Prov4MLLogger().create_logger_context()

    assert not RUNTIME.is_active


@pytest.mark.parametrize("last", [Prov4MLLogger, Refusing])
def test_a_collection_of_which_one_has_no_context_has_none(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch, last: type[Logger]
) -> None:
    monkeypatch.setitem(sys.modules, "prov.model", None)
    first = TensorBoardLogger()
    collection = LoggersCollection([first, last()])
    with pytest.raises((MissingDependencyError, OSError)):
        collection.create_logger_context()

    for logger in (collection, first):
        with pytest.raises(RuntimeError, match="has not been initialized"):
            logger.log(0.5, "loss", step=0)
    assert not otel_ml_capture.points


def test_a_logger_that_is_for_no_worker_logs_on_none(otel_ml_capture: Capture) -> None:
    logger = TensorBoardLogger(log_on_workers=None)

    with logger.start_logging():
        logger.log(0.5, "loss", step=0)

    assert not logger.should_log()
    assert not otel_ml_capture.points


def test_a_framework_is_known_by_its_small_letters() -> None:
    assert TensorBoardLogger(framework="PyTorch").framework == "pytorch"  # type: ignore[arg-type]


def test_a_provenance_logger_knows_what_it_was_given(tmp_path: Path) -> None:
    logger = Prov4MLLogger(experiment_name="digits", provenance_save_dir=tmp_path)

    assert (logger.experiment_name, logger.provenance_save_dir) == ("digits", str(tmp_path))


@pytest.mark.parametrize(
    ("logger", "name", "instead"),
    [
        (TensorBoardLogger(), "writer", "otel_ml.compat.tensorboard.SummaryWriter"),
        (WandBLogger(), "wandb", "otel_ml.compat.wandb"),
        (ConsoleLogger(), "run_path", "otel_ml.init().dir"),
        (Prov4MLLogger(), "yprov4ml", "otel_ml writes the documents itself"),
    ],
)
def test_an_attribute_of_the_original_that_is_not_here_says_what_to_use(
    logger: Logger, name: str, instead: str
) -> None:
    with pytest.raises(AttributeError, match=rf"{type(logger).__name__} has no '{name}'") as error:
        getattr(logger, name)

    assert instead in str(error.value)
    assert not hasattr(logger, "anything_else")


def test_a_provenance_logger_takes_none_where_itwinai_documents_it(otel_ml_capture: Capture, tmp_path: Path) -> None:
    logger = Prov4MLLogger(provenance_save_dir=tmp_path, save_after_n_logs=None, create_graph=None, create_svg=None)

    with logger.start_logging():
        logger.log(0.5, "loss", step=0, context=None)
        run_id = logger.run_id

    assert (tmp_path / str(run_id) / "metrics" / "training" / "loss.csv").exists()
    assert not list(tmp_path.rglob("*.dot"))
