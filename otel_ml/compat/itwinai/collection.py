"""Several loggers as one: one run, written to all of their backends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from otel_ml.compat.itwinai.backends import MLFlowLogger
from otel_ml.compat.itwinai.call import Call, collecting
from otel_ml.compat.itwinai.kinds import KINDS
from otel_ml.compat.itwinai.logger import Logger
from otel_ml.exceptions import ConfigError

__all__ = ["LoggersCollection", "get_mlflow_logger"]


class LoggersCollection(Logger):
    """Logs to all of `loggers`; each one's own `log_freq` and `log_on_workers` decide.

    Something is recorded once, when one logger lets it pass, and then reaches all backends of the run. A logger of a
    class of the program's, whose `log()`, `save_hyperparameters()` or context is its own, is called, as in itwinai; of
    what it gives on to its base as it is the same holds.

    Args:
        loggers: one of a type.

    Raises:
        ConfigError: a ValueError; two of one type.
    """

    supported_kinds: ClassVar[frozenset[str]] = KINDS

    def __init__(self, loggers: Sequence[Logger]) -> None:
        # The collection itself lets everything pass: each of its loggers asks its own gate.
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
        if self.is_initialized:
            return super().create_logger_context(rank, **kwargs)  # which says so, and changes nothing
        for logger in self.every():
            logger.worker_rank = rank
        with ExitStack() as undo:
            # Before the loggers of the program's own, whose contexts join the run that this one begins.
            run_id = super().create_logger_context(rank, **kwargs)
            undo.callback(self._leave)
            for logger in self.every():
                # Also those that do not log on this worker: for them log() has to do nothing, and not to raise.
                logger.is_initialized = logger.is_initialized or not _has_own(logger, *_CONTEXT)
            for logger in self.with_own(*_CONTEXT):
                logger.create_logger_context(rank=rank, **kwargs)
                undo.callback(logger.destroy_logger_context)
            undo.pop_all()
        return run_id

    def destroy_logger_context(self) -> None:
        """Leave the run, for all loggers.

        Raises:
            LoggerContextError: a RuntimeError; there is no context.
        """
        self._require_context()
        # Before the collection leaves: it has begun the run, and is the last one in it.
        for logger in self.with_own(*_CONTEXT):
            logger.destroy_logger_context()
        self._leave()

    def _leave(self) -> None:
        for logger in self.every():
            if not _has_own(logger, *_CONTEXT):
                logger.part()
        super().destroy_logger_context()

    def log(
        self,
        item: Any,
        identifier: str,
        kind: str = "metric",
        step: int | None = None,
        batch_idx: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Log `item` under the name `identifier`; see `LogMixin.log()`.

        Raises:
            LoggerContextError: a RuntimeError; there is no context.
        """
        self._require_context()
        call = Call(item, str(identifier), kind, step, kwargs)
        with ExitStack() as afterwards, collecting(call, self.whole) as giving_on:
            # Runs last, also when a logger raises: which of the program's own loggers give the call on is known by
            # then. The stack is left after `collecting()`, inside of which take() would leave the call to this
            # collection.
            afterwards.callback(lambda: self.take(call, [*self.passing(batch_idx), *giving_on]))
            for logger in self.with_own("log"):
                logger.log(item=item, identifier=identifier, kind=kind, step=step, batch_idx=batch_idx, **kwargs)

    def save_hyperparameters(self, params: Mapping[str, Any]) -> None:
        """Log hyper-parameters.

        Raises:
            LoggerContextError: a RuntimeError; there is no context.
        """
        super().save_hyperparameters(params)
        for logger in self.with_own("save_hyperparameters"):
            logger.save_hyperparameters(params=params)

    def every(self) -> Iterator[Logger]:
        """Yield the loggers, and after each collection among them its own."""
        for logger in self.loggers:
            yield logger
            if isinstance(logger, LoggersCollection):
                yield from logger.every()

    def with_own(self, *verbs: str) -> Iterator[Logger]:
        """Yield the loggers, also of collections among them, whose class has one of the verbs of the program's own."""
        for logger in self.loggers:
            if _has_own(logger, *verbs):
                yield logger
            elif isinstance(logger, LoggersCollection):
                yield from logger.with_own(*verbs)

    def passing(self, batch_idx: int | None) -> list[Logger]:
        """Return the loggers that let something of this batch pass, and leave it to this collection to record it."""
        return [one for logger in self.loggers if not _has_own(logger, "log") for one in logger.passing(batch_idx)]

    def init_arguments(self) -> dict[str, Any]:
        """Return what the loggers of this worker say together; of one argument the first logger's counts."""
        found = [logger.init_arguments() for logger in self._chosen()]
        merged: dict[str, Any] = {}
        for arguments in found:
            # What is None or empty does not count as said, so the first logger that names the run wins.
            merged.update({key: value for key, value in arguments.items() if value and not merged.get(key)})
        return {**merged, "exporters": tuple(dict.fromkeys(name for one in found for name in one["exporters"]))}

    def environment(self) -> dict[str, str]:
        """Return the variables of all loggers of this worker."""
        return {name: value for logger in self._chosen() for name, value in logger.environment().items()}

    def begin(self, joined: Any) -> None:
        """Let the loggers of this worker record into the run, or none of them."""
        with ExitStack() as undo:
            for logger in self._chosen():
                if not _has_own(logger, *_CONTEXT):
                    logger.become_part_of(joined)
                    undo.callback(logger.part)
            undo.pop_all()

    def observe_parameters(self, params: Any) -> None:
        """Let the loggers of this worker see the hyper-parameters."""
        for logger in self._chosen():
            logger.observe_parameters(params)

    def _chosen(self) -> list[Logger]:
        return [logger for logger in self.loggers if logger.logs_on(self.worker_rank)]


_CONTEXT = ("create_logger_context", "destroy_logger_context")


def _has_own(logger: Logger, *verbs: str) -> bool:
    """Whether one of the verbs is that of a subclass which the program has."""
    # `__module__` of the function: a method that the subclass inherits has ours.
    return any(not str(getattr(type(logger), verb).__module__).startswith("otel_ml.") for verb in verbs)


def get_mlflow_logger(logger: Logger | None) -> MLFlowLogger | None:
    """Return the logger for MLflow among `logger` and, of a collection, its loggers; None where there is none."""
    if isinstance(logger, LoggersCollection):
        return next((found for one in logger.loggers if (found := get_mlflow_logger(one))), None)
    return logger if isinstance(logger, MLFlowLogger) else None
