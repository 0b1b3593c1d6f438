"""`OtelMLTiming`: where the time of a batch goes, on every rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import otel_ml
from otel_ml.integrations.lightning.stages import Stepping, follow
from otel_ml.integrations.stages import outside

__all__ = ["OtelMLTiming"]


class OtelMLTiming(Stepping):
    """Times `data`, `batch` and its phases `forward`, `backward`, `optimizer`, then `callbacks`, and `validation`.

    It also sets the step to the one under which Lightning logs, so that `otel_ml.log()` in `training_step()` counts
    there; in validation, test and prediction it is `eval/…`, `test/…`, `predict/…`. Each is a timer: the slowest
    rank's total of the step. With gradient accumulation the batches of a step add up. `optimizer` begins after the
    gradients are there, and ends with the batch. `data` is what Lightning takes to fetch a batch, `callbacks` what the
    callbacks after this one do at the end of a batch: saving a checkpoint, for one. What else is between two batches,
    such as loggers, and ranks that wait for each other, is in no timer.

    Args:
        device: `"cuda"` measures on the CUDA stream, by events; else what the host spends.
    """

    def __init__(self, *, device: str | None = None) -> None:
        super().__init__()
        self._device = device
        self._phase: Any = None
        self._batch: Any = None
        self._actions = ProfiledActions(hooks_are_done=self._end_phase)
        self._validation: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Know when the trainer evaluates."""
        del pl_module, stage
        follow(trainer)
        self._actions.follow(trainer.profiler)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """The batch is there; the forward pass begins."""
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        # Recorded when the batch is there: waiting for it belongs to its own step, not to the one before.
        otel_ml.record("time/data", self._actions.fetched(), within="sum", reduce="max")
        self._batch = self._started("batch", device=self._device)
        self._begin("forward")

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """The forward pass is over."""
        del trainer, pl_module, optimizer
        self._end_phase()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """The backward pass begins."""
        del trainer, pl_module, loss
        self._begin("backward")

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """The backward pass is over."""
        del trainer, pl_module
        self._end_phase()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """The optimizer begins."""
        del trainer, pl_module, optimizer
        self._begin("optimizer")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The batch is done; other callbacks are told."""
        del trainer, pl_module, outputs, batch, batch_idx
        self._end_batch()
        self._phase = self._started("callbacks")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop what an epoch has left that its module ended by `on_train_batch_start()`: nobody hears of that batch."""
        del trainer, pl_module
        self._end_batch()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation begins."""
        del pl_module
        if not trainer.sanity_checking:
            # The timer is of the training step, `time/validation`; inside of the stage it would be `eval/…`.
            with outside():
                self._validation = self._started("validation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Validation is over."""
        del trainer, pl_module
        _stop(self._validation)
        self._validation = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop what runs: how long it took until it failed is worth knowing."""
        del trainer, pl_module, exception
        self._end_batch()
        _stop(self._validation)
        self._validation = None

    def _begin(self, phase: str) -> None:
        self._end_phase()
        self._phase = self._started(phase, device=self._device)

    def _end_batch(self) -> None:
        self._end_phase()  # first: it is inside of the batch
        _stop(self._batch)
        self._batch = None

    def _end_phase(self) -> None:
        _stop(self._phase)
        self._phase = None

    def _started(self, name: str, *, device: str | None = None) -> Any:
        timing = otel_ml.timed(name, device=device)
        timing.__enter__()
        return timing


def _stop(timing: Any) -> None:
    if timing is not None:
        timing.__exit__(None, None, None)


_FETCH = ".train_dataloader_next"
_MODULE, _AFTER_BATCH = "[LightningModule]", ".on_train_batch_end"


class ProfiledActions:
    """Listens to a trainer's profiler, which Lightning always has; that is told everything as before.

    Between two batches Lightning also runs callbacks, writes to loggers and lets ranks wait for each other: only its
    profiler knows what of that is fetching.

    Args:
        hooks_are_done: called when all callbacks, and the module, have had their `on_train_batch_end`.
    """

    def __init__(self, hooks_are_done: Callable[[], None]) -> None:
        self._hooks_are_done = hooks_are_done
        self._profiler: Any = None
        self._fetching_since: float | None = None
        self._fetched = 0.0

    def follow(self, profiler: Any) -> None:
        """Hear from now on what `profiler` is told."""
        # setup() is called for each of fit, validate, test and predict.
        if self._profiler is profiler:
            return
        # Not of functions that are made here: a trainer that has been told of them is copied, or sent to a process.
        self._profiler, start, stop = profiler, partial(self._start, profiler.start), partial(self._stop, profiler.stop)
        profiler.start, profiler.stop = start, stop

    def fetched(self) -> float:
        """Return the seconds of fetching since this was asked last."""
        fetched, self._fetched = self._fetched, 0.0
        return fetched

    # Ours is inside of what the profiler measures: `time/data` is never more than what it says.

    def _start(self, start: Callable[[str], None], action_name: str) -> None:
        start(action_name)
        if action_name.endswith(_FETCH):
            self._fetching_since = perf_counter()

    def _stop(self, stop: Callable[[str], None], action_name: str) -> None:
        self._stopped(action_name)
        stop(action_name)

    def _stopped(self, action_name: str) -> None:
        if action_name.endswith(_FETCH) and self._fetching_since is not None:
            self._fetched += perf_counter() - self._fetching_since
            self._fetching_since = None
        elif action_name.endswith(_AFTER_BATCH) and action_name.startswith(_MODULE):
            self._hooks_are_done()
