"""Loggers that a program derives from itwinai's: alone, and in a collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from otel_ml.compat.itwinai import ConsoleLogger, EmptyLogger, Logger, LoggersCollection, TensorBoardLogger
from otel_ml.testing import Capture
from tests.unit.otel_ml.compat.recorded import params


class CsvLogger(Logger):
    """As itwinai has its loggers written: every verb is its own, and it has no part in a run."""

    def __init__(self) -> None:
        super().__init__(savedir="csv", log_freq="batch", log_on_workers=-1)
        self.calls: list[tuple[Any, ...]] = []

    def create_logger_context(self, rank: int = 0, **kwargs: Any) -> None:
        self.calls.append(("create", rank, kwargs))
        self.is_initialized = True

    def destroy_logger_context(self) -> None:
        self.calls.append(("destroy",))
        self.is_initialized = False

    def save_hyperparameters(self, params: Mapping[str, Any]) -> None:
        self.calls.append(("params", params))

    def log(
        self,
        item: Any,
        identifier: str,
        kind: str = "metric",
        step: int | None = None,
        batch_idx: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.calls.append((item, identifier, kind, step, batch_idx, kwargs))


class Percent(TensorBoardLogger):
    """Adds to what it is given, and leaves the rest to its base."""

    def log(self, item: Any, identifier: str, *arguments: Any, **keywords: Any) -> None:
        super().log(item * 100, f"{identifier}_percent", *arguments, **keywords)


class Told(ConsoleLogger):
    """Has a context of its own, which it adds to that of its base."""

    told = ""

    def create_logger_context(self, rank: int = 0, **kwargs: Any) -> str | None:
        self.told = "begun"
        return super().create_logger_context(rank, **kwargs)

    def destroy_logger_context(self) -> None:
        self.told = "ended"
        super().destroy_logger_context()


def test_a_logger_of_the_programs_own_is_called_in_a_collection_as_in_itwinai(otel_ml_capture: Capture) -> None:
    own = CsvLogger()
    logger = LoggersCollection([ConsoleLogger(), LoggersCollection([own]), EmptyLogger()])

    with logger.start_logging(rank=0):
        logger.log(0.5, "loss", step=3, batch_idx=1, context="validation")
        logger.log(item=0.25, identifier="epoch_loss")
        logger.save_hyperparameters({"lr": 0.1})

    assert own.calls[1:-1] == [
        (0.5, "loss", "metric", 3, 1, {"context": "validation"}),
        (0.25, "epoch_loss", "metric", None, None, {}),
        ("params", {"lr": 0.1}),
    ]
    assert (own.calls[0], own.calls[-1]) == (("create", 0, {}), ("destroy",))
    assert {point.name: point.value for point in otel_ml_capture.points} == {"epoch_loss": 0.25}
    assert params(otel_ml_capture) == {"lr": 0.1}


def test_a_logger_that_is_called_twice_for_a_context_begins_one(otel_ml_capture: Capture) -> None:
    own = CsvLogger()
    logger = LoggersCollection([own])

    logger.create_logger_context(rank=2, run_name="trial")
    logger.create_logger_context(rank=3)
    logger.destroy_logger_context()

    assert own.calls == [("create", 2, {"run_name": "trial"}), ("destroy",)]


def test_a_logger_that_adds_to_its_base_records_both_in_the_run_of_its_collection(otel_ml_capture: Capture) -> None:
    logger = LoggersCollection([ConsoleLogger(), Percent()])

    with logger.start_logging():
        logger.log(0.5, "accuracy", step=1)

    assert {point.name: point.value for point in otel_ml_capture.points} == {"accuracy": 0.5, "accuracy_percent": 50.0}


def test_a_context_that_adds_to_its_base_is_that_of_its_collection_and_ends_with_it() -> None:
    told = Told()
    logger = LoggersCollection([TensorBoardLogger(), told])

    with logger.start_logging():
        assert (told.told, told.run_id) == ("begun", logger.run_id)
        logger.log(0.5, "loss", step=1)
    assert told.told == "ended"
    assert not told.has_joined


def test_a_collection_in_a_collection_logs_on_the_workers_that_its_loggers_name(otel_ml_capture: Capture) -> None:
    inner = TensorBoardLogger(log_on_workers=1)
    logger = LoggersCollection([ConsoleLogger(), LoggersCollection([inner])])

    with logger.start_logging(rank=1):
        assert (inner.worker_rank, inner.is_initialized) == (1, True)
        logger.log(0.5, "loss", step=3)

    assert {point.name: point.value for point in otel_ml_capture.points} == {"loss": 0.5}
    assert not inner.is_initialized


class Counting(TensorBoardLogger):
    """Counts, and gives on to its base what it was given, some of it by other names."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__(log_freq="batch")
        self.counted = 0
        self.fails = fails

    def log(
        self,
        item: Any,
        identifier: str,
        kind: str = "metric",
        step: int | None = None,
        batch_idx: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.counted += 1
        super().log(item, identifier, kind, step, batch_idx)
        if self.fails:
            raise RuntimeError("no room")


@pytest.mark.parametrize("nested", [False, True])
def test_what_a_logger_gives_on_as_it_is_is_recorded_once(otel_ml_capture: Capture, nested: bool) -> None:
    own = Counting()
    logger = LoggersCollection([ConsoleLogger(), LoggersCollection([own]) if nested else own])

    with logger.start_logging():
        logger.log("the first digits", "note", kind="text", step=0)
        logger.log(np.zeros((4, 4, 3)), "digit", kind="image", step=0, more=1)
        logger.log("a batch", "note", kind="text", step=1, batch_idx=3)

    of = [(event.kind, event.name, event.step) for event in otel_ml_capture.events if event.kind != "ml.params"]
    assert sorted(of) == [("ml.image", "digit", 0), ("ml.text", "note", 0), ("ml.text", "note", 1)]
    assert own.counted == 3
    assert not otel_ml_capture.notices


def test_a_logger_that_raises_after_its_base_costs_nothing_of_what_the_others_record(otel_ml_capture: Capture) -> None:
    logger = LoggersCollection([ConsoleLogger(), Counting(fails=True)])

    with logger.start_logging(), pytest.raises(RuntimeError, match="no room"):
        logger.log(0.5, "loss", step=1)

    assert otel_ml_capture.values("loss") == [0.5]


class Twice(TensorBoardLogger):
    """Gives the same to its base twice, as a program may that wants two."""

    def log(self, item: Any, identifier: str, *arguments: Any, **keywords: Any) -> None:
        for _ in range(2):
            super().log(item, identifier, *arguments, **keywords)


class Whole(LoggersCollection):
    """A collection whose verb is the program's own."""

    def log(self, item: Any, identifier: str, *arguments: Any, **keywords: Any) -> None:
        super().log(item, identifier, *arguments, **keywords)


def test_what_a_logger_gives_on_twice_is_recorded_twice(otel_ml_capture: Capture) -> None:
    with LoggersCollection([ConsoleLogger(), Twice()]).start_logging() as logger:
        logger.log("x", "note", kind="text", step=0)

    assert [event.name for event in otel_ml_capture.events if event.kind == "ml.text"] == ["note", "note"]


def test_a_collection_of_the_programs_own_in_a_collection_records_once(otel_ml_capture: Capture) -> None:
    with LoggersCollection([ConsoleLogger(), Whole([TensorBoardLogger()])]).start_logging() as logger:
        logger.log("x", "note", kind="text", step=0)

    assert [event.name for event in otel_ml_capture.events if event.kind == "ml.text"] == ["note"]
    assert not otel_ml_capture.notices
