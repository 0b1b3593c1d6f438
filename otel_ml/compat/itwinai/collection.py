"""Several loggers as one: one run, written to all of their backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from otel_ml.compat.itwinai.backends import MLFlowLogger
from otel_ml.compat.itwinai.entry import Entry
from otel_ml.compat.itwinai.kinds import KINDS
from otel_ml.compat.itwinai.logger import Logger
from otel_ml.exceptions import ConfigError

__all__ = ["LoggersCollection", "get_mlflow_logger"]


class LoggersCollection(Logger):
    """Logs to all of `loggers`; each one's own `log_freq` and `log_on_workers` decide.

    Something is recorded once, when one logger lets it pass, and then reaches all backends of the run.

    Args:
        loggers: one of a type.

    Raises:
        ConfigError: a ValueError; two of one type.
    """

    supported_kinds: ClassVar[frozenset[str]] = KINDS

    def __init__(self, loggers: Sequence[Logger]) -> None:
        super().__init__(log_freq="batch", log_on_workers=-1)
        names = [type(logger).__name__ for logger in loggers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"More than one {', '.join(twice)} was given. Expected one logger of each type.")
        self.loggers: list[Logger] = list(loggers)
        for logger in self.loggers:
            logger.belongs_to(self)

    @property
    def has_several(self) -> bool:
        """Whether one of the loggers logs on more than one worker."""
        return any(logger.has_several for logger in self.loggers)

    def logs_on(self, rank: int) -> bool:
        """Whether one of the loggers logs on this worker."""
        return any(logger.logs_on(rank) for logger in self.loggers)

    def should_log(self, batch_idx: int | None = None) -> bool:
        """Whether one of the loggers logs something of this batch."""
        return any(logger.should_log(batch_idx) for logger in self.loggers)

    def create_logger_context(self, rank: int = 0, **kwargs: Any) -> str | None:
        """Join the run once, for all loggers that log on this worker."""
        if not self.is_initialized:
            for logger in self.loggers:
                logger.worker_rank = rank
        run_id = super().create_logger_context(rank, **kwargs)
        for logger in self.loggers:
            logger.is_initialized = True
        return run_id

    def destroy_logger_context(self) -> None:
        """Leave the run, for all loggers.

        Raises:
            LoggerContextError: a RuntimeError; there is no context.
        """
        self._require_context()
        for logger in self.loggers:
            logger.part()
        super().destroy_logger_context()

    def passing(self, batch_idx: int | None) -> list[Logger]:
        """Return the loggers that let something of this batch pass."""
        return [logger for logger in self.loggers if logger.has_joined and logger.should_log(batch_idx)]

    def init_arguments(self) -> dict[str, Any]:
        """Return what the loggers of this worker say together; of one argument the first logger's counts."""
        found = [logger.init_arguments() for logger in self._chosen()]
        merged: dict[str, Any] = {}
        for arguments in found:
            merged.update({key: value for key, value in arguments.items() if value and not merged.get(key)})
        return {**merged, "exporters": tuple(dict.fromkeys(name for one in found for name in one["exporters"]))}

    def environment(self) -> dict[str, str]:
        """Return the variables of all loggers of this worker."""
        return {name: value for logger in self._chosen() for name, value in logger.environment().items()}

    def begin(self, joined: Any) -> None:
        """Let the loggers of this worker record into the run."""
        for logger in self._chosen():
            logger.become_part_of(joined)

    def observe(self, entry: Entry) -> None:
        """Let the loggers of this worker see what is logged, where this collection is in another."""
        for logger in self._chosen():
            logger.observe(entry)

    def observe_parameters(self, params: Any) -> None:
        """Let the loggers of this worker see the hyper-parameters."""
        for logger in self._chosen():
            logger.observe_parameters(params)

    def _chosen(self) -> list[Logger]:
        return [logger for logger in self.loggers if logger.logs_on(self.worker_rank)]


def get_mlflow_logger(logger: Logger | None) -> MLFlowLogger | None:
    """Return the logger for MLflow among `logger` and, of a collection, its loggers; None where there is none."""
    if isinstance(logger, LoggersCollection):
        return next((found for one in logger.loggers if (found := get_mlflow_logger(one))), None)
    return logger if isinstance(logger, MLFlowLogger) else None
