from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

import otel_ml
from otel_ml.compat.itwinai import (
    ConsoleLogger,
    EmptyLogger,
    Logger,
    LoggersCollection,
    MLFlowLogger,
    TensorBoardLogger,
    WandBLogger,
    get_mlflow_logger,
)
from otel_ml.testing import Capture
from tests.e2e.jobs import answer_of, the_run_in

EVERY = [ConsoleLogger, MLFlowLogger, TensorBoardLogger, WandBLogger, Logger]


@pytest.mark.feature("I5", "yes", "create, destroy, `with`, and both guards")
@pytest.mark.parametrize("make", EVERY)
def test_logging_before_there_is_a_context_is_an_error(make: type[Logger]) -> None:
    with pytest.raises(RuntimeError, match=r"create_logger_context\(\).*itwinai-no-context"):
        make().log(0.5, "loss")
    with pytest.raises(RuntimeError):
        make().save_hyperparameters({"lr": 0.1})
    with pytest.raises(RuntimeError):
        make().destroy_logger_context()


@pytest.mark.parametrize("name", ["runs", "lr%3D0.1", "100%"])
def test_mlflows_database_is_in_the_folder_of_runs_whatever_that_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path / name))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    uri = MLFlowLogger().tracking_uri

    (tmp_path / name).mkdir()
    engine = create_engine(uri)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE made (x INTEGER)"))
    engine.dispose()
    assert (tmp_path / name / "mlflow.db").stat().st_size > 0


@pytest.mark.parametrize("make", [MLFlowLogger, lambda: LoggersCollection([ConsoleLogger(), TensorBoardLogger()])])
def test_a_second_context_is_logged_as_a_warning_and_changes_nothing(
    otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture, make: Callable[[], Logger]
) -> None:
    logger = make()
    first = logger.create_logger_context(rank=0)
    caplog.clear()

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as `python -W error`: it logs, as itwinai does, and raises nothing
        second = logger.create_logger_context(rank=3)

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"Trying to initialize {type(logger).__name__} twice.. Skipping initialization.")
    ]
    assert first == second == logger.run_id
    assert logger.worker_rank == 0
    logger.destroy_logger_context()
    assert not logger.is_initialized


def test_destroying_a_context_twice_is_an_error_and_a_block_may_do_it_once(otel_ml_capture: Capture) -> None:
    collection = LoggersCollection([ConsoleLogger(), TensorBoardLogger()])

    with collection.start_logging():
        collection.destroy_logger_context()

    with pytest.raises(RuntimeError, match="LoggersCollection has not been initialized"):
        collection.destroy_logger_context()


@pytest.mark.feature("I1", "yes", "log(item, identifier, kind, step, batch_idx)")
def test_a_context_manager_records_inside_and_not_after(otel_ml_capture: Capture) -> None:
    logger = TensorBoardLogger(log_freq=2)

    with logger.start_logging(rank=0) as same:
        for batch in range(5):
            same.log(batch / 10, "loss", kind="metric", step=batch, batch_idx=batch)
        same.log(7.0, "loss_epoch", step=0)

    with pytest.raises(RuntimeError):
        logger.log(1.0, "loss")
    assert otel_ml_capture.values("loss") == [0.0, 0.2, 0.4]
    assert otel_ml_capture.values("loss_epoch") == [7.0]


def test_a_worker_that_does_not_log_needs_no_run_and_no_if(otel_ml_capture: Capture) -> None:
    logger = WandBLogger(log_on_workers=0)

    with logger.start_logging(rank=1):
        logger.log(0.5, "loss", step=0)
        logger.save_hyperparameters({"lr": 0.1})
        assert logger.run_id is None

    assert otel_ml_capture.points == []
    assert [event for event in otel_ml_capture.events if event.kind == "ml.params"] == []


@pytest.mark.parametrize("is_in_collection", [False, True])
def test_a_worker_that_is_named_after_the_context_was_created_logs_in_the_next_one(
    otel_ml_capture: Capture, is_in_collection: bool
) -> None:
    one = ConsoleLogger(log_on_workers=0)
    logger = LoggersCollection([one, TensorBoardLogger()]) if is_in_collection else one

    with logger.start_logging(rank=1):
        one.log_on_workers = -1
        logger.log(0.5, "loss", step=0)
    assert otel_ml_capture.points == []
    with logger.start_logging(rank=1):
        logger.log(0.5, "loss", step=1)

    assert {point.step for point in otel_ml_capture.points} == {1}


def test_a_run_that_was_there_before_is_not_ended_by_the_context(otel_ml_capture: Capture) -> None:
    with ConsoleLogger().start_logging():
        pass

    otel_ml.log({"loss": 0.25}, step=0)
    assert otel_ml_capture.values("loss") == [0.25]


@pytest.mark.feature("I7", "yes", "save_hyperparameters()")
def test_hyperparameters_are_recorded(otel_ml_capture: Capture) -> None:
    with MLFlowLogger().start_logging() as logger:
        logger.save_hyperparameters({"lr": 0.1, "layers": [3, 4]})

    [event] = [event for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert event.body == {"lr": 0.1, "layers": [3, 4]}


@pytest.mark.feature("I6", "better", "a collection is one run in all backends, each value recorded once")
def test_a_collection_records_once_what_one_of_its_loggers_lets_pass(otel_ml_capture: Capture) -> None:
    logger = LoggersCollection(
        [MLFlowLogger(log_freq="epoch"), TensorBoardLogger(log_freq=3), WandBLogger(log_freq=2), EmptyLogger()]
    )

    with logger.start_logging(rank=0):
        for batch in range(7):
            logger.log(float(batch), "loss", step=batch, batch_idx=batch)
        logger.log(1.0, "epoch_loss", step=0)
        assert {one.run_id for one in logger.loggers[:3]} == {logger.run_id}

    assert otel_ml_capture.values("loss") == [0.0, 2.0, 3.0, 4.0, 6.0]
    [point] = [point for point in otel_ml_capture.points if point.name == "epoch_loss"]
    assert point.count == 1


def test_a_collection_has_one_logger_of_each_type() -> None:
    with pytest.raises(ValueError, match="More than one MLFlowLogger"):
        LoggersCollection([MLFlowLogger(), TensorBoardLogger(), MLFlowLogger()])


def test_the_logger_for_mlflow_is_found_in_collections() -> None:
    mlflow = MLFlowLogger()

    assert get_mlflow_logger(LoggersCollection([TensorBoardLogger(), LoggersCollection([mlflow])])) is mlflow
    assert get_mlflow_logger(mlflow) is mlflow
    assert get_mlflow_logger(TensorBoardLogger()) is None
    assert get_mlflow_logger(None) is None


def test_an_empty_logger_takes_everything_and_does_nothing(otel_ml_capture: Capture) -> None:
    with EmptyLogger().start_logging(rank=0) as logger, warnings.catch_warnings():
        logger.log(object(), "x", kind="nothing", step="later")
        logger.save_hyperparameters({"lr": 1})

    assert otel_ml_capture.points == []


def test_what_programs_ask_a_logger_for_is_there(tmp_path: Path) -> None:
    logger = TensorBoardLogger(savedir=str(tmp_path))
    logger.log_freq, logger.log_on_workers = 2, [1, 2]
    logger.worker_rank = 1

    assert [batch for batch in range(5) if logger.should_log(batch)] == [0, 2, 4]
    assert logger.has_several
    assert logger.savedir / "net.pt" == tmp_path / "net.pt"
    assert {"metric", "image"} <= set(TensorBoardLogger.supported_kinds)
    with pytest.raises(ValueError, match="log_freq='never'"):
        logger.log_freq = "never"
    assert logger.log_freq == 2


def test_calls_of_mlflow_s_module_record_into_the_run_of_the_context(otel_ml_capture: Capture) -> None:
    logger = MLFlowLogger(experiment_name="digits")

    with logger.start_logging():
        logger.mlflow.log_metric("loss", 0.5, step=3)
        assert logger.active_run is logger.mlflow.active_run()
        assert logger.active_run.info.run_id == logger.run_id
        trial = MLFlowLogger()
        with trial.start_logging(parent_run_id=logger.run_id, run_name="trial_0"):
            trial.mlflow.log_metric("loss", 0.25, step=3)
        logger.mlflow.log_param("lr", 0.1)

    assert logger.mlflow.active_run() is None
    assert {point.name: point.value for point in otel_ml_capture.points} == {"loss": 0.5, "trial_0/loss": 0.25}
    assert [event.body for event in otel_ml_capture.events if event.kind == "ml.params"][-1] == {"lr": 0.1}


def test_a_trainer_that_begins_its_run_by_mlflow_itself_is_in_mlflow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlflow_database: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")
    (tmp_path / "otel-ml-runs").mkdir()
    shutil.copy(mlflow_database, tmp_path / "otel-ml-runs" / "mlflow.db")
    collection = LoggersCollection([MLFlowLogger(experiment_name="digits"), TensorBoardLogger()])
    logger = get_mlflow_logger(collection)
    assert logger is not None
    begun = logger.mlflow.start_run(experiment_id=logger.resolve_experiment_id(), run_name="train")
    logger.mlflow.end_run()

    collection.create_logger_context(rank=0, parent_run_id=begun.info.run_id, run_name="worker_0")
    assert logger.active_run is not None
    assert logger.active_run.info.run_id == begun.info.run_id
    collection.log(0.5, "loss", step=3)
    collection.destroy_logger_context()

    assert logger.experiment_name == "digits"
    run = the_run_in(tmp_path / "otel-ml-runs")
    for backend in ("mlflow", "tensorboard"):
        scalars = answer_of(backend, run)["scalars"]
        assert ["worker_0/loss", "step", 3, 0.5] in [scalar[:4] for scalar in scalars], backend


def test_another_framework_than_the_two_is_refused() -> None:
    with pytest.raises(ValueError, match="framework='jax'"):
        TensorBoardLogger(framework="jax")  # type: ignore[arg-type]


def test_a_logger_that_is_used_again_begins_a_new_run_unless_it_was_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")
    logger, given = Logger(), Logger(run_id="mine")
    runs = []
    for used in (logger, logger, given, given):
        with used.start_logging():
            runs.append(used.run_id)

    assert runs[0] != runs[1]
    assert runs[2:] == ["mine", "mine"]


def test_a_second_logger_that_is_not_in_a_collection_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own this begins a run: here the run is the first logger's."""
    from otel_ml._internal.error_reporting import reporter

    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")
    with TensorBoardLogger().start_logging(), WandBLogger().start_logging():
        assert any("LoggersCollection" in sentence for sentence in reporter._said)


@pytest.mark.feature("I9", "better", "one run: the mean over workers, each worker's own curve, its own parameters")
def test_several_workers_are_one_curve_and_a_curve_each(otel_ml_capture: Capture) -> None:
    with MLFlowLogger(log_on_workers=-1).start_logging(rank=1) as logger:
        logger.log(0.5, "loss", step=3)
        logger.log(1, "global_rank", kind="param")
        logger.log("ddp", "strategy", kind="param")

    [point] = otel_ml_capture.points
    assert (point.name, point.step, point.reduction) == ("loss", 3, "last>mean,rank")
    assert [event.body for event in otel_ml_capture.events if event.kind == "ml.params"] == [
        {"worker_1": {"global_rank": 1}},
        {"worker_1": {"strategy": "ddp"}},
    ]


@pytest.mark.feature("I8", "better", "a nested run is a part of its parent's run, also from another process")
def test_a_nested_run_is_a_part_of_the_run_that_is_active(otel_ml_capture: Capture) -> None:
    tune, trial = MLFlowLogger(run_name="tune"), MLFlowLogger()

    with tune.start_logging(), trial.start_logging(parent_run_id=tune.run_id, run_name="trial_0"):
        trial.log(0.5, "loss", step=0)
        tune.log(0.4, "best", step=0)
        assert trial.run_id == tune.run_id

    assert {point.name for point in otel_ml_capture.points} == {"trial_0/loss", "best"}
    [event] = [event for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert event.body == {"trial_0": {"parent_run_id": tune.run_id}}
