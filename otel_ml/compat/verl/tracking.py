"""`Tracking`: the metrics of each step."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.printed import print_line
from otel_ml.compat.tracking.step_axes import WITHIN, whole
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.compat.verl.backends import (
    CONSOLE,
    EXPORTERS,
    FILE,
    RL_INSIGHT,
    SUPPORTED,
    exporters,
    say_what_is_set_elsewhere,
)
from otel_ml.compat.verl.file_logger import FileLogger
from otel_ml.compat.verl.rl_insight import RLInsightLogger
from otel_ml.integrations.several_numbers import as_one

__all__ = ["Tracking"]


class Tracking:
    """Records each step's metrics; what the run is written to does not touch training.

    Where a run is active already this joins it. With an endpoint, the service there decides where it is written.

    Attributes:
        supported_backend: the backends that verl knows.
        logger: backend → what writes there. `wandb` is `otel_ml.compat.wandb`; the others have `log(data, step)`,
            which records into the one run.
    """

    supported_backend: ClassVar[list[str]] = list(SUPPORTED)

    def __init__(
        self,
        project_name: str,
        experiment_name: str,
        default_backend: str | Sequence[str] = "console",
        config: Any = None,
    ) -> None:
        chosen = [default_backend] if isinstance(default_backend, str) else list(default_backend)
        for backend in chosen:
            if backend not in {CONSOLE, *EXPORTERS} and not _is_rl_insight(backend):
                known = ", ".join(sorted([CONSOLE, *EXPORTERS]))
                not_kept(f"Tracking(default_backend={backend!r})", f"no exporter writes there. There are: {known}.")
        say_what_is_set_elsewhere(chosen, config)
        # Asked before init(), after which a run is chosen in either case.
        self._joins = RUNTIME.is_chosen
        if self._joins:
            self._run = otel_ml.init()
        else:
            self._run = otel_ml.init(project_name, name=experiment_name, exporters=exporters(chosen))
        # verl has one `Tracking`, in its driver. Where every rank makes one, one of them prints and writes the file.
        is_first = self._run.rank == 0
        self._prints = CONSOLE in chosen and is_first
        self._file = FileLogger(project_name, experiment_name) if FILE in chosen and is_first else None
        # Also of backends without an exporter: scripts look each of theirs up.
        self.logger: dict[str, Any] = {
            _logger_name(backend): self._logger(backend) for backend in chosen if backend in {*SUPPORTED, *EXPORTERS}
        }
        if RL_INSIGHT in chosen:
            self.logger[RL_INSIGHT] = RLInsightLogger(project_name, experiment_name, config)
        if config is not None:
            otel_ml.log_params(config)

    def _logger(self, backend: str) -> Any:
        if _logger_name(backend) == "wandb":
            from otel_ml.compat import wandb

            return wandb
        if backend == FILE and self._file is not None:
            return self._file
        return _Logger(_print_line if backend == CONSOLE else self._record)

    @property
    def run(self) -> otel_ml.Run:
        """The run that is recorded into."""
        return self._run

    @reports_unrecordable
    def log(self, data: Mapping[str, Any], step: Any, backend: Any = None) -> None:
        """Record numbers, texts as texts and data frames as tables, at `step`; in all backends."""
        if backend is not None:
            not_kept(f"Tracking.log(backend={backend!r:.80})", "every exporter of the run gets it.")
        self._record(data, step)
        if self._prints:
            _print_line(data, step)
        if self._file is not None:
            self._file.log(data, step)

    def _record(self, data: Mapping[str, Any], step: Any) -> None:
        index = whole(step)
        if index is None:
            not_kept(f"Tracking.log(step={step!r:.80})", "a step is a whole number from 0 on; the current one counts.")
        # Texts and tables go their own ways below. None, of what has no value at this step, is not a mistake.
        recordable = {
            key: as_one(value)
            for key, value in data.items()
            if not isinstance(value, str) and value is not None and not _is_frame(value)
        }
        otel_ml.log(recordable, step=index, within=WITHIN)
        for key, value in data.items():
            if isinstance(value, str):
                otel_ml.log_text(key, value, step=index)
            elif _is_frame(value):
                otel_ml.log_table(key, value, step=index)

    def finish(self, exit_code: int = 0) -> None:
        """End the run that this began; without it the process ends it, and nothing is lost.

        Args:
            exit_code: other than 0: the run has failed.
        """
        # `SystemExit(0)` is a good end.
        self.__exit__(SystemExit, SystemExit(exit_code), None)

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.finish()
        if not self._joins:
            self._run.__exit__(kind, error, traceback)


@dataclass(frozen=True, slots=True)
class _Logger:
    """One backend, for scripts that write to one alone: what they log is in the run."""

    _log: Callable[[Mapping[str, Any], Any], None]

    def log(self, data: Mapping[str, Any], step: Any) -> None:
        """Record values at `step`."""
        self._log(data, step)

    def finish(self) -> None:
        """Do nothing: the run ends with `Tracking.finish()`."""


def _is_rl_insight(backend: str) -> bool:
    """Whether it is rl_insight, and on: it says itself what becomes of it."""
    return backend == RL_INSIGHT and RLInsightLogger.enabled()


def _is_frame(value: Any) -> bool:
    return hasattr(value, "itertuples") and hasattr(value, "columns")


def _logger_name(backend: str) -> str:
    return "wandb" if backend == "tracking" else backend


def _print_line(values: Mapping[str, Any], step: Any) -> None:
    """Print verl's line of a step; a tensor is left out: printing one that is on a device would wait for it."""
    shown = [f"{key}:{value!s}" for key, value in values.items() if isinstance(value, numbers.Number)]
    print_line(" - ".join([f"step:{step}", *shown]))
