"""Which stage Lightning is in: its loops of validation, test and prediction are told apart from training."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import otel_ml
from otel_ml._internal.steps.stage import Stage
from otel_ml.integrations.lightning.framework import CALLBACK

__all__ = ["Stepping", "follow", "step_of"]


class Stepping(CALLBACK):  # type: ignore[misc] # which of two packages it comes from is known at run time
    """Sets the step to the one under which Lightning logs: `otel_ml.log()` in `training_step()` counts there."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """What is recorded from here on belongs to this batch's step."""
        del pl_module, batch, batch_idx
        otel_ml.set_step(step_of(trainer))


def step_of(trainer: Any) -> int:
    """Return the step under which Lightning logs now."""
    step: int = trainer.fit_loop.epoch_loop._batches_that_stepped  # noqa: SLF001 (Lightning has no other name for it)
    return step


def follow(trainer: Any) -> None:
    """Know from now on when `trainer` trains, at which step, and when it evaluates; once each trainer.

    What `otel_ml.log()` is given meanwhile is in the run of the trainer's own logger: folds have one each.
    """
    if not any(isinstance(callback, Stepping) for callback in trainer.callbacks):
        # First, so that what other callbacks record at the start of a batch is at its step.
        trainer.callbacks.insert(0, Stepping())
    for loop in (trainer.fit_loop.epoch_loop.val_loop, trainer.validate_loop, trainer.test_loop, trainer.predict_loop):
        # A loop whose own `run` is set is one that is followed already.
        if "run" not in vars(loop):
            loop.run = partial(_run, trainer, loop)
    if "run" not in vars(trainer.fit_loop):
        trainer.fit_loop.run = partial(_fit, trainer)


def _run(trainer: Any, loop: Any) -> Any:
    """Run a loop that is not a training in its stage. Hooks come too late and leave too early for others' hooks."""
    with _in_run_of(trainer), Stage(_stage_of(trainer), step_of(trainer)):
        return type(loop).run(loop)  # the class's: the loop's own is what called this


def _fit(trainer: Any) -> Any:
    with _in_run_of(trainer):
        return type(trainer.fit_loop).run(trainer.fit_loop)


def _in_run_of(trainer: Any) -> AbstractContextManager[Any]:
    """Be in the run that the trainer's logger has; without one in the run that is current."""
    # By its class: the logger of fast_dev_run says that it has everything.
    ours = (logger.recording for logger in trainer.loggers if hasattr(type(logger), "recording"))
    recording = next(ours, nullcontext)
    return recording()


def _stage_of(trainer: Any) -> str | None:
    """Return the stage's name; None for the sanity check, of which Lightning keeps nothing either."""
    if trainer.sanity_checking:
        return None
    return "test" if trainer.testing else "predict" if trainer.predicting else "eval"
