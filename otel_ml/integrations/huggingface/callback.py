"""`OtelMLCallback`: what the Trainer of `transformers` logs, and where the time of a step goes on every rank."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import otel_ml
from otel_ml import env
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.integrations.huggingface.checkpoints import Checkpoints
from otel_ml.integrations.huggingface.stages import follow_trainers, stage_named
from otel_ml.integrations.huggingface.trl import log_completions, time_parts
from otel_ml.integrations.huggingface.values import log_values, published
from otel_ml.integrations.missing_package import PackageError
from otel_ml.integrations.stages import outside
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import reporter

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise PackageError("OtelMLCallback", "transformers") from error

__all__ = ["OtelMLCallback"]

FINAL = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos")
"""What the Trainer says of a whole training; a summary, as in its W&B callback."""


class OtelMLCallback(TrainerCallback):  # type: ignore[misc] # transformers' types are not looked at
    """The Trainer's callback for otel_ml; `report_to="none"` keeps the Trainer from also starting other trackers.

    What the Trainer logs it has reduced already: it is published from rank 0 only. The timers `train_step`,
    `optimizer`, and `step`, which lasts until the next step begins, count on all ranks, as does what `otel_ml.log()` is
    given in the model or the loss. A step is the one that the Trainer counts when it is done: the first is 1. While the
    Trainer evaluates or predicts, what `otel_ml.log()` is given is `eval/…` or `test/…`. The run ends with the process,
    or at `otel_ml.shutdown()`: the training after that begins a new one, and so does one with another
    name. Each trial of `hyperparameter_search()` is a run, named as the search names it.

    Args:
        experiment: as for `otel_ml.init()`, whose other arguments may follow.
        checkpoints: also keep the checkpoints that the Trainer saves, with the aliases `latest` and `best`.
        **arguments: `name` (else the Trainer's `run_name`), `id`, `role`, `tags`, `exporters`, … of `otel_ml.init()`.
    """

    def __init__(self, experiment: str | None = None, *, checkpoints: bool = False, **arguments: Any) -> None:
        self._arguments: Mapping[str, Any] = {"experiment": experiment, **arguments}
        self._keeps_checkpoints = checkpoints
        self._checkpoints = Checkpoints()
        self._run: otel_ml.Run | None = None
        self._is_owner = False
        self._own: dict[str | None, tuple[otel_ml.Run, Any]] = {}
        """By the `run_name` that asked for it: each run that it has begun, and the arguments of which Trainer."""
        self._timings: list[Any] = []
        self._step_began: float | None = None
        self._trial: str | None = None
        self._trials = 0
        self._stage = "train"

    def __getstate__(self) -> dict[str, Any]:
        """Of a Trainer that is sent to another process, as a search on Ray does: it joins the run there anew."""
        return {**vars(self), "_run": None, "_own": {}, "_timings": [], "_step_began": None}

    @property
    def run(self) -> otel_ml.Run | None:
        """The run, once training, evaluation or prediction has begun."""
        return self._run

    @contextmanager
    def evaluating(self, trainer: Any, prefix: str) -> Iterator[None]:
        """Be in an evaluation or a prediction whose metrics begin with `prefix`."""
        self._enter(trainer.args)
        before, self._stage = self._stage, prefix
        try:
            with stage_named(prefix, trainer.state.global_step):
                yield
        finally:
            self._stage = before

    def fail(self) -> None:
        """Stop what runs: nothing that comes later is inside of the step that failed, or is a part of it."""
        self._stop()
        self._step_began = None
        self._checkpoints.finish(timeout=0.0)  # ranks that are behind may have failed, too

    @never_raises  # what TRL keeps is its own affair
    def logged(self, trainer: Any, logs: Mapping[str, Any]) -> None:
        """Record what a trainer of TRL has beside `logs`, from rank 0; at the end of training nothing is new."""
        if trainer.state.is_world_process_zero and "train_runtime" not in logs:
            log_completions(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Begin the run, in a search one for each trial; parameters from rank 0."""
        del control
        self.fail()  # of a batch that was too large for memory nobody hears: the Trainer begins anew with a smaller one
        self._leave_trial(state)
        self._enter(args)
        time_parts()
        if state.is_world_process_zero:
            # The first has the sizes of batches, too; the second its values as they are, where the first has texts.
            otel_ml.log_params({**args.to_sanitized_dict(), **args.to_dict()})
            _record_model(more.get("model"))

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """What is recorded from here on belongs to the step that is done at its end."""
        del args, control, more
        self._stop()
        self._end_step(perf_counter())
        otel_ml.set_step(state.global_step + 1)
        self._start("train_step")

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The gradients are there."""
        del args, state, control, more
        self._start("optimizer")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The weights are updated."""
        del args, state, control, more
        # Below it is `train_step`, which goes on; alone where nobody has said that the optimizer begins.
        if len(self._timings) > 1:
            self._timings.pop().__exit__(None, None, None)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The step is done; all ranks have left the save before it."""
        del args, state, control, more
        self._stop()
        self._checkpoints.record()

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Record what the Trainer has reduced, from rank 0."""
        del control, more
        run = self._begin(args)
        if not state.is_world_process_zero or not logs:
            return
        is_final = "train_runtime" in logs
        # `train_loss` and the others come in one dictionary with `train_runtime`, at the end of a training.
        final = {name: value for name, value in logs.items() if is_final and name in FINAL}
        if final:
            run.summary(published(final))
        values = {name: value for name, value in logs.items() if name not in final}
        with outside():
            log_values(published(values, self._stage), state.global_step)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any], **more: Any) -> None:
        """Record the metrics of a prediction, from rank 0."""
        del control, more
        self._begin(args)
        if state.is_world_process_zero and metrics:
            with outside():
                log_values(published(metrics, self._stage), state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep the checkpoint, from rank 0, once the others have written their files."""
        del control, more
        if self._keeps_checkpoints and state.is_world_process_zero:
            self._checkpoints.saved(args, state)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Send what is left."""
        del args, state, control, more
        self._stop()
        self._end_step(None)
        self._checkpoints.finish()
        otel_ml.flush()

    def _enter(self, args: Any) -> None:
        """Before a training or an evaluation: be in the run that it belongs to, of those that the program has begun."""
        if not self._is_owner:
            self._run = None  # the program's own run: whichever is current now
        RUNTIME.make_current(self._begin(args))

    def _begin(self, args: Any) -> otel_ml.Run:
        # A name that the callback was given holds for all Trainers, so there is one run.
        asked = None if "name" in self._arguments else args.run_name
        if self._is_owner and self._trial is None:  # it may be in several Trainers, each with a name of its own
            self._run, first = self._own.get(asked, (None, None))
            if self._run is not None and self._run.is_active and asked is None and first is not args:
                _say_shared(self._run)
        if self._run is None or not self._run.is_active:
            # One that the program itself has begun keeps its name, and no trial of a search ends it.
            is_users = RUNTIME.is_chosen and not RUNTIME.is_current(_BEGUN)
            # Transformers once made the output folder the run's name; that is not a name.
            is_name = args.run_name != args.output_dir and not is_users
            name = args.run_name if is_name else None
            self._run = otel_ml.init(**{"name": name, **self._arguments, **self._of_the_trial()})
            self._is_owner = not is_users and self._run.id not in _BEGUN
            if self._is_owner:
                _BEGUN.add(self._run.id)
                self._own[asked] = self._run, args
            elif not is_users:
                _say_shared(self._run)
        return self._run

    def _of_the_trial(self) -> Mapping[str, Any]:
        """Return what makes the run another than those of the other trials, also where all were given one id."""
        if self._trial is None:
            return {}
        given = self._arguments.get("id") or os.environ.get(env.EXPERIMENT_ID.name)
        # Trials of one id would be one run.
        return {"name": self._trial, **({"id": f"{given}-{self._trial}"} if given else {})}

    def _leave_trial(self, state: Any) -> None:
        """Before a trial of `hyperparameter_search()`: it is a start of its own, as every one before it was."""
        if not getattr(state, "is_hyper_param_search", False):
            return
        self._trial = getattr(state, "trial_name", None) or str(self._trials)
        self._trials += 1
        if self._run is not None and self._is_owner:
            self._run.shutdown()

    def _end_step(self, next_begins: float | None) -> None:
        """Record how long the step took with all that was done between it and the next one."""
        if self._step_began is not None:
            otel_ml.record("time/step", perf_counter() - self._step_began, within="sum", reduce="max")
        self._step_began = next_begins

    def _start(self, name: str) -> None:
        timing = otel_ml.timed(name)
        timing.__enter__()
        self._timings.append(timing)

    def _stop(self) -> None:
        while self._timings:
            self._timings.pop().__exit__(None, None, None)


def _record_model(model: Any) -> None:
    """Record what the model is like: its configuration, its size, and the adapters that PEFT has put on it."""
    _record_config(getattr(model, "config", None))
    _record_size(model)
    _record_adapters(getattr(model, "peft_config", None))


@never_raises  # a model of the user's own has any object there, and in the places below
def _record_config(config: Any) -> None:
    if config is not None:
        otel_ml.log_params(_dictionary(config), prefix="model")


@never_raises
def _record_size(model: Any) -> None:
    if hasattr(model, "num_parameters"):
        otel_ml.log_params({"num_parameters": model.num_parameters()}, prefix="model")


@never_raises
def _record_adapters(adapters: Any) -> None:
    if adapters:
        otel_ml.log_params({name: _dictionary(adapter) for name, adapter in adapters.items()}, prefix="peft_config")


def _dictionary(config: Any) -> Any:
    return config.to_dict() if hasattr(config, "to_dict") else config


def _say_shared(run: otel_ml.Run) -> None:
    reporter.say(
        "init-again",
        f"OtelMLCallback goes on with the run that another one has begun, {run.experiment}/{run.id}: what follows is "
        "recorded into it, too. For a run of its own give each a run_name=, or call otel_ml.shutdown() after it.",
        kind="OtelMLCallback",
    )


_BEGUN: set[str] = set()
"""Ids of the runs that callbacks of this process have begun."""

follow_trainers(Trainer, OtelMLCallback)
