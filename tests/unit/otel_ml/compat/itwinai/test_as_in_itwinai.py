"""Held against itwinai's own loggers: what raises nothing there raises nothing here, and what is not here is said."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from otel_ml.compat.itwinai import ConsoleLogger, Logger, Prov4MLLogger, TensorBoardLogger, WandBLogger
from otel_ml.testing import Capture


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
