"""`OtelMLLogger`: what Lightning logs, in the run; every rank may record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import otel_ml
from otel_ml.integrations.implicit_steps import rows_of
from otel_ml.integrations.lightning.checkpoints import Checkpoints
from otel_ml.integrations.lightning.framework import LOGGER, global_rank
from otel_ml.integrations.lightning.stages import follow
from otel_ml.integrations.several_numbers import as_one
from otel_ml.integrations.stages import outside
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import reporter

__all__ = ["OtelMLLogger"]

LogModel = Literal[True, False, "all"]


class OtelMLLogger(LOGGER):  # type: ignore[misc] # which of two packages it comes from is known at run time
    """Lightning's logger for otel_ml: `Trainer(logger=OtelMLLogger("digits"))`.

    The run begins here, on every rank, so that the processes Lightning starts join it. What Lightning logs is reduced
    already, and published from rank 0 only; `otel_ml.log()` and timers count on all ranks, at the step under which
    Lightning logs: in validation as `eval/…`, in test and prediction as `test/…` and `predict/…`, and not in the sanity
    check. The run ends with the process, or at `otel_ml.shutdown()`: `fit()` may be followed by `test()`. What is
    logged after its end begins a new one.

    Args:
        experiment: as for `otel_ml.init()`, whose other arguments may follow.
        prefix: before every name, `train` gives `train/loss`.
        log_model: True keeps the checkpoints that are there when training ends, `"all"` each one as it is saved;
            False keeps none.
        **arguments: `name`, `id`, `role`, `params`, `tags`, `notes`, `exporters`, `topology` of `otel_ml.init()`.
    """

    def __init__(
        self, experiment: str | None = None, *, prefix: str = "", log_model: LogModel = True, **arguments: Any
    ) -> None:
        super().__init__()
        self._arguments: Mapping[str, Any] = {"experiment": experiment, **arguments}
        self._prefix = prefix or None
        self._log_model = log_model
        self._checkpoints = Checkpoints()
        self._callbacks: list[Any] = []
        # Lightning starts other processes with LOCAL_RANK alone, which no launcher of otel_ml's list does.
        is_started_by_lightning = "LOCAL_RANK" in os.environ and "RANK" not in os.environ
        self._run: otel_ml.Run | None = self._joined(global_rank() if is_started_by_lightning else None)

    def _joined(self, rank: int | None) -> otel_ml.Run:
        return otel_ml.init(**{**({} if rank is None else {"rank": rank}), **self._arguments})

    def __getstate__(self) -> dict[str, Any]:
        # A run is of its process; folders of temporary files are removed by the process that made them.
        return {**vars(self), "_run": None, "_checkpoints": None, "_callbacks": []}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """In a process that Lightning spawned: join the run, which is in the environment, with the rank it is given."""
        self.__dict__.update(state)
        self._checkpoints = Checkpoints()

    @property
    def experiment(self) -> otel_ml.Run:
        """The run; `logger.experiment.summary({…})`."""
        return self._join()

    def _join(self) -> otel_ml.Run:
        if self._run is None or not self._run.is_active:
            self._run = self._joined(global_rank())
        return self._run

    def recording(self) -> AbstractContextManager[None]:
        """Return what is entered to record into the run of this logger, whichever others the program has begun."""
        return self._join().use()

    def _known(self) -> otel_ml.Run:
        """Return the run, also one that has ended: to ask for its name begins no other."""
        return self._run or self._join()

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self._known().experiment

    @property
    def version(self) -> str:
        """Id of the run."""
        return self._known().id

    @property
    def save_dir(self) -> str | None:
        """Folder of all runs, below which Lightning puts `<name>/<version>/checkpoints`; None without a local one."""
        folder = self._known().dir
        # `<OTEL_ML_DIR>/<experiment>/<run id>`.
        return None if folder is None else str(folder.parents[1])

    @property
    def root_dir(self) -> str | None:
        """Folder of the experiment."""
        folder = self._known().dir
        return None if folder is None else str(folder.parent)

    @property
    def log_dir(self) -> str | None:
        """Folder of the run."""
        folder = self._known().dir
        return None if folder is None else str(folder)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Record what Lightning has reduced, from rank 0; of a name's values at one step the last counts.

        Several numbers under one name are their mean. Without a step it is the one that the program is in, else a row
        of its own.
        """
        with self.recording(), outside():
            if global_rank() == 0:
                is_row = isinstance(metrics, Mapping)  # else `log()` says what it expects
                row = {name: as_one(value) for name, value in metrics.items()} if is_row else metrics
                at = rows_of(self._join().id).step_of(metrics if is_row else (), step)
                otel_ml.log(row, step=at, prefix=self._prefix, within="last")

    def log_hyperparams(
        self, params: Any = None, metrics: Any = None, step: int | None = None, *_: Any, **more: Any
    ) -> None:
        """Record hyper-parameters: a dictionary, a Namespace, a dataclass.

        Metrics beside them are recorded at `step`, as Lightning's TensorBoard logger does; one that is not in a
        dictionary is called `hp_metric`.
        """
        run = self._join()
        if global_rank() == 0:
            for given in (params, more or None):
                if given is not None:
                    run.log_params(given)
        if metrics is not None:
            self.log_metrics(metrics if isinstance(metrics, Mapping) else {"hp_metric": metrics}, step)

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Record the model's modules as a text; a drawn graph is not kept, which otel_ml reports once.

        Lightning calls it before it begins: the trainer is followed from here on.
        """
        del input_array
        run = self._join()
        trainer = getattr(model, "_trainer", None)
        if trainer is not None:
            follow(trainer)
        if global_rank() == 0:
            _record_modules(run, model)
            reporter.say(
                "lightning-graph",
                "OtelMLLogger.log_graph(): the model's modules are kept as a text. Expected a graph? Export one to a "
                "file and record it with otel_ml.log_artifact().",
            )

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Keep the checkpoint that was saved, now or when training ends, see `log_model`."""
        if global_rank() != 0 or self._log_model is False:
            return
        if self._log_model == "all" or getattr(checkpoint_callback, "save_top_k", None) == -1:
            with self.recording():
                self._checkpoints.record(checkpoint_callback, _step_of(checkpoint_callback))
        elif checkpoint_callback not in self._callbacks:
            self._callbacks.append(checkpoint_callback)

    def save(self) -> None:
        """Nothing: what was recorded is sent in the background."""

    def finalize(self, status: str) -> None:
        """Record the remaining checkpoints and how training ended, and send all of it. The run goes on."""
        run = self._known()
        with run.use():
            if global_rank() == 0:
                for callback in self._callbacks:
                    self._checkpoints.record(callback, _step_of(callback))
                if status != "success":
                    otel_ml.event("lightning.finalize", {"status": str(status)})
        run.flush()


@never_raises  # modules of users say what they are: `extra_repr()`
def _record_modules(run: otel_ml.Run, model: Any) -> None:
    run.log_text("model", f"```text\n{model}\n```")


def _step_of(callback: Any) -> int | None:
    step = getattr(callback, "_last_global_step_saved", None)
    return step if isinstance(step, int) and step >= 0 else None
