"""`LoggerConfig`: every documented field; each does what its documentation says, or is said to have no meaning here."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import otel_ml
from otel_ml import Run
from otel_ml._internal.events.config_values import config_value
from otel_ml.compat.megatron import distributed
from otel_ml.compat.megatron.log_levels import setup_logging
from otel_ml.compat.tracking.own_backend import with_exporters_of_the_job
from otel_ml.config import Config
from otel_ml.exceptions import ConfigError, MissingDependencyError
from otel_ml.warn_once import say

__all__ = ["NO_MEANING", "LoggerConfig", "start"]

UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}

_BACKEND = "it is set where the service runs, by the backend's own variable"
_DEVICE = "otel_ml records no tensors; a framework's own debugger does"

NO_MEANING = {
    "tensorboard_queue_size": "the service's queue is bounded by OTEL_ML_QUEUE_MAX",
    "barrier_with_L1_time": "no timer waits for other ranks",
    "wandb_save_dir": "all runs are below OTEL_ML_DIR",
    "wandb_entity": f"{_BACKEND}, WANDB_ENTITY",
    "mlflow_tracking_uri": f"{_BACKEND}, MLFLOW_TRACKING_URI",
    "comet_project": "there is no exporter for Comet",
    "comet_experiment_name": "there is no exporter for Comet",
    "comet_workspace": "there is no exporter for Comet",
    "comet_api_key": "there is no exporter for Comet",
    "comet_tags": "there is no exporter for Comet",
    "moe_routing_trace_path": _DEVICE,
    "moe_routing_trace_max_training_iters": _DEVICE,
    "moe_routing_trace_capture_logits": _DEVICE,
    "moe_routing_trace_capture_hidden_states": _DEVICE,
    "moe_routing_trace_dump_weights": _DEVICE,
}
"""Field → why it has no meaning here."""


@dataclass
class LoggerConfig:
    """What is logged, where, and how often.

    Attributes:
        log_interval: iterations between two lines on the console.
        log_params_norm: record the norm of the parameters that `TrainingLog.log()` is given.
        log_throughput: show and record TFLOP/s per GPU, from the operations that `TrainingLog.log()` is given.
        log_throughput_to_tensorboard: record them, and batches, samples and tokens per second over a window.
        throughput_window_size: its iterations.
        log_progress: `progress_log()` writes `progress.txt`.
        timing_log_level: of `Timers`: 0 to 2, -1 is off.
        timing_log_option: of `Timers`: `max`, `minmax`, `all`.
        tensorboard_dir: set: TensorBoard is among the backends; the folder is `OTEL_ML_DIR`.
        tensorboard_log_interval: iterations between two rows in all backends.
        tensorboard_queue_size: no meaning.
        log_timers_to_tensorboard: record timers.
        log_loss_scale_to_tensorboard: record the loss scale.
        log_validation_ppl_to_tensorboard: record the perplexity of validation losses.
        log_memory_to_tensorboard: record device memory, the largest of all ranks.
        memory_keys: key of `torch.cuda.memory_stats()` → name; ten of them by default.
        log_memory_interval: iterations between two of its records; `tensorboard_log_interval` by default.
        log_device_memory_used: also what all processes use on the device.
        log_l2_norm_grad_to_tensorboard: record the norms of gradients that `TrainingLog.log()` is given.
        log_num_zeros_in_grad: record the number of zeros in gradients that it is given.
        log_max_attention_logit: record the largest attention logit that it is given.
        log_runtime_to_tensorboard: record time, tokens, samples and the estimate of the time that remains.
        runtime_time_unit: `seconds`, `minutes`, `hours`, `days`.
        barrier_with_L1_time: no meaning.
        log_world_size_to_tensorboard: record the world size.
        wandb_project: set: W&B is among the backends, and this is the project.
        wandb_exp_name: display name of the run.
        wandb_save_dir: no meaning.
        wandb_entity: no meaning.
        logging_level: see `setup_logging()`.
        filter_warnings: see `setup_logging()`.
        modules_to_filter: see `setup_logging()`.
        set_level_for_all_loggers: see `setup_logging()`.
        log_energy: record energy and power per GPU, from the joules that `TrainingLog.log()` is given.
        save_config_filepath: write the configuration there, as YAML.
        skip_train_metrics_log: record no metrics of training; validation and timers are, and the line is printed.
        mlflow_experiment: set: MLflow is among the backends, and this is the experiment.
        mlflow_run_name: display name of the run.
        mlflow_tags: of the run.
        mlflow_description: of the run.
        mlflow_log_artifacts: give it to `on_save_checkpoint_success(upload=…)`.
    """

    log_interval: int = 100
    log_params_norm: bool = False
    log_throughput: bool = False
    log_throughput_to_tensorboard: bool = False
    throughput_window_size: int = 100
    log_progress: bool = False
    timing_log_level: int = 0
    timing_log_option: str = "minmax"
    tensorboard_dir: str | PathLike[str] | None = None
    tensorboard_log_interval: int = 1
    tensorboard_queue_size: int = 1000
    log_timers_to_tensorboard: bool = False
    log_loss_scale_to_tensorboard: bool = True
    log_validation_ppl_to_tensorboard: bool = False
    log_memory_to_tensorboard: bool = False
    memory_keys: dict[str, str] | None = None
    log_memory_interval: int | None = None
    log_device_memory_used: bool = False
    log_l2_norm_grad_to_tensorboard: bool = False
    log_num_zeros_in_grad: bool = False
    log_max_attention_logit: bool = False
    log_runtime_to_tensorboard: bool = False
    runtime_time_unit: str = "hours"
    barrier_with_L1_time: bool = True  # noqa: N815 (Megatron's name)
    log_world_size_to_tensorboard: bool = False
    wandb_project: str | None = None
    wandb_exp_name: str | None = None
    wandb_save_dir: str | None = None
    wandb_entity: str | None = None
    logging_level: int | None = None
    filter_warnings: bool = True
    modules_to_filter: Sequence[str] | None = None
    set_level_for_all_loggers: bool = False
    log_energy: bool = False
    save_config_filepath: str | None = None
    moe_routing_trace_path: str | None = None
    moe_routing_trace_max_training_iters: int | None = None
    moe_routing_trace_capture_logits: bool = False
    moe_routing_trace_capture_hidden_states: bool = False
    moe_routing_trace_dump_weights: bool = False
    skip_train_metrics_log: bool = False
    mlflow_experiment: str | None = None
    mlflow_run_name: str | None = None
    mlflow_tracking_uri: str | None = None
    mlflow_tags: dict[str, str] | None = None
    mlflow_description: str | None = None
    mlflow_log_artifacts: bool = True
    comet_project: str | None = None
    comet_experiment_name: str | None = None
    comet_workspace: str | None = None
    comet_api_key: str | None = None
    comet_tags: Sequence[str] | None = None

    def finalize(self) -> None:
        """Check all fields, and say which of those that are set have no meaning here.

        Raises:
            ConfigError: fields are wrong; all that are, in one message.
            MissingDependencyError: the run goes to MLflow from this machine, which does not have its package.
        """
        problems = [*self._numbers(), *self._choices(), *self._names()]
        if problems:
            raise ConfigError(*problems)
        # The service of this host would not find the package either, and say so only once training runs.
        if self._writes_to_mlflow_here() and find_spec("mlflow") is None:
            raise MissingDependencyError(
                f"LoggerConfig.mlflow_experiment={self.mlflow_experiment!r}", package="mlflow", extra="mlflow"
            )
        for name in self.given():
            if name in NO_MEANING:
                say("compat-megatron", f"LoggerConfig.{name} has no meaning here: {NO_MEANING[name]}. Leave it out.")

    def given(self) -> list[str]:
        """Return the names of the fields that differ from their defaults."""
        # A field whose default is made anew has no `default` to compare with.
        return [
            one.name for one in fields(self) if one.default is not MISSING and getattr(self, one.name) != one.default
        ]

    @property
    def exporters(self) -> list[str] | None:
        """The backends the fields ask for; None where they ask for none."""
        asked = {
            "tensorboard": self.tensorboard_dir,
            "wandb": self.wandb_project,
            "mlflow": self.mlflow_experiment,
        }
        names = [name for name, value in asked.items() if value]
        # With the file, which `otel_ml.read()` and `across_ranks_string()` read.
        return ["jsonl", *names] if names else None

    def _writes_to_mlflow_here(self) -> bool:
        asked = with_exporters_of_the_job(self.exporters) if self.exporters else None
        return "mlflow" in (asked or ()) and not Config.from_env(os.environ).is_remote

    def _numbers(self) -> list[str]:
        whole = {
            "log_interval": 1,
            "throughput_window_size": 1,
            "tensorboard_log_interval": 1,
            "log_memory_interval": 1,
        }
        return [
            f"LoggerConfig.{name} is {value!r}, expected a whole number from {least} on."
            for name, least in whole.items()
            if (value := getattr(self, name)) is not None and (not isinstance(value, int) or value < least)
        ]

    def _choices(self) -> list[str]:
        allowed: dict[str, Sequence[Any]] = {
            "timing_log_level": (-1, 0, 1, 2),
            "timing_log_option": ("max", "minmax", "all"),
            "runtime_time_unit": tuple(UNITS),
        }
        return [
            f"LoggerConfig.{name} is {getattr(self, name)!r}, expected one of {', '.join(map(str, values))}."
            for name, values in allowed.items()
            if getattr(self, name) not in values
        ]

    def _names(self) -> list[str]:
        pairs = (
            ("wandb_project", "wandb_exp_name"),
            ("mlflow_experiment", "mlflow_run_name"),
            ("comet_project", "comet_experiment_name"),
        )
        return [
            f"LoggerConfig.{name} is missing: it names the run of {project}={getattr(self, project)!r}. "
            f"Set logger.{name}."
            for project, name in pairs
            if getattr(self, project) and not getattr(self, name)
        ]


def start(config: LoggerConfig, params: Any = None, **arguments: Any) -> Run:
    """Check the configuration, set up the console's logging, and start the run it describes.

    Args:
        config: what is logged where.
        params: all of the training's configuration, nested, values of any kind: the run's parameters.
        **arguments: of `otel_ml.init()`, before those that follow from `config`.

    Raises:
        ConfigError: fields or arguments are wrong.
    """
    config.finalize()
    setup_logging(
        config.logging_level, config.filter_warnings, config.modules_to_filter, config.set_level_for_all_loggers
    )
    given: dict[str, Any] = {
        "experiment": config.wandb_project or config.mlflow_experiment,
        "name": config.wandb_exp_name or config.mlflow_run_name,
        "tags": tuple(f"{key}={value}" for key, value in (config.mlflow_tags or {}).items()),
        "notes": config.mlflow_description,
        "exporters": with_exporters_of_the_job(config.exporters) if config.exporters else None,
    }
    # What the caller says stands behind, and wins.
    run = otel_ml.init(**{**given, **arguments}, params=params)
    if config.save_config_filepath and distributed.rank() == 0:
        _write(Path(config.save_config_filepath), config, params)
    return run


def _write(path: Path, config: LoggerConfig, params: Any) -> None:
    import yaml

    # A key is not to lie in a file beside the checkpoints.
    own = {one.name: getattr(config, one.name) for one in fields(config) if one.name != "comet_api_key"}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # As the run's parameters are recorded: YAML refuses enums, numbers of numpy and most other classes.
        plain = config_value({"logger": own, "params": {} if params is None else params})
        path.write_text(yaml.safe_dump(plain), encoding="utf-8")
    except OSError as error:
        logging.getLogger(__name__).warning("The configuration was not written to %s: %s", path, error)
