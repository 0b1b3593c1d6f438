from __future__ import annotations

import pickle
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

import otel_ml
from otel_ml.compat.itwinai import LoggersCollection, MLFlowLogger
from otel_ml.testing import Capture, Event


@pytest.fixture
def line() -> ModuleType:
    """Return what needs Lightning; not at the top, where each process that collects tests would import it."""
    from tests.unit.otel_ml.integrations import line

    return line


def artifacts(capture: Capture) -> dict[str, Event]:
    return {f"{event.name}": event for event in capture.events if event.kind == "ml.artifact"}


def aliases(event: Event) -> list[str]:
    return list(event.attributes["ml.artifact.aliases"])


def test_what_lightning_logs_is_in_the_run_under_lightnings_steps(line: ModuleType, otel_ml_capture: Capture) -> None:
    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=False), callbacks=[line.OtelMLTiming()], enable_checkpointing=False
    )

    fitted.fit(line.Line(), line.loader(), line.loader())
    fitted.test(line.Line(), line.loader(), verbose=False)

    assert otel_ml_capture.values("loss") == [float(step) for step in range(line.BATCHES)]
    assert otel_ml_capture.values("val_loss") == [0.25]
    assert otel_ml_capture.values("test_loss") == [0.125]
    assert otel_ml_capture.values("epoch")[: line.BATCHES] == [0.0] * line.BATCHES
    params = [event.body for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert params == [{"width": 1}] * 2


def test_what_is_logged_without_a_step_is_a_row_each(line: ModuleType, otel_ml_capture: Capture) -> None:
    logger = line.OtelMLLogger(prefix="train", log_model=False)

    logger.log_metrics({"loss": 9.0}, step=4)
    for value in (3.0, 2.0):
        logger.log_metrics({"loss": value})

    found = {point.step: point.value for point in otel_ml_capture.points if point.name == "train/loss"}
    assert found == {4: 9.0, 5: 3.0, 6: 2.0}


def test_a_second_logger_of_the_run_goes_on_after_the_rows_of_the_first(
    line: ModuleType, otel_ml_capture: Capture
) -> None:
    for values in ((3.0, 2.0), (1.0,)):
        logger = line.OtelMLLogger(log_model=False)
        for value in values:
            logger.log_metrics({"loss": value})

    assert otel_ml_capture.values("loss") == [3.0, 2.0, 1.0]


def test_of_two_validations_at_one_step_the_last_counts(line: ModuleType, otel_ml_capture: Capture) -> None:
    class Better(line.Line):
        accuracy = 0.25

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("accuracy", self.accuracy)

    fitted = line.trainer(logger=line.OtelMLLogger(log_model=False), enable_checkpointing=False)
    module = Better()
    fitted.validate(module, line.loader(), verbose=False)
    module.accuracy = 0.75
    fitted.validate(module, line.loader(), verbose=False)

    assert otel_ml_capture.values("accuracy") == [0.75]


def test_each_phase_of_a_batch_is_timed_at_the_step_under_which_lightning_logs(
    line: ModuleType, otel_ml_capture: Capture
) -> None:
    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=False), callbacks=[line.OtelMLTiming()], enable_checkpointing=False
    )

    fitted.fit(line.Line(), line.loader(), line.loader())

    for phase in ("data", "batch", "forward", "backward", "optimizer"):
        steps = sorted(point.step for point in otel_ml_capture.points if point.name == f"time/{phase}")
        assert steps == list(range(line.BATCHES)), phase
        assert [point.count for point in otel_ml_capture.points if point.name == f"time/{phase}"] == [1] * line.BATCHES
    times = {point.name: point for point in otel_ml_capture.points if point.step == 1}
    phases = sum(times[f"time/{phase}"].value for phase in ("forward", "backward", "optimizer"))
    assert 0 < phases <= times["time/batch"].value
    assert [point.count for point in otel_ml_capture.points if point.name == "time/validation"] == [1]


def test_with_gradient_accumulation_the_batches_of_a_step_add_up(line: ModuleType, otel_ml_capture: Capture) -> None:
    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=False),
        callbacks=[line.OtelMLTiming()],
        enable_checkpointing=False,
        accumulate_grad_batches=2,
    )

    fitted.fit(line.Line(), line.loader())

    counts: dict[int | None, int] = {}
    for point in otel_ml_capture.points:
        if point.name == "time/forward":
            counts[point.step] = counts.get(point.step, 0) + point.count
    assert counts == {0: 2, 1: 2, 2: 1}


def test_what_the_module_records_itself_is_at_the_same_step(line: ModuleType, otel_ml_capture: Capture) -> None:
    class Recording(line.Line):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            otel_ml.log({"mine": batch_idx * 2.0})
            return super().training_step(batch, batch_idx)

    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=False), callbacks=[line.OtelMLTiming()], enable_checkpointing=False
    )
    fitted.fit(Recording(), line.loader())

    assert otel_ml_capture.values("mine") == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_a_batch_that_fails_stops_its_timers_and_the_run_says_so(line: ModuleType, otel_ml_capture: Capture) -> None:
    class Failing(line.Line):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise ZeroDivisionError

    fitted = line.trainer(logger=line.OtelMLLogger(), callbacks=[line.OtelMLTiming()], enable_checkpointing=False)
    with pytest.raises(ZeroDivisionError):
        fitted.fit(Failing(), line.loader())

    assert [point.count for point in otel_ml_capture.points if point.name == "time/batch"] == [1]
    [ended] = [event for event in otel_ml_capture.events if event.kind == "lightning.finalize"]
    assert ended.attributes["status"] == "failed"


def test_every_method_of_lightnings_logger_does_something_or_says_why_not(
    line: ModuleType, otel_ml_capture: Capture
) -> None:
    logger = line.OtelMLLogger(prefix="train", log_model=False)

    assert isinstance(logger, line.Logger)
    run = logger.experiment
    assert (logger.name, logger.version) == (run.experiment, run.id)
    assert logger.log_dir == str(run.dir)
    assert Path(str(logger.save_dir), logger.name, logger.version) == run.dir
    assert Path(str(logger.root_dir), logger.version) == run.dir
    logger.log_metrics({"loss": 0.5}, step=3)
    logger.log_hyperparams(Namespace(lr=0.1))
    logger.log_hyperparams({"depth": 2}, more=True)
    logger.log_hyperparams()
    model = line.Line()
    logger.log_graph(model)
    logger.log_graph(model)
    logger.save()
    logger.finalize("success")

    assert otel_ml_capture.values("train/loss") == [0.5]
    bodies = [event.body for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert bodies == [{"lr": 0.1}, {"depth": 2}, {"more": True}]
    assert "Linear" in str(next(event.body for event in otel_ml_capture.events if event.kind == "ml.text"))
    assert [sentence.partition(":")[0] for sentence in otel_ml_capture.notices] == ["OtelMLLogger.log_graph()"]


def test_metrics_beside_hyperparameters_are_recorded_as_lightnings_tensorboard_logger_does(
    line: ModuleType, otel_ml_capture: Capture
) -> None:
    logger = line.OtelMLLogger(prefix="train")

    logger.log_hyperparams({"lr": 0.1}, {"hp/loss": np.array([0.5])})
    logger.log_hyperparams(params={"depth": 2}, metrics={"hp/loss": 0.25}, step=3)
    logger.log_hyperparams({"width": 4}, 0.75)

    recorded = {(point.name, point.step): point.value for point in otel_ml_capture.points}
    assert recorded == {
        ("train/hp/loss", 0): 0.5, ("train/hp/loss", 3): 0.25, ("train/hp_metric", 3): 0.75,
    }  # fmt: skip
    bodies = [event.body for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert bodies == [{"lr": 0.1}, {"depth": 2}, {"width": 4}]
    assert otel_ml_capture.notices == []


@pytest.mark.feature("I10", "better", "checkpoint, metadata, aliases; the best, the last or all; timers of all ranks")
def test_the_checkpoints_that_remain_are_kept_with_metadata_and_aliases(
    line: ModuleType, otel_ml_capture: Capture, tmp_path: Path
) -> None:
    class Worse(line.Line):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", 1.0 + self.current_epoch)

    saving = line.ModelCheckpoint(tmp_path / "saved", "{epoch}", monitor="val_loss", save_top_k=1, save_last=True)
    fitted = line.trainer(logger=line.OtelMLLogger(), callbacks=[saving])
    fitted.fit_loop.max_epochs = 2

    fitted.fit(Worse(), line.loader(), line.loader())

    kept = artifacts(otel_ml_capture)
    assert set(kept) == {"epoch=0", "epoch=0/metadata", "last", "last/metadata"}
    assert aliases(kept["epoch=0"]) == ["best"]
    assert aliases(kept["last"]) == ["latest"]
    assert kept["epoch=0"].attributes["ml.artifact.type"] == "checkpoint"
    assert kept["epoch=0"].body == (tmp_path / "saved" / "epoch=0.ckpt").read_bytes()
    metadata = yaml.safe_load(kept["epoch=0/metadata"].body)
    assert metadata["score"] == 1.0
    assert metadata["original_filename"] == "epoch=0.ckpt"
    assert (metadata["ModelCheckpoint"]["monitor"], metadata["ModelCheckpoint"]["save_top_k"]) == ("val_loss", 1)


def test_all_checkpoints_are_kept_as_they_are_saved(line: ModuleType, otel_ml_capture: Capture, tmp_path: Path) -> None:
    saving = line.ModelCheckpoint(tmp_path / "saved", "{step}", save_top_k=-1, every_n_train_steps=2)
    line.trainer(logger=line.OtelMLLogger(log_model="all"), callbacks=[saving]).fit(line.Line(), line.loader())

    kept = [
        event for event in otel_ml_capture.events if event.kind == "ml.artifact" and "metadata" not in str(event.name)
    ]
    assert [(event.name, event.step) for event in kept][:2] == [("step=2", 2), ("step=4", 4)]
    assert all("latest" in aliases(event) for event in kept)


def test_every_state_is_kept_once_also_where_the_last_one_is_saved_too(
    line: ModuleType, otel_ml_capture: Capture, tmp_path: Path
) -> None:
    class Better(line.Line):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", 1.0 - self.current_epoch)

    saving = line.ModelCheckpoint(tmp_path / "saved", "{epoch}", monitor="val_loss", save_top_k=2, save_last=True)
    fitted = line.trainer(logger=line.OtelMLLogger(log_model="all"), callbacks=[saving])
    fitted.fit_loop.max_epochs = 3

    fitted.fit(Better(), line.loader(), line.loader())

    kept = [event for event in otel_ml_capture.events if event.kind == "ml.artifact" and "/" not in str(event.name)]
    assert [event.name for event in kept] == ["epoch=0", "last", "epoch=1", "last", "epoch=2", "last"]
    assert [event.name for event in kept if "best" in aliases(event)][-1] == "epoch=2"


def test_a_logger_survives_being_sent_to_another_process(line: ModuleType, otel_ml_capture: Capture) -> None:
    logger = line.OtelMLLogger(prefix="train")

    sent = pickle.loads(pickle.dumps(logger))

    assert sent.version == logger.version


def test_lightning_logs_through_the_loggers_of_itwinai(
    line: ModuleType, otel_ml_capture: Capture, tmp_path: Path
) -> None:
    collection = LoggersCollection([MLFlowLogger(log_freq="epoch")])
    logger = line.ItwinaiLogger(collection, log_model=True)
    saving = line.ModelCheckpoint(tmp_path / "saved", "best", monitor="val_loss")

    line.trainer(logger=logger, callbacks=[saving]).fit(line.Line(width=3), line.loader(), line.loader())

    assert otel_ml_capture.values("loss") == [float(step) for step in range(line.BATCHES)]
    assert [event.body for event in otel_ml_capture.events if event.kind == "ml.params"] == [{"width": 3}]
    assert set(artifacts(otel_ml_capture)) == {"best", "best/metadata"}
    assert aliases(artifacts(otel_ml_capture)["best"]) == ["latest", "best"]
    assert not collection.is_initialized


def test_a_context_that_the_program_created_is_left_to_it(line: ModuleType, otel_ml_capture: Capture) -> None:
    inner = MLFlowLogger(experiment_name="digits")
    with inner.start_logging():
        logger = line.ItwinaiLogger(inner)
        assert (logger.name, logger.version, logger.save_dir) == (inner.experiment_id, inner.run_id, "mllogs")
        logger.finalize("success")
        assert inner.is_initialized


def shared(line: ModuleType) -> Any:
    """Return a module whose steps share what they record, as most are written."""

    class Shared(line.Line):
        def shared(self, value: float) -> None:
            otel_ml.log({"mse": value})

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.shared(1.0)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.shared(50.0)
            super().validation_step(batch, batch_idx)

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.shared(70.0)

        def predict_step(self, batch: Any, batch_idx: int) -> None:
            self.shared(90.0)

    return Shared()


def mse(capture: Capture) -> dict[tuple[str, int | None], float]:
    """Return the mean of each name and step."""
    return {
        (point.name, point.step): point.value / point.count for point in capture.points if point.name.endswith("mse")
    }


@pytest.mark.parametrize("timing", [True, False], ids=["with OtelMLTiming", "the logger alone"])
def test_what_a_shared_step_records_is_of_the_stage_it_is_called_in(
    line: ModuleType, otel_ml_capture: Capture, timing: bool
) -> None:
    callbacks = [line.OtelMLTiming()] if timing else []
    fitted = line.trainer(
        logger=line.OtelMLLogger(log_model=False), callbacks=callbacks, enable_checkpointing=False, val_check_interval=3
    )
    module = shared(line)

    fitted.fit(module, line.loader(), line.loader())
    fitted.test(module, line.loader(), verbose=False)
    fitted.predict(module, line.loader())

    assert mse(otel_ml_capture) == {
        **{("mse", step): 1.0 for step in range(line.BATCHES)},
        ("eval/mse", 2): 50.0,
        ("test/mse", line.BATCHES - 1): 70.0,
        ("predict/mse", line.BATCHES - 1): 90.0,
    }
    assert {point.step for point in otel_ml_capture.points if point.name == "val_loss"} == {2}


def test_the_sanity_check_is_not_recorded(line: ModuleType, otel_ml_capture: Capture) -> None:
    fitted = line.lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        limit_val_batches=2,
        logger=line.OtelMLLogger(log_model=False),
        callbacks=[line.OtelMLTiming()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )

    fitted.fit(shared(line), line.loader(), line.loader())

    evaluated = [point for point in otel_ml_capture.points if point.name in {"eval/mse", "time/validation"}]
    assert sorted((point.name, point.step, point.count) for point in evaluated) == [
        ("eval/mse", line.BATCHES - 1, 2),
        ("time/validation", line.BATCHES - 1, 1),
    ]
    assert [point for point in otel_ml_capture.points if point.step is None] == []


def test_a_validation_that_fails_leaves_its_stage(line: ModuleType, otel_ml_capture: Capture) -> None:
    class Failing(line.Line):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            raise ValueError

    fitted = line.trainer(logger=line.OtelMLLogger(log_model=False), enable_checkpointing=False)

    with pytest.raises(ValueError, match=""):
        fitted.validate(Failing(), line.loader(), verbose=False)
    otel_ml.log({"after": 1.0}, step=3)

    assert otel_ml_capture.values("after") == [1.0]


def test_validation_alone_is_at_the_step_under_which_lightning_logs(line: ModuleType, otel_ml_capture: Capture) -> None:
    fitted = line.trainer(logger=line.OtelMLLogger(log_model=False), enable_checkpointing=False)

    fitted.validate(shared(line), line.loader(), verbose=False)

    assert mse(otel_ml_capture) == {("eval/mse", 0): 50.0}


def test_itwinais_logger_tells_the_stages_apart_too(line: ModuleType, otel_ml_capture: Capture) -> None:
    fitted = line.trainer(
        logger=line.ItwinaiLogger(LoggersCollection([]), skip_finalize=True), enable_checkpointing=False
    )
    run = otel_ml.init()

    fitted.fit(shared(line), line.loader(), line.loader())

    assert run is not None
    assert mse(otel_ml_capture) == {
        **{("mse", step): 1.0 for step in range(line.BATCHES)},
        ("eval/mse", line.BATCHES - 1): 50.0,
    }
