"""`ItwinaiLogger`: a logger of itwinai as Lightning's logger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from otel_ml.compat.itwinai.logger import Logger
from otel_ml.integrations.lightning.checkpoints import Checkpoints
from otel_ml.integrations.lightning.framework import LOGGER, global_rank
from otel_ml.integrations.lightning.stages import follow
from otel_ml.integrations.stages import outside

__all__ = ["ItwinaiLogger"]


class ItwinaiLogger(LOGGER):  # type: ignore[misc] # which of two packages it comes from is known at run time
    """Lightning's logger that logs through `itwinai_logger`, from rank 0.

    The context is created where there is none, and then destroyed at the end.

    Args:
        itwinai_logger: a logger or a collection.
        log_model: True keeps the checkpoints that are there at the end, `"all"` each one as it is saved.
        skip_finalize: leave the context to the program.
    """

    def __init__(
        self,
        itwinai_logger: Logger,
        log_model: Literal["all"] | bool = False,
        skip_finalize: bool = False,
    ) -> None:
        super().__init__()
        self.itwinai_logger = itwinai_logger
        self._log_model = log_model
        self._skip_finalize = skip_finalize
        self._is_ours = False
        self._run_id: str | None = None
        self._checkpoints = Checkpoints()
        self._callbacks: list[Any] = []

    @property
    def experiment(self) -> Logger:
        """The logger of itwinai, in a context."""
        if not self.itwinai_logger.is_initialized:
            # What is tested after training belongs to the run that was trained.
            again = {} if self._run_id is None else {"run_id": self._run_id}
            self._run_id = self.itwinai_logger.create_logger_context(rank=global_rank(), **again)
            self._is_ours = True
        return self.itwinai_logger

    @property
    def name(self) -> str | None:
        """Name of the experiment."""
        return self.experiment.experiment_id

    @property
    def version(self) -> str | None:
        """Id of the run."""
        return self.experiment.run_id

    @property
    def save_dir(self) -> str:
        """Folder of the files that are made of logged things."""
        return str(self.itwinai_logger.savedir)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log what Lightning has reduced."""
        # Lightning calls a logger on every rank; its own loggers are those of rank 0 alone by `rank_zero_only`.
        if global_rank() == 0:
            # Under the names that the program chose: Lightning hands them over while it evaluates, and they would get
            # `eval/` before them.
            with outside():
                for name, value in metrics.items():
                    self.experiment.log(item=value, identifier=name, kind="metric", step=step)

    def log_hyperparams(self, params: Any, *_: Any, **__: Any) -> None:
        """Log hyper-parameters: a dictionary or a Namespace."""
        if global_rank() == 0:
            self.experiment.save_hyperparameters(params if isinstance(params, Mapping) else vars(params))

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Follow the trainer: Lightning calls it before it begins."""
        del input_array
        trainer = getattr(model, "_trainer", None)
        if trainer is not None:
            follow(trainer)

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Keep the checkpoint that was saved, now or at the end, see `log_model`."""
        if global_rank() != 0 or self._log_model is False:
            return
        # With -1 none is deleted, so nothing is gained by waiting for those that are left at the end.
        if self._log_model == "all" or getattr(checkpoint_callback, "save_top_k", None) == -1:
            # Begins the context where nothing was logged yet.
            _ = self.experiment
            self._checkpoints.record(checkpoint_callback, None)
        elif checkpoint_callback not in self._callbacks:
            self._callbacks.append(checkpoint_callback)

    def finalize(self, status: str) -> None:
        """Keep the remaining checkpoints, and destroy the context that was created here."""
        del status
        if global_rank() == 0:
            for callback in self._callbacks:
                self._checkpoints.record(callback, None)
        if self._is_ours and not self._skip_finalize:
            self._is_ours = False
            if self.itwinai_logger.is_initialized:
                self.itwinai_logger.destroy_logger_context()
