"""The loggers of one backend each."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, ClassVar, Literal

from otel_ml._internal.device_tensor import is_on_device
from otel_ml.compat import mlflow
from otel_ml.compat.itwinai import kinds
from otel_ml.compat.itwinai.entry import Entry
from otel_ml.compat.itwinai.logger import Logger
from otel_ml.compat.itwinai.registry import ToRegister, register
from otel_ml.compat.itwinai.session import Joined
from otel_ml.compat.mlflow.open_runs import STATE
from otel_ml.config import Config
from otel_ml.exceptions import ConfigError
from otel_ml.sqlite_address import sqlite_uri
from otel_ml.warn_once import say

__all__ = ["ConsoleLogger", "MLFlowLogger", "TensorBoardLogger", "WandBLogger"]

_log = logging.getLogger(__name__)


class ConsoleLogger(Logger):
    """Shows metrics as `ConsoleLogger: loss = 0.5`, with Python's logging at INFO; the run is in its folder.

    After its context it still shows them, as in itwinai; that nothing is recorded then is reported.
    """

    supported_kinds: ClassVar[frozenset[str]] = kinds.CONSOLE
    elsewhere: ClassVar[Mapping[str, str]] = {"run_path": "the folder of the run is otel_ml.init().dir."}
    # itwinai 0.4.2 leaves `is_initialized` true when this logger's context is destroyed, so its log() goes on
    # printing.
    _had_context = False

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
            LoggerContextError: a RuntimeError; there has been no context.
        """
        super().log(item, identifier, kind, step, batch_idx, **kwargs)
        # Inside a context `observe()` has shown it, which super().log() calls.
        if not self.is_initialized and self.should_log(batch_idx):
            _show(item, identifier, kind)

    def observe(self, entry: Entry) -> None:
        """Show a metric."""
        _show(entry.item, entry.identifier, entry.kind)

    def part(self) -> None:
        """Have no part in the run anymore."""
        self._had_context = True
        super().part()

    def _require_context(self) -> None:
        if self.is_initialized or not self._had_context:
            super()._require_context()
        else:
            say(
                "itwinai-no-context",
                "ConsoleLogger has no context anymore: metrics are shown, and nothing is recorded. "
                "Log inside of start_logging().",
            )


def _show(item: Any, identifier: str, kind: str) -> None:
    if kind == "metric" and _log.isEnabledFor(logging.INFO) and not is_on_device(item):
        _log.info("ConsoleLogger: %s = %s", identifier, item)


def _database() -> str:
    """Return what the exporter writes to where nothing says otherwise; empty where the exporter has to refuse it."""
    with suppress(ConfigError):
        return sqlite_uri(Config.from_env().dir / "mlflow.db")
    # A folder whose name cannot be part of an address of SQLite: the exporter refuses it, and says why.
    return ""


class MLFlowLogger(Logger):
    """Records into a run that MLflow stores.

    A model is kept in MLflow's own format where `mlflow` is installed; with `registered_model_name=` it becomes a
    version in the registry when the context is destroyed.

    Attributes:
        mlflow: `otel_ml.compat.mlflow`, whose functions record into the run of the context.
        active_run: MLflow's view of that run; None without a context on this worker.
        tracking_uri: where the run is stored, unless a service elsewhere decides.

    Args:
        savedir: folder of the files that are made of logged things.
        experiment_name: of the MLflow experiment.
        tracking_uri: of the MLflow server or file; else `MLFLOW_TRACKING_URI`, else `mlflow.db` in `OTEL_ML_DIR`.
        run_description: a free text.
        run_name: display name.
        log_freq: `"epoch"`, `"batch"` or every n-th batch.
        log_on_workers: a rank, several, -1 for all, or None for none.
    """

    supported_kinds: ClassVar[frozenset[str]] = kinds.MLFLOW
    exporter: ClassVar[str | None] = "mlflow"

    def __init__(
        self,
        savedir: str | PathLike[str] = "mllogs",
        experiment_name: str | None = None,
        tracking_uri: str | None = None,
        run_description: str | None = None,
        run_name: str | None = None,
        log_freq: str | int = "epoch",
        log_on_workers: int | Sequence[int] | None = 0,
    ) -> None:
        super().__init__(savedir, log_freq, log_on_workers, experiment_id=experiment_name)
        self.mlflow = mlflow
        self.active_run: mlflow.ActiveRun | None = None
        self.tracking_uri: str = str(tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or _database())
        self.run_description = run_description
        self.run_name = run_name
        self._to_register: list[ToRegister] = []

    @property
    def experiment_name(self) -> str:
        """Name of the experiment."""
        return self.experiment_id or Config.from_env().experiment

    def resolve_experiment_id(self) -> str:
        """Return the experiment's id, here its name; runs of `mlflow` begin in it, and are written as this logger's."""
        # Of the whole collection: a run that `logger.mlflow.start_run()` begins is written by all of its loggers.
        exporters = (*self.whole.init_arguments()["exporters"], *Config.from_env().exporters)
        STATE.write_to(tuple(dict.fromkeys(exporters)), self.whole.environment())
        return str(self.mlflow.set_experiment(self.experiment_name).experiment_id)

    def init_arguments(self) -> dict[str, Any]:
        """Return the arguments of `otel_ml.init()`."""
        return {**super().init_arguments(), "name": self.run_name, "notes": self.run_description}

    def environment(self) -> dict[str, str]:
        """Return the variables that say where to write."""
        return {"MLFLOW_TRACKING_URI": self.tracking_uri}

    def begin(self, joined: Joined) -> None:
        """Make the run that of `mlflow`."""
        # The stack of compat.mlflow belongs to this thread. In other threads the functions of `logger.mlflow` join the
        # run by themselves, without the prefix.
        self.active_run = STATE.join(joined.run, f"{joined.prefix}/" if joined.prefix else "")

    def observe(self, entry: Entry) -> None:
        """Note a model that is to be in the registry."""
        model = entry.options.get("registered_model_name")
        if model and entry.kind in {"model", "best_model"}:
            alias = "best" if entry.kind == "best_model" else ""
            self._to_register.append(ToRegister(entry.name, str(model), alias))

    def end(self) -> None:
        """Register the models that were logged with `registered_model_name=`."""
        models, self._to_register = self._to_register, []
        active, self.active_run = self.active_run, None
        if active is None:
            return
        if models:
            register(models, active.run)
        STATE.end(active, None, None)


class WandBLogger(Logger):
    """Records into a run that W&B stores; the step that is given is the step.

    Args:
        savedir: folder of the files that are made of logged things.
        project_name: of the W&B project.
        log_freq: `"epoch"`, `"batch"` or every n-th batch.
        log_on_workers: a rank, several, -1 for all, or None for none.
        offline_mode: write a folder that `wandb sync` uploads.
        tags, notes, name: of the run.
    """

    supported_kinds: ClassVar[frozenset[str]] = kinds.WANDB
    elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("wandb", "active_run"), "use otel_ml.compat.wandb, whose init() joins the run of the context."
    )
    exporter: ClassVar[str | None] = "wandb"

    def __init__(
        self,
        savedir: str | PathLike[str] = "mllogs",
        project_name: str | None = None,
        log_freq: str | int = "epoch",
        log_on_workers: int | Sequence[int] | None = 0,
        offline_mode: bool = False,
        *,
        name: str | None = None,
        tags: Sequence[str] = (),
        notes: str | None = None,
    ) -> None:
        super().__init__(savedir, log_freq, log_on_workers, experiment_id=project_name)
        self.project_name = project_name
        self.offline_mode = offline_mode
        self._about = {"name": name, "tags": tuple(tags), "notes": notes}

    def init_arguments(self) -> dict[str, Any]:
        """Return the arguments of `otel_ml.init()`."""
        return {**super().init_arguments(), **self._about}

    def environment(self) -> dict[str, str]:
        """Return the variables that say where to write."""
        return {"WANDB_MODE": "offline"} if self.offline_mode else {}


class TensorBoardLogger(Logger):
    """Records into a run that TensorBoard shows.

    Args:
        savedir: folder of the files that are made of logged things.
        log_freq: `"epoch"`, `"batch"` or every n-th batch.
        framework: whose tensors are logged; those of either are taken.
        log_on_workers: a rank, several, -1 for all, or None for none.

    Raises:
        ConfigError: a ValueError; another framework.
    """

    supported_kinds: ClassVar[frozenset[str]] = kinds.TENSORBOARD
    elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("writer", "tf"), "use otel_ml.compat.tensorboard.SummaryWriter, which joins the run of the context."
    )
    exporter: ClassVar[str | None] = "tensorboard"

    def __init__(
        self,
        savedir: str | PathLike[str] = "mllogs",
        log_freq: str | int = "epoch",
        framework: Literal["pytorch", "tensorflow"] = "pytorch",
        log_on_workers: int | Sequence[int] | None = 0,
    ) -> None:
        super().__init__(savedir, log_freq, log_on_workers)
        self.framework: str = framework.lower()
        if self.framework not in {"pytorch", "tensorflow"}:
            raise ConfigError(f"framework={framework!r} was given. Expected 'pytorch' or 'tensorflow'.")
