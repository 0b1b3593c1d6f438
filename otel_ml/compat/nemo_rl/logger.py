"""NeMo RL's `Logger`, and its loggers of one backend each, for programs that make one without a `LoggerConfig`."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import otel_ml
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml.compat.nemo_rl import jsonl, timelines, token_errors
from otel_ml.compat.nemo_rl.config import settings_from
from otel_ml.compat.nemo_rl.gpu_monitor import monitor_of
from otel_ml.compat.nemo_rl.step_metrics import StepMetrics
from otel_ml.compat.nemo_rl.values import values_of
from otel_ml.compat.tracking.own_backend import with_exporters_of_the_job
from otel_ml.compat.tracking.step_axes import WITHIN, counted
from otel_ml.exceptions import ConfigError
from otel_ml.warn_once import say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from otel_ml.diagnostics.hardware import Monitor

__all__ = ["Logger", "LoggerInterface", "MLflowLogger", "SwanlabLogger", "TensorboardLogger", "WandbLogger"]


class LoggerInterface(ABC):
    """What every logger of NeMo RL can do."""

    @abstractmethod
    def log_metrics(
        self,
        metrics: Mapping[str, Any],
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,
        step_finished: bool = False,
    ) -> None:
        """Record metrics at a step."""

    @abstractmethod
    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Record hyper-parameters."""

    @abstractmethod
    def log_histogram(self, histogram: Sequence[Any], step: int, name: str) -> None:
        """Record a distribution."""

    @abstractmethod
    def log_plot(self, figure: Figure, step: int, name: str) -> None:
        """Record a matplotlib figure."""


class Logger(LoggerInterface):
    """Starts a run that goes to the backends which `cfg` enables, and to `metrics.jsonl`.

    No call waits for a backend, and none raises: what cannot be recorded is counted and reported once.

    Args:
        cfg: NeMo RL's `LoggerConfig`: `log_dir`; `wandb_enabled`, `swanlab_enabled`, `tensorboard_enabled`,
            `mlflow_enabled` with a section each; `num_val_samples_to_print`. What is left out is off.

    Attributes:
        base_log_dir: where dumps are written; the run is below it.
        run: of otel_ml; put `run.id` into a checkpoint to continue it.
        wandb_logger: None, as `swanlab_logger` is: a backend's own objects are in the service.
        gpu_monitor: with `monitor_gpus`, what samples all nodes of the Ray cluster this driver is connected to, or,
            where there is none, this host; in the intervals of `gpu_monitoring`.
        num_val_samples_to_print: what `cfg` says.

    Raises:
        ConfigError: all that is wrong with `cfg`, in one message.
    """

    wandb_logger: None = None
    swanlab_logger: None = None
    gpu_monitor: Monitor | None = None

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        settings = settings_from(cfg)
        try:
            settings.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"log_dir: {error}. Choose a folder that can be written to.") from error
        self.base_log_dir: str = str(settings.log_dir)
        self.num_val_samples_to_print: int = settings.num_val_samples_to_print
        self._step = -1
        self._step_metrics = StepMetrics()
        self._variables = RunEnvironment()
        # Before init(), which hands them to the service that it starts.
        self._variables.set(settings.environment)
        try:
            self.run: otel_ml.Run = otel_ml.init(
                settings.experiment,
                name=settings.name,
                id=settings.id,
                tags=settings.tags,
                notes=settings.notes,
                exporters=with_exporters_of_the_job(settings.exporters),
            )
        # An interrupt, too: the variables are this logger's, and it does not come to be.
        except BaseException:
            self._variables.undo()
            raise
        if cfg.get("monitor_gpus"):
            self.gpu_monitor = monitor_of(cfg.get("gpu_monitoring") or {})

    @property
    def loggers(self) -> list[LoggerInterface]:
        """This logger alone: it writes to every backend that is enabled."""
        return [self]

    def log_metrics(
        self,
        metrics: Mapping[str, Any],
        step: int,
        prefix: str | None = "",
        step_metric: str | None = None,
        step_finished: bool = False,
    ) -> None:
        """Record metrics as `<prefix>/<name>`; of a name's values at one step the last counts.

        Args:
            metrics: numbers, arrays and tensors of one element; lists and longer arrays are recorded as `/mean`,
                `/p50`, `/p90`, `/max`; texts and tables as such; nested names are joined by `/`.
            step: of training. Steps may come in any order; what belongs to another clock has a `step_metric`.
            prefix: of all names but that of `step_metric`.
            step_metric: name in `metrics` whose value is the step instead, on an axis of its own.
            step_finished: nothing more of this step follows: it can be shown.
        """
        if not isinstance(metrics, Mapping):
            otel_ml.log(metrics, step=step)  # which says what is wrong
            return
        step = counted(step)
        above = f"{prefix}/" if prefix else ""
        named = {name if name == step_metric else f"{above}{name}": value for name, value in metrics.items()}
        for (index, axis), placed in self._step_metrics.placed(named, step, prefix or "", step_metric):
            # Before the values: what is timed from here on belongs to this step.
            if axis is None:
                self._enter(index)
            values = values_of(placed)
            otel_ml.log(values.numbers, step=index, axis=axis, within=WITHIN)
            for name, text in values.texts.items():
                otel_ml.log_text(name, text, step=index, axis=axis)
            for name, (data, columns) in values.tables.items():
                otel_ml.log_table(name, data, columns, step=index, axis=axis)
        # Of the newest step alone: a late value of an older one, said to be its last, moves nothing.
        if step_finished and _is_step(step) and step == self._step:
            self._enter(self._step + 1)

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        """Draw metrics whose names match a glob, such as `ray/*`, over the newest value of `step_metric`."""
        if step_metric:
            self._step_metrics.declare(name, step_metric)

    def log_hyperparams(self, params: Mapping[str, Any]) -> None:
        """Record hyper-parameters, nested or not; MLflow and TensorBoard show nested ones as `a.b`."""
        otel_ml.log_params(params)

    def log_histogram(self, histogram: Sequence[Any], step: int, name: str) -> None:
        """Record a distribution, in every backend; also of values that are all the same."""
        otel_ml.log_histogram(name, histogram, step=counted(step))

    def log_plot(self, figure: Figure, step: int, name: str) -> None:
        """Record a matplotlib figure. It is drawn now: close it, or change it, when you like."""
        otel_ml.log_figure(name, figure, step=counted(step))

    def log_batched_dict_as_jsonl(self, to_log: Mapping[str, Any], filename: str) -> None:
        """Write one JSON object a sample into `filename` below the log folder; an earlier file is kept beside it."""
        self._dump(filename, lambda path: jsonl.write_batch(path, to_log))

    def log_string_list_as_jsonl(self, to_log: Sequence[str], filename: str) -> None:
        """Add lines to `filename` below the log folder, as they are."""
        self._dump(filename, lambda path: jsonl.append_lines(path, to_log))

    def log_plot_per_worker_timeline_metrics(
        self, metrics: Mapping[Any, Sequence[Any]], step: int, prefix: str, name: str, timeline_interval: float
    ) -> None:
        """Record `<prefix>/per_worker_<name>`, a line each, and `<prefix>/average_<name>`, their mean.

        Args:
            metrics: worker → values; workers without any are left out.
            step: of training.
            prefix: of both names.
            name: of what is shown.
            timeline_interval: seconds from one value to the next.
        """
        if not timeline_interval > 0:
            say(
                "bad-event",
                f"{prefix}/{name}: expected a timeline_interval above 0 s, got {timeline_interval!r}. It is not drawn.",
            )
            return
        # Two drawings, each by itself: one that fails does not take the other with it.
        self._draw(
            f"{prefix}/per_worker_{name}", step, lambda: timelines.per_worker_figure(metrics, name, timeline_interval)
        )
        self._draw(f"{prefix}/average_{name}", step, lambda: timelines.average_figure(metrics, name, timeline_interval))

    def log_plot_token_mult_prob_error(self, data: Mapping[str, Any], step: int, name: str) -> None:
        """Record a plot of the sample on whose tokens inference engine and training policy disagree most.

        Args:
            data: tensors or arrays `generation_logprobs`, `prev_logprobs`, `token_mask` (samples, tokens),
                `sample_mask`, `prompt_lengths`, `full_lengths` (samples,). Samples that are masked do not count.
            step: of training.
            name: of the plot.
        """
        self._draw(name, step, lambda: token_errors.token_error_figure(data))

    def finish(self) -> None:
        """Send everything and end the run; before a Ray actor is torn down. Safe to call again."""
        if self.gpu_monitor is not None:
            # Before the run ends: its next sample would be of none.
            self.gpu_monitor.stop()
        otel_ml.shutdown()
        self._variables.undo()

    def _enter(self, step: int) -> None:
        """Make `step` the current one, unless a later one is: timers and metrics without a step count there.

        Steps count from 1: at 0 is what comes before the first, set-up and a first validation.
        """
        if _is_step(step) and step > self._step:
            self._step = int(step)
            otel_ml.set_step(max(self._step, 1))

    def _draw(self, name: str, step: int, draw: Callable[[], Figure | None]) -> None:
        try:
            figure = draw()
        except Exception as error:  # noqa: BLE001 (whatever is given to a plot: training goes on)
            say("bad-event", f"{name} is not drawn: {type(error).__name__}: {error}. Expected what the call documents.")
            return
        if figure is not None:
            self.log_plot(figure, step, name)

    def _dump(self, filename: str, write: Callable[[Path], None]) -> None:
        path = Path(self.base_log_dir) / filename
        try:
            write(path)
        except Exception as error:  # noqa: BLE001 (a full disk, and whatever is given: training goes on)
            why = getattr(error, "strerror", None) or error  # without the file's name, which has the step in it
            say("dump-not-written", f"Files are not written into {path.parent}: {why}. Make room, or look at the data.")


def _is_step(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


class _OneBackend(Logger):
    """A `Logger` with one backend.

    Args:
        cfg: its section of the `LoggerConfig`.
        log_dir: the current folder by default.
    """

    backend = ""

    def __init__(self, cfg: Mapping[str, Any] | None = None, log_dir: str | None = None) -> None:
        super().__init__({"log_dir": log_dir or ".", f"{self.backend}_enabled": True, self.backend: cfg})


class WandbLogger(_OneBackend):
    """Records into Weights & Biases."""

    backend = "wandb"


class SwanlabLogger(_OneBackend):
    """Records into SwanLab."""

    backend = "swanlab"


class TensorboardLogger(_OneBackend):
    """Records into TensorBoard."""

    backend = "tensorboard"


class MLflowLogger(_OneBackend):
    """Records into MLflow."""

    backend = "mlflow"
