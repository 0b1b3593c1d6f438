"""The base of all loggers: contexts, gating, and the one verb."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import otel_ml
from otel_ml.compat.itwinai.call import Call, is_given_on
from otel_ml.compat.itwinai.entry import Entry
from otel_ml.compat.itwinai.files import Files
from otel_ml.compat.itwinai.gate import Gate
from otel_ml.compat.itwinai.kinds import NUMBERS
from otel_ml.compat.itwinai.measure import Energy
from otel_ml.compat.itwinai.record import measured, record
from otel_ml.compat.itwinai.session import SESSION, Joined
from otel_ml.compat.tracking.step_axes import counted
from otel_ml.exceptions import OtelMLError

__all__ = ["EmptyLogger", "LogMixin", "Logger", "LoggerContextError"]

_log = logging.getLogger(__name__)


class LoggerContextError(OtelMLError, RuntimeError):
    """Something was logged outside a context."""

    slug = "itwinai-no-context"


class LogMixin(ABC):
    """Who has the one verb."""

    @abstractmethod
    def log(
        self,
        item: Any,
        identifier: str,
        kind: str = "metric",
        step: int | None = None,
        batch_idx: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Log `item` under the name `identifier`.

        Args:
            item: a number, a figure, a model, a path, …, as its kind says.
            identifier: its name.
            kind: one of the 18; what a logger has no place for is kept as an artifact, and reported once.
            step: of training; the current one by default.
            batch_idx: where given, `log_freq` decides.
            **kwargs: of the kind; `reduce=`, `weight=` and `within=` of `otel_ml.log()` for numbers.
        """


class Logger(LogMixin):
    """A logger that records into the run.

    Args:
        savedir: folder of the files that are made of logged things.
        log_freq: `"epoch"`, `"batch"` or every n-th batch.
        log_on_workers: a rank, several, -1 for all, or None for none.
        experiment_id: name of the experiment.
        run_id: of a run to continue or to attach to.

    Attributes:
        supported_kinds: the kinds that have a place of their own in its backend.
        savedir: as a `Path`.
        experiment_id: name of the experiment, once there is a context.
        run_id: id of the run, once there is a context.

    Raises:
        ConfigError: a ValueError; `log_freq` is none.
    """

    supported_kinds: ClassVar[frozenset[str]] = NUMBERS
    exporter: ClassVar[str | None] = None
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Attributes of itwinai's logger that are not here, and what is used instead."""

    def __init__(
        self,
        savedir: str | PathLike[str] = "mllogs",
        log_freq: str | int = "epoch",
        log_on_workers: int | Sequence[int] | None = 0,
        experiment_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self.savedir: Path = Path(savedir)
        self.experiment_id = experiment_id
        self.run_id = run_id
        self.worker_rank: int = 0
        self.is_initialized: bool = False
        self._gate = Gate(log_freq, log_on_workers)
        self._files = Files(savedir)
        self._joined: Joined | None = None
        self._begun = 0.0
        self._energy = Energy(())
        self._wanted_run_id = run_id
        self._collection: Logger | None = None

    # Called only for what the object does not have.
    def __getattr__(self, name: str) -> NoReturn:
        instead = self.elsewhere.get(name)
        raise AttributeError(f"{type(self).__name__} has no {name!r}" + (f": {instead}" if instead else ""))

    @property
    def whole(self) -> Logger:
        """The collection that this is in, or this logger."""
        return self if self._collection is None else self._collection.whole

    @property
    def has_joined(self) -> bool:
        """Whether this worker has a part in the run; not where `log_on_workers` has named it since then."""
        return self._joined is not None

    def belongs_to(self, collection: Logger) -> None:
        """Be one of the loggers of a collection, which share a run."""
        self._collection = collection

    @property
    def log_freq(self) -> str | int:
        """Which batches are logged; may be set.

        Raises:
            ConfigError: a ValueError; it is set to none.
        """
        return self._gate.log_freq

    @log_freq.setter
    def log_freq(self, value: str | int) -> None:
        self._gate = replace(self._gate, log_freq=value)

    @property
    def log_on_workers(self) -> int | Sequence[int] | None:
        """Which workers log; may be set, and counts for contexts that are created afterwards."""
        return self._gate.log_on_workers

    @log_on_workers.setter
    def log_on_workers(self, value: int | Sequence[int] | None) -> None:
        self._gate = replace(self._gate, log_on_workers=value)

    @contextmanager
    def start_logging(self, rank: int = 0, **kwargs: Any) -> Iterator[Logger]:
        """Create the context for a block, and destroy it after it."""
        self.create_logger_context(rank=rank, **kwargs)
        try:
            yield self
        finally:
            if self.is_initialized:  # not destroyed in the block, nor ended by otel_ml.shutdown()
                self.destroy_logger_context()

    def create_logger_context(self, rank: int = 0, **kwargs: Any) -> str | None:
        """Join the run, on the workers that log; must precede `log()`.

        Args:
            rank: of this worker.
            **kwargs: `run_id` of a run to attach to, `parent_run_id` of one to be a part of, `run_name`.

        Returns:
            The run's id, or None on a worker that does not log.
        """
        if self.is_initialized:
            _log.warning("Trying to initialize %s twice.. Skipping initialization.", type(self).__name__)
            return self.run_id
        self.worker_rank = rank
        if not self.logs_on(rank):
            # On a worker that does not log the context is open all the same: log() there does nothing, and does not
            # raise.
            self.is_initialized = True
            return None
        arguments = self.init_arguments()
        joined = SESSION.join(
            {**arguments, "rank": rank, "name": kwargs.get("run_name") or arguments.get("name")},
            self.environment(),
            # `_wanted_run_id`, not `run_id`: that one has the id of the run before, once there has been one.
            run_id=kwargs.get("run_id") or self._wanted_run_id,
            parent_run_id=kwargs.get("parent_run_id"),
        )
        try:
            self.become_part_of(joined)
        except BaseException:
            SESSION.leave()
            raise
        return self.run_id

    def destroy_logger_context(self) -> None:
        """Leave the run; it ends when all contexts are destroyed.

        Raises:
            LoggerContextError: a RuntimeError; there is no context.
        """
        self._require_context()
        # Asked before `part()` forgets it.
        had_joined = self.has_joined
        # Before the session is left: `end()` of a logger needs the run while it is still open.
        self.part()
        if had_joined:
            SESSION.leave()

    @property
    def has_several(self) -> bool:
        """Whether more than one worker logs."""
        return self._gate.has_several

    def logs_on(self, rank: int) -> bool:
        """Whether the worker of this rank logs at all."""
        return self._gate.lets_worker_pass(rank)

    def should_log(self, batch_idx: int | None = None) -> bool:
        """Whether this worker logs something of this batch: first the worker is asked, then the batch."""
        return self._gate.lets_pass(self.worker_rank, batch_idx)

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
        self.take(Call(item, str(identifier), kind, step, kwargs), self.passing(batch_idx))

    def take(self, call: Call, passing: Sequence[Logger]) -> None:
        """Record a call that the loggers `passing` let pass, or leave it to the collection that is given it."""
        if not passing or is_given_on(call, self.whole, passing):
            return
        # All of them have joined the same run; files go where the first one of them keeps its own.
        entry = measured(passing[0].entry(call, passing))
        if entry is None:
            return
        for logger in passing:
            logger.observe(entry)
        record(entry, frozenset().union(*(logger.supported_kinds for logger in passing)))

    def passing(self, batch_idx: int | None) -> Sequence[Logger]:
        """Return the loggers that let something of this batch pass: this one, or none."""
        return (self,) if self.has_joined and self.should_log(batch_idx) else ()

    def save_hyperparameters(self, params: Mapping[str, Any]) -> None:
        """Log hyper-parameters.

        Raises:
            LoggerContextError: a RuntimeError; there is no context.
        """
        self._require_context()
        if self.should_log() and self._joined is not None:
            otel_ml.log_params(params, prefix=self._joined.prefix)
            self.observe_parameters(params)

    def serialize(self, obj: Any, identifier: str) -> str:
        """Pickle `obj` to `<savedir>/<identifier>`, and return that path."""
        return str(self._files.pickled(obj, identifier))

    def become_part_of(self, joined: Joined) -> None:
        """Record into a run that was joined; where that fails, have no part in it."""
        self._joined, self.is_initialized = joined, True
        if self.has_several:
            # Workers share `savedir`, and each would find the others' files under its names.
            self._files = Files(Path(self.savedir, f"worker_{self.worker_rank}"))
        self.experiment_id, self.run_id = joined.run.experiment, joined.run.id
        self._energy.stop()  # that of a context that nobody has ended
        self._begun, self._energy = time.monotonic(), Energy()
        try:
            self.begin(joined)
        except BaseException:
            self._joined, self.is_initialized = None, False  # without `end()`: nothing has begun
            self._energy.stop()
            raise

    def part(self) -> None:
        """Have no part in the run anymore."""
        self.is_initialized = False
        self._energy.stop()
        if self._joined is not None:
            self.end()
            self._joined = None

    def entry(self, call: Call, loggers: Sequence[Logger]) -> Entry:
        """Return a call of `log()` that `loggers` let pass."""
        assert self._joined is not None
        return Entry(
            item=call.item,
            identifier=call.identifier,
            kind=call.kind,
            step=counted(call.step),
            options=call.options,
            joined=self._joined,
            files=self._files,
            seconds=time.monotonic() - self._begun,
            energy=self._energy,
            rank=self.worker_rank,
            has_several=any(logger.has_several for logger in loggers),
            loggers=tuple(type(logger).__name__ for logger in loggers),
        )

    def _require_context(self) -> None:
        if not self.is_initialized:
            raise LoggerContextError(
                f"{type(self).__name__} has not been initialized. Expected create_logger_context() or start_logging() "
                "before anything is logged or destroyed."
            )

    # --- what a logger of its own may add ------------------------------------------------------------------------

    def init_arguments(self) -> dict[str, Any]:
        """Return the arguments of `otel_ml.init()`."""
        return {"experiment": self.experiment_id, "exporters": self._exporters()}

    def _exporters(self) -> tuple[str, ...]:
        return ("jsonl",) if self.exporter is None else ("jsonl", self.exporter)

    def environment(self) -> dict[str, str]:
        """Return the variables by which the exporter is told where to write."""
        return {}

    def begin(self, joined: Joined) -> None:
        """Do what belongs to the beginning of the context."""

    def observe(self, entry: Entry) -> None:
        """See what is logged."""

    def observe_parameters(self, params: Mapping[str, Any]) -> None:
        """See the hyper-parameters that are saved."""

    def end(self) -> None:
        """Do what belongs to the end of the context, while the run is still open."""


class EmptyLogger(Logger):
    """A logger that does nothing, so that a program needs no `if`."""

    def create_logger_context(self, rank: int = 0, **kwargs: Any) -> str | None:
        """Do nothing."""
        del kwargs
        self.worker_rank = rank
        return None

    def destroy_logger_context(self) -> None:
        """Do nothing."""

    def logs_on(self, rank: int) -> bool:
        """Return False."""
        del rank
        return False

    def should_log(self, batch_idx: int | None = None) -> bool:
        """Return False."""
        del batch_idx
        return False

    def log(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def save_hyperparameters(self, params: Mapping[str, Any]) -> None:
        """Do nothing."""
