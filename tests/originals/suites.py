"""The originals' own test suites: what is run against our layer, and what does not pass, and why.

`run.py` runs them outside of the repository, and keeps what came out in `figures.json`. Only import paths and the
targets of patches are changed; where an assertion is about internals, it is made about what a user can see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

__all__ = ["SUITES", "Suite"]


@dataclass(frozen=True)
class Suite:
    """A suite of an original.

    Attributes:
        name: of the suite, as `run.py` takes it.
        original: the project.
        source: its repository.
        checkout: folder with that, in the folder that `run.py` is given.
        tests: files.
        more: what else of the repository the tests need.
        names: text of the tests → ours.
        within: the class of the tests, where it is one of several of a file.
        apart: pattern of tests that are not counted → why.
        reasons: pattern of tests that do not pass → why.
        remark: what else is to be said of the suite.
    """

    name: str
    original: str
    source: str
    checkout: str
    tests: Sequence[str]
    more: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    within: str = ""
    apart: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """What is copied of the repository."""
        return (*self.tests, *self.more)

    def is_apart(self, test: str) -> bool:
        """Whether a test is not counted."""
        return any(fnmatchcase(test, pattern) for pattern in self.apart)

    def reason(self, test: str) -> str:
        """Return why a test does not pass; nothing where nobody has said so."""
        return next((why for pattern, why in self.reasons.items() if fnmatchcase(test, pattern)), "")


_NO_BACKENDS = "backends are exporters"
_FIGURE = "a figure of matplotlib is kept as a picture"
_OF_WANDB = ("config", "define_metric", "run", "log", "summary", "save")

_OF_TENSORBOARDX = (
    *("writer", "summary_writer", "pytorch_np", "figure", "hparams", "pr_curve"),
    *("embedding", "pytorch_graph", "onnx_graph"),
)

SUITES: Sequence[Suite] = (
    Suite(
        name="torchforge",
        original="torchforge",
        source="github.com/meta-pytorch/torchforge",
        checkout="torchforge",
        tests=["tests/unit_tests/observability"],
        reasons={
            "*backend_role_usage": _NO_BACKENDS,
            "*new_enums_and_constants": _NO_BACKENDS,
            "*backend_factory": _NO_BACKENDS,
            "*console_backend": _NO_BACKENDS,
            "*wandb_backend_creation": _NO_BACKENDS,
            "*fetcher_registration*": "no fetcher is registered with a mesh of processes",
            "*singleton_per_rank": "a process is one rank",
            "*invalid_backend_configs": "a private function; `init_backends()` says what it does",
        },
    ),
    Suite(
        name="bridge-callbacks",
        original="Megatron Bridge",
        source="github.com/NVIDIA-NeMo/Megatron-Bridge",
        checkout="Megatron-Bridge",
        tests=["tests/unit_tests/training/test_callbacks.py", "tests/unit_tests/training/utils/test_log_utils.py"],
        names={
            "megatron.bridge.training.callbacks": "otel_ml.compat.megatron",
            "megatron.bridge.training.utils.log_utils": "otel_ml.compat.megatron",
            "megatron.training.utils.log_utils.": "otel_ml.compat.megatron.log_levels.",
        },
    ),
    Suite(
        name="bridge-config",
        original="Megatron Bridge",
        source="github.com/NVIDIA-NeMo/Megatron-Bridge",
        checkout="Megatron-Bridge",
        tests=["tests/unit_tests/training/test_config.py"],
        within="TestLoggerConfigFinalize",
        reasons={"*comet_not_installed_raises*": "there is no exporter for Comet, which is reported"},
    ),
    Suite(
        name="megatron-log",
        original="Megatron-LM",
        source="github.com/NVIDIA/Megatron-LM",
        checkout="Megatron-LM",
        tests=["tests/unit_tests/utils/test_log_utils.py"],
        names={
            "megatron.training.utils.log_utils.torch.": "torch.",
            "megatron.training.utils.log_utils.safe_get_rank": "otel_ml.compat.megatron.distributed.rank",
            "megatron.training.utils.log_utils.safe_get_world_size": "otel_ml.compat.megatron.distributed.world_size",
            "megatron.training.utils.log_utils.print_rank_0": "builtins.print",
            "megatron.training.utils.log_utils.": "otel_ml.compat.megatron.log_levels.",
            "megatron.training.utils.log_utils": "otel_ml.compat.megatron",
        },
        reasons={"*barrier_called*": "nobody waits at a barrier"},
    ),
    Suite(
        name="nemo-timer",
        original="NeMo RL",
        source="github.com/NVIDIA-NeMo/RL",
        checkout="RL",
        tests=["tests/unit/utils/test_timer.py"],
        names={"nemo_rl.utils.timer": "otel_ml.compat.nemo_rl"},
        reasons={"TestTimer::*": "asks the private `_start_times`"},
    ),
    Suite(
        name="nemo-logger",
        original="NeMo RL",
        source="github.com/NVIDIA-NeMo/RL",
        checkout="RL",
        tests=["tests/unit/utils/test_logger.py"],
        names={"nemo_rl.utils.logger": "otel_ml.compat.nemo_rl"},
        reasons={
            "*test_merge_generation_logger_workers": "a private function",
            "*test_summarize_list": "a private function",
            "*test_cleanup": "`__del__` is not public",
        },
        remark="what the mocked writers get is asked of what is recorded",
    ),
    Suite(
        name="verl",
        original="verl",
        source="github.com/verl-project/verl",
        checkout="verl",
        tests=["tests/utils/test_tracking_on_cpu.py", "tests/utils/test_rl_insight_logger_on_cpu.py"],
        names={"verl.utils.tracking": "otel_ml.compat.verl"},
        reasons={"*falls_back_to_full_history": "for W&B before 0.20 each table has all rows; here it is of its step"},
    ),
    Suite(
        name="wandb",
        original="W&B",
        source="github.com/wandb/wandb",
        checkout="wandb",
        tests=[
            *(f"tests/unit_tests/test_wandb_{part}.py" for part in _OF_WANDB),
            *(f"tests/unit_tests/test_{part}.py" for part in ("plot", "mode_disabled", "tables", "data_types")),
            "tests/unit_tests/test_data_types_box3d.py",
        ],
        reasons={
            "*test_audio_refs": "a sound that is an address is not kept",
            "*test_html_styles": "W&B's style sheet is not put into a page",
            "*test_make_plot_media_from_matplotlib_without_image": _FIGURE,
            "*test_plotly_from_matplotlib_with_image": _FIGURE,
            "*test_max_images": "of a list of more than 108 pictures all are kept",
            "*test_molecule_from_invalid_smiles": "a text in SMILES is not parsed",
            "*test_ndarrays_in_tables": "a cell of a table has any type",
            "*test_video_numpy_*": "frames of a film are pictures side by side",
            "*test_datetime_conversion": "dates in a table are texts",
            "*immutable_logs_table_artifact_once": "a table that has changed is recorded again",
            "*incremental_operations": "a column is added to an incremental table",
            "*test_nice_log_error_config": "the configuration may be filled before there is a run",
            "*test_run_urls": "the address of a page that W&B has not made yet",
        },
        remark="schemas of types, keys that join tables, W&B's own files and what it prints are not counted",
    ),
    Suite(
        name="mlflow",
        original="MLflow",
        source="github.com/mlflow/mlflow",
        checkout="mlflow",
        tests=["tests/tracking/fluent/test_fluent.py"],
        reasons={"*test_param_async_throws": "a parameter may change"},
        remark="Databricks, Spark and pages of a search are not counted",
    ),
    Suite(
        name="torch",
        original="torch's SummaryWriter",
        source="github.com/pytorch/pytorch",
        checkout="pytorch",
        tests=["test/test_tensorboard.py"],
        reasons={"*test_wrong_input": "a model is not traced, which is reported"},
        remark="what is asked of TensorBoard's messages and of torch's own conversions is not counted",
    ),
    Suite(
        name="tensorboardX",
        original="tensorboardX",
        source="github.com/lanpa/tensorboardX",
        checkout="tensorboardX",
        tests=[f"tests/test_{part}.py" for part in _OF_TENSORBOARDX],
        apart={
            "EmbeddingTest::test_embedding_s3_mock": "S3",
            "WriterTest::test_flush*": "asks the writer of TensorBoard's files",
            "WriterTest::test_writer_with_default_metadata": "asks TensorBoard's messages",
        },
        reasons={
            "EmbeddingTest::test_embedding_fail": "pictures that are not square are taken, as torch takes them",
            "PytorchGraphTest::test_wrong_input_size": "a model is not traced, which is reported",
            "WriterTest::test_writer": "`export_scalars_to_json()` writes nothing, which is reported",
        },
        remark="S3, and what is asked of TensorBoard's messages and files, are not counted",
    ),
    Suite(
        name="lightning",
        original="Lightning",
        source="github.com/Lightning-AI/pytorch-lightning",
        checkout="pytorch-lightning",
        tests=[
            f"tests/tests_pytorch/loggers/test_{part}.py" for part in ("all", "logger", "csv", "tensorboard", "wandb")
        ],
        reasons={"*test_logger_default_name": "the experiment is `default`, not `lightning_logs`"},
        remark="`OtelMLLogger` in the place of each logger; its own files and numbered versions are not counted",
    ),
    Suite(
        name="transformers",
        original="transformers",
        source="github.com/huggingface/transformers",
        checkout="transformers",
        tests=["tests/trainer"],
        remark="`OtelMLCallback`, or a subclass, in the place of each callback of a test, and in each Trainer; "
        "translated at 020a37d, cdbb95d, 0941546 and 34de825",
    ),
    Suite(
        name="accelerate",
        original="Accelerate",
        source="github.com/huggingface/accelerate",
        checkout="accelerate",
        tests=["tests/test_tracking.py"],
        remark="`OtelMLTracker` in the place of each tracker",
    ),
    Suite(
        name="itwinai",
        original="itwinai",
        source="github.com/interTwin-eu/itwinai",
        checkout="itwinai",
        tests=["tests/loggers/test_loggers.py"],
    ),
    Suite(
        name="itwinai-lightning",
        original="itwinai",
        source="github.com/interTwin-eu/itwinai",
        checkout="itwinai",
        tests=["tests/loggers/test_lightning_logger.py"],
        more=["tests/loggers/conftest.py"],
        names={"itwinai.torch.loggers": "otel_ml.compat.itwinai", "itwinai.loggers": "otel_ml.compat.itwinai"},
        reasons={
            "*test_experiment_and_finalize*": "`name` and `version` are those of the run, and None there",
            "*test_mock_after_save_checkpoint": "asks the private `_checkpoint_callback`",
            "*test_save_after_checkpoint*": "replaces the private `_scan_checkpoints`",
        },
    ),
)
