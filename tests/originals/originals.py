"""The originals, as compared: versions, what is better here, accepted and reported, or not here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from otel_ml.compat.wandb import plot
from otel_ml.compat.wandb.artifact import OF_THE_SERVER

__all__ = ["ORIGINALS", "Original", "names_of", "said_by"]

_NAMES = Path(__file__).with_name("names.txt")


@dataclass(frozen=True)
class Original:
    """An interface of others.

    Attributes:
        name: of the project.
        version: that was compared: of a package, or commit and date of a repository.
        page: of `docs/migrate`, which says what differs.
        module: that has its names here.
        key: of its section in `names.txt`.
        better: names that do more here, or do it without what the original costs.
        said: names that are accepted and not done as there; each call says so.
        package: package whose own names are returned for all that is not here.
        not_here: members of a class that has no place for them → what is used instead.
    """

    name: str
    version: str
    page: str
    module: str
    key: str
    better: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    package: str = ""
    not_here: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def absent(self) -> Mapping[str, str]:
        """Names that are not here → what is used instead, as the module itself says it."""
        said = said_by(self.module)
        known = names_of(self.key)
        return {**{name: how for name, how in said.items() if name in known}, **self.not_here}


def said_by(module: str) -> Mapping[str, str]:
    """Return what a module says of names that it does not have; one without such would look for it in the original."""
    said: Mapping[str, str] = vars(importlib.import_module(module)).get("NOT_HERE", {})
    return said


def names_of(key: str) -> tuple[str, ...]:
    """Return the public names of an original, members of a class as `Class.member`."""
    _, _, rest = _NAMES.read_text(encoding="utf-8").partition(f"[{key}]\n")
    return tuple(rest.partition("\n[")[0].split())


_OF_A_VERSION = "what W&B's server knows of an artifact's version: `wandb.Api()`"
_WRITER_SAID = {
    "SummaryWriter.add_mesh": "each mesh is a PLY file in an artifact, which the tab MESH does not show",
    "SummaryWriter.add_custom_scalars": "the values are recorded, the layout is not",
    "SummaryWriter.add_custom_scalars_multilinechart": "the values are recorded, the layout is not",
    "SummaryWriter.add_custom_scalars_marginchart": "the values are recorded, the layout is not",
    "SummaryWriter.add_graph": "the model is kept as the text that it prints as",
    "SummaryWriter.add_video": "16 frames are kept as one picture",
    "SummaryWriter.add_image_with_boxes": "the picture is kept without the boxes",
}
_WRITER_BETTER = {
    "SummaryWriter.add_scalar": "without a step it is where the others are, not at 0; every rank may call it",
    "SummaryWriter.flush": "nothing waits: a kill loses nothing that was recorded 100 ms before",
    "SummaryWriter.add_hparams": "parameters and summary of every backend, too",
    "SummaryWriter.add_embedding": "the files for the projector, and an artifact in every backend that has artifacts",
}

ORIGINALS: tuple[Original, ...] = (
    Original(
        "W&B",
        "0.31.0",
        "wandb.md",
        "otel_ml.compat.wandb",
        "wandb",
        package="wandb",
        better={
            "log": "a step that goes back is kept; every rank may call it",
            "Run.log": "a step that goes back is kept; every rank may call it",
            "finish": "nothing waits for a server",
            "Run.finish": "nothing waits for a server",
            "box3d": "turned as the quaternion says, also where a part of it is negative",
            "plot.pr_curve": "computed without scikit-learn",
            "plot.roc_curve": "computed without scikit-learn",
        },
        said={
            "restore": "nothing is downloaded",
            "Run.restore": "nothing is downloaded",
            "link_model": "the model is recorded, and linked to no registry",
            "Run.link_model": "the model is recorded, and linked to no registry",
            "Run.link_artifact": "the artifact is recorded, and linked to no registry",
            "Run.pin_config_keys": "W&B's page has no pins of it",
        },
        not_here={
            **{f"Artifact.{name}": _OF_A_VERSION for name in sorted(OF_THE_SERVER)},
            **{f"plot.{name}": how for name, how in plot.NOT_HERE.items()},
        },
    ),
    Original(
        "MLflow",
        "3.17.2, fluent interface",
        "mlflow.md",
        "otel_ml.compat.mlflow",
        "mlflow",
        package="mlflow",
        better={
            "log_metric": "nothing waits for a server; without a step it is where the others are, not at 0",
            "log_metrics": "nothing waits for a server; without a step they are where the others are, not at 0",
            "log_param": "may change; nested values",
            "log_params": "may change; nested values",
            "log_artifact": "read in the background",
            "log_artifacts": "read in the background",
        },
        said={
            "autolog": "nothing is logged by itself",
            "delete_tag": "this process forgets it; what is written stays",
            "delete_experiment": "nothing is deleted",
            "delete_experiment_tag": "this process forgets it; what is written stays",
            "delete_run": "nothing is deleted",
            "restore_experiment": "nothing was deleted here",
            "restore_run": "nothing was deleted here",
            "enable_system_metrics_logging": "hardware is `otel_ml.diagnostics`",
            "set_system_metrics_node_id": "hardware is `otel_ml.diagnostics`",
            "set_system_metrics_samples_before_logging": "hardware is `otel_ml.diagnostics`",
            "set_system_metrics_sampling_interval": "hardware is `otel_ml.diagnostics`",
        },
    ),
    Original(
        "torch's SummaryWriter",
        "torch 2.15.0",
        "tensorboard.md",
        "otel_ml.compat.tensorboard",
        "torch",
        better=_WRITER_BETTER,
        said=_WRITER_SAID,
    ),
    Original(
        "tensorboardX",
        "2.6.5",
        "tensorboard.md",
        "otel_ml.compat.tensorboard",
        "tensorboardX",
        better=_WRITER_BETTER,
        said={
            **_WRITER_SAID,
            "SummaryWriter.export_scalars_to_json": "nothing is written; the run's `metrics.jsonl` has them",
        },
    ),
    Original(
        "verl",
        "1dda039 of 2026-08-22",
        "verl.md",
        "otel_ml.compat.verl",
        "verl",
        better={
            "Tracking.log": "a backend that hangs or crashes does not stop training",
            "Tracking.finish": "need not be called: what was logged is delivered",
            "FileLogger": "a job that goes on appends to its file",
            "reduce_metrics": "a name that only contains `max` or `min` is averaged; an empty list is not a value",
        },
        not_here={
            f"ValidationGenerationsLogger.log_generations_to_{backend}": "`log()`, which is for every backend"
            for backend in ("vemlp_wandb", "wandb", "swanlab", "mlflow", "trackio", "clearml", "tensorboard")
        },
    ),
    Original(
        "NeMo RL",
        "7ea279a of 2026-08-22",
        "nemo_rl.md",
        "otel_ml.compat.nemo_rl",
        "nemo_rl",
        better={
            "RayGpuMonitorLogger": "all nodes, in every backend, under OpenTelemetry's names",
            "TimeoutChecker": "counts on the monotonic clock",
            "Logger": "one logger for all backends",
            "MLflowLogger.log_metrics": "nothing waits for a server",
            "Logger.log_batched_dict_as_jsonl": "a full disk is reported, and raises nothing",
        },
    ),
    Original(
        "torchforge",
        "6e77f0b of 2025-11-15",
        "forge.md",
        "otel_ml.compat.forge",
        "forge",
        better={
            "record_metric": "reduced over all ranks in every mode, in every backend",
            "GlobalLoggingActor.flush": "a rank that fails is named, and keeps its state for the next flush",
            "StdAccumulator": "keeps the digits of large values; NaN if any value is",
            "MaxAccumulator": "NaN if any value is",
            "MinAccumulator": "NaN if any value is",
            "MeanAccumulator": "an empty one records nothing, not 0",
            "Tracer": "device times are read by a thread that nobody waits for",
            "trace": "device times are read by a thread that nobody waits for",
        },
    ),
    Original(
        "Megatron-LM and Megatron Bridge",
        "d98e8a6 and 067f987 of 2026-08-22",
        "megatron.md",
        "otel_ml.compat.megatron",
        "megatron",
        better={
            "Timer.start": "no barrier, no wait for the device",
            "Timer.stop": "no barrier, no wait for the device",
            "Timers.log": "no collective; takes nothing from `write()`",
            "Timers.write": "no collective; takes nothing from `log()`",
            "Timer.elapsed": "takes nothing from `log()` and `write()`",
            "DummyTimer.elapsed": "NaN, and reported, where Megatron raises",
            "DummyTimer.active_time": "NaN, and reported, where Megatron raises",
            "setup_logging": "loggers made later, too; the last call counts",
            "barrier_and_log": "waits for nobody",
            "append_to_progress_log": "waits for nobody; a full disk is reported",
        },
    ),
    Original(
        "ROLL",
        "8eb27cc of 2026-08-19",
        "roll.md",
        "otel_ml.compat.roll",
        "roll",
        better={
            "create_tracker": "several, with commas; MLflow and JSONL, too",
            "MetricsManager.add_group_metrics": "what no sample has is absent, not NaN or an error",
            "MetricsManager.add_token_metrics": "what no sample has is absent, not NaN or an error",
            "BaseTracker.log": "a failed write is counted and tried again",
        },
    ),
    Original(
        "itwinai",
        "c175f9a of 2026-02-23",
        "itwinai.md",
        "otel_ml.compat.itwinai",
        "itwinai",
        better={
            "LoggersCollection.log": "one run in all backends",
            "MLFlowLogger.log": "nothing waits for a server",
            "Prov4MLLogger.log": "needs no yprov4ml",
            "ItwinaiLogger.name": "the name; there it is None",
            "ItwinaiLogger.version": "the run's id; there it is None",
        },
    ),
)
