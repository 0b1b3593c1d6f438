"""The originals' own test suites, run against our layer outside of the repository: figures, and what does not pass.

Only import paths and the targets of patches were changed, and where an assertion was about internals, it was made about
what a user can see. Nothing of the suites is in this repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SUITES", "Suite"]


@dataclass(frozen=True)
class Suite:
    """A suite as it was run.

    Attributes:
        original: the project.
        commit: of its repository.
        command: what was run in that commit's tree.
        passed: tests.
        run: tests; those that need a GPU or a package that no index has are not among them.
        rest: what does not pass, and why.
    """

    original: str
    commit: str
    command: str
    passed: int
    run: int
    rest: str = ""


_NO_BACKENDS = (
    "`BackendRole`, `ConsoleBackend`, `WandbBackend`, `get_logger_backend_class` (5): backends are exporters. Fetchers "
    "that are registered with each mesh of processes (2): nobody is. One collector for each rank of a process (1): a "
    "process is one rank. `_validate_backend_config` (1): `init_backends()` says it"
)

SUITES: Sequence[Suite] = (
    Suite(
        "torchforge",
        "6e77f0b",
        "pytest tests/unit_tests/observability",
        45,
        54,
        _NO_BACKENDS,
    ),
    Suite(
        "Megatron Bridge",
        "067f987",
        "pytest tests/unit_tests/training/test_callbacks.py tests/unit_tests/training/utils/test_log_utils.py",
        63,
        65,
        "filters are at the handlers, not at each logger (2): loggers made later are filtered, too",
    ),
    Suite(
        "Megatron Bridge",
        "067f987",
        "pytest tests/unit_tests/training/test_config.py -k TestLoggerConfigFinalize",
        13,
        15,
        "`finalize()` does not import mlflow or comet_ml (2): the service's machine needs them",
    ),
    Suite(
        "Megatron-LM",
        "d98e8a6",
        "pytest tests/unit_tests/utils/test_log_utils.py",
        26,
        30,
        "filters are at the handlers (2); nobody waits at a barrier (2)",
    ),
    Suite(
        "Megatron-LM",
        "d98e8a6",
        "megatron/core/timers.py beside ours, on one clock, in 19 scenarios",
        17,
        19,
        "`elapsed()` of a timer above the level is NaN and reported, a second `start()` is reported: both raise there",
    ),
    Suite(
        "NeMo RL",
        "7ea279a",
        "pytest tests/unit/utils/test_timer.py",
        51,
        53,
        "`_start_times` (2) is not public",
    ),
    Suite(
        "NeMo RL",
        "7ea279a",
        "pytest tests/unit/utils/test_logger.py",
        72,
        83,
        "what the mocked writers get is asked of what is recorded. The GPU monitor's own parsing, buffer and thread "
        "(7), and a script that reads event files (1); without Ray the monitor samples this host (1); `__del__` (1) is "
        "not public; `artifact_location` (1) is reported",
    ),
    Suite(
        "verl",
        "1dda039",
        "pytest tests/utils/test_tracking_on_cpu.py tests/utils/test_rl_insight_logger_on_cpu.py",
        8,
        9,
        "the full history in each table for W&B before 0.20 (1): a table belongs to its step",
    ),
    Suite(
        "ROLL",
        "8eb27cc",
        "roll/utils/metrics/metrics_manager.py and functionals.py beside ours, on the same 24 inputs",
        20,
        24,
        "a key that ends with `/max` is the largest, not the mean (2); an entropy that nobody measured is absent, "
        "and log-probabilities are there (1); lists of several lengths are reduced, where ROLL raises (1)",
    ),
    Suite(
        "W&B",
        "b6e2950",
        "pytest tests/unit_tests/test_{wandb_config,wandb_define_metric,wandb_run,wandb_log,wandb_summary,wandb_save,"
        "plot,mode_disabled,tables,data_types,data_types_box3d}.py",
        212,
        227,
        "the address of a page that W&B has not made yet (1); dates in a table are texts (1); of a list of more than "
        "108 pictures all are kept (1); the configuration may be filled before there is a run (1); a figure of "
        "matplotlib is kept as a picture, not as one of plotly (2); a column is added to an incremental table (1); "
        "a text in SMILES is not parsed (1); frames of a film are pictures side by side (3); W&B's style sheet is not "
        "put into a page (1); a cell of a table has any type (1); a table that has changed is recorded again, whatever "
        "its `log_mode` (1); a sound that is an address is not kept (1): said, where something is lost. Schemas of "
        "types, keys that join tables, W&B's own files and what it prints are not counted",
    ),
    Suite(
        "MLflow",
        "01cc6bb",
        "pytest tests/tracking/fluent/test_fluent.py",
        43,
        45,
        "an experiment's id is its name (1); a parameter may change (1). Databricks, Spark and pages of a search are "
        "not counted",
    ),
    Suite(
        "torch's SummaryWriter",
        "017943b",
        "pytest test/test_tensorboard.py",
        12,
        14,
        "a model that its input does not fit, and one that returns a dictionary (2): nothing is traced. What is asked "
        "of TensorBoard's messages, and of torchvision's models, is not counted",
    ),
    Suite(
        "tensorboardX",
        "48a5f8a",
        "pytest tests/test_{writer,summary_writer,pytorch_np,figure,hparams,pr_curve,embedding,pytorch_graph,"
        "onnx_graph}.py",
        23,
        26,
        "`export_scalars_to_json()` writes nothing (1), pictures beside an embedding are not read (1), and a "
        "model is not traced (1): all are reported. S3, and what is asked of TensorBoard's messages and files, are not "
        "counted",
    ),
    Suite(
        "Lightning",
        "7f0c343",
        "pytest tests/tests_pytorch/loggers/test_{all,logger,csv,tensorboard,wandb}.py",
        38,
        40,
        "the experiment is `default`, not `lightning_logs` (1); `experiment` is the run on every rank (1). "
        "What is asked of a logger's own files, of numbered versions and of Lightning's other loggers is not counted",
    ),
    Suite(
        "transformers",
        "020a37d",
        "pytest tests/trainer/test_trainer_callback.py",
        28,
        28,
        "`OtelMLCallback`, or a subclass, in the place of each callback that a test defines, and in each Trainer; for "
        "SwanLab's id and resume, `OTEL_ML_EXPERIMENT_ID`. What is asked of the Trainer's own state, of early stopping "
        "and of the requests of its Kubeflow callback is not counted",
    ),
    Suite(
        "transformers",
        "cdbb95d",
        "pytest tests/trainer/test_trainer_hyperparameter.py -k Optuna",
        3,
        3,
        "each trial is a run, too. Ray's are skipped there, W&B's sweeps need its server",
    ),
    Suite(
        "transformers",
        "0941546",
        "pytest tests/trainer/test_trainer_evaluation.py",
        5,
        5,
        "what `evaluate()` and `predict()` return is in the run, too. What needs a GPU, FSDP or a model of the Hub is "
        "not counted",
    ),
    Suite(
        "transformers",
        "34de825",
        "pytest tests/trainer/test_training_args.py -k 'report_to or kubeflow'",
        2,
        2,
        "with `OtelMLCallback` beside them",
    ),
    Suite(
        "Accelerate",
        "16cb6eb",
        "pytest tests/test_tracking.py",
        24,
        24,
        "`OtelMLTracker` in the place of each tracker. What is asked of a folder for logs and of a tracker that a test "
        "defines is not counted",
    ),
    Suite(
        "itwinai",
        "c175f9a",
        "pytest tests/loggers/test_loggers.py",
        11,
        11,
    ),
    Suite(
        "itwinai",
        "c175f9a",
        "pytest tests/loggers/test_lightning_logger.py",
        13,
        22,
        "`_checkpoint_callback` and `_scan_checkpoints` (7) are not public; `name` and `version` are those of the run, "
        "and None there (2)",
    ),
)
