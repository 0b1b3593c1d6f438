"""What a `LoggerConfig` means; everything that is wrong with one is said at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from otel_ml.compat.nemo_rl import (
    Logger,
    MLflowLogger,
    SwanlabLogger,
    TensorboardLogger,
    WandbLogger,
    should_log_nemo_gym_full_result_tables,
)
from otel_ml.compat.nemo_rl.config import settings_from
from otel_ml.exceptions import ConfigError
from otel_ml.testing import Capture


def config(**changes: Any) -> dict[str, Any]:
    """Return the configuration as NeMo RL's examples write it, with changes."""
    return {
        "log_dir": "logs/grpo",
        "num_val_samples_to_print": 0,
        "wandb_enabled": False,
        "tensorboard_enabled": False,
        "mlflow_enabled": False,
        "swanlab_enabled": False,
        "monitor_gpus": False,
        "wandb": {"project": "grpo-dev", "name": "grpo-dev-logger"},
        "swanlab": {"project": "grpo-dev", "name": "grpo-dev-logger"},
        "tensorboard": {},
        "mlflow": {"experiment_name": "grpo-dev", "run_name": "grpo-dev-logger"},
        "gpu_monitoring": {"collection_interval": 10, "flush_interval": 10},
        **changes,
    }


def test_the_example_configuration_is_accepted_and_writes_at_least_the_file_that_ci_reads() -> None:
    settings = settings_from(config(), {})

    assert settings.exporters == ("jsonl",)
    assert settings.log_dir == Path("logs/grpo").absolute()
    assert settings.environment == {"OTEL_ML_DIR": str(settings.log_dir)}


def test_a_configuration_from_before_a_backend_existed_is_accepted(tmp_path: Path) -> None:
    settings = settings_from({"log_dir": tmp_path, "tensorboard_enabled": True}, {})

    assert settings.exporters == ("jsonl", "tensorboard")


@pytest.mark.feature("N2", "yes", "W&B, TensorBoard, MLflow and SwanLab are exporters of the one run")
def test_every_backend_that_is_enabled_is_an_exporter_and_its_section_counts() -> None:
    enabled = {f"{name}_enabled": True for name in ("wandb", "tensorboard", "mlflow", "swanlab")}
    wandb = {"project": "p", "entity": "team", "name": "n", "tags": ["a"], "notes": "why", "mode": "offline"}
    wandb |= {"group": "night", "job_type": "train"}
    mlflow = {"experiment_name": "e", "run_name": "n", "tracking_uri": "sqlite:///x.db"}

    settings = settings_from(config(**enabled, wandb=wandb, mlflow=mlflow, swanlab={"name": "n"}), {})

    assert settings.exporters == ("jsonl", "wandb", "swanlab", "tensorboard", "mlflow")
    assert (settings.experiment, settings.name, settings.tags, settings.notes) == ("e", "n", ("a",), "why")
    assert settings.environment == {
        "WANDB_PROJECT": "p",
        "WANDB_ENTITY": "team",
        "WANDB_RUN_GROUP": "night",
        "WANDB_JOB_TYPE": "train",
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": "sqlite:///x.db",
        "OTEL_ML_DIR": str(settings.log_dir),
    }


def test_tags_and_description_of_swanlab_are_those_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    swanlab = {"name": "n", "tags": ["a", "b"], "description": "why", "public": True}

    alone = settings_from(config(swanlab_enabled=True, swanlab=swanlab), {})
    both = settings_from(
        config(swanlab_enabled=True, swanlab=swanlab, wandb_enabled=True, wandb={"tags": ["c", "a"]}), {}
    )

    assert (alone.tags, alone.notes) == (("a", "b"), "why")
    assert both.tags == ("c", "a", "b")
    assert [record.message.split(" of ")[0] for record in caplog.records] == ["swanlab.public"]
    with pytest.raises(ConfigError, match=r"swanlab\.tags: expected a list of texts, got 'a'"):
        settings_from(config(swanlab={"tags": "a"}), {})


def test_a_backend_that_is_off_has_no_say_but_its_names_are_better_than_none() -> None:
    off = config(mlflow={"experiment_name": "e", "run_name": "n", "run_id": "r", "tracking_uri": "sqlite:///x.db"})

    all_off = settings_from({**off, "wandb": {}, "swanlab": {}}, {"MLFLOW_RUN_ID": "r"})
    wandb_on = settings_from({**off, "wandb_enabled": True, "wandb": {"project": "p"}, "swanlab": {}}, {})

    assert (all_off.experiment, all_off.name, all_off.id) == ("e", "n", None)
    assert (wandb_on.experiment, wandb_on.name, wandb_on.id) == ("p", "n", None)
    assert set(all_off.environment) == {"OTEL_ML_DIR"}


@pytest.mark.feature("N25", "yes", "MLflow's variables stand in for its section; a run id continues that run")
def test_mlflows_variables_count_where_its_section_says_nothing() -> None:
    environ = {
        "MLFLOW_TRACKING_URI": "http://mlflow:5000",
        "MLFLOW_RUN_ID": "01JX",
        "MLFLOW_EXPERIMENT_NAME": "from-env",
        "MLFLOW_RUN_NAME": "named",
    }

    from_environment = settings_from(config(mlflow_enabled=True, mlflow={"run_id": None}), environ)
    from_section = settings_from(config(mlflow_enabled=True, mlflow={"experiment_name": "e", "run_id": "r"}), environ)

    assert (from_environment.experiment, from_environment.id, from_environment.name) == ("from-env", "01JX", "named")
    assert from_environment.environment["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"
    assert (from_section.experiment, from_section.id, from_section.name) == ("e", "r", "named")


def test_a_folder_of_all_runs_that_somebody_chose_stands() -> None:
    settings = settings_from(config(), {"OTEL_ML_DIR": "/runs"})

    assert settings.environment["OTEL_ML_DIR"] == "/runs"
    assert settings.log_dir == Path("logs/grpo").absolute()


def test_everything_that_is_wrong_is_said_at_once() -> None:
    wrong = config(
        log_dir=None,
        wandb_enabled="yes",
        tensorboard_enable=True,
        wandb={"project": 3, "tags": "one"},
        mlflow=["experiment"],
        gpu_monitoring={"collection_interval": 0, "flush_interval": "10"},
        num_val_samples_to_print=-1,
    )

    with pytest.raises(ConfigError) as raised:
        settings_from(wrong, {})

    assert list(raised.value.problems) == [
        "log_dir: expected a folder, got None.",
        "wandb_enabled: expected true or false, got 'yes'.",
        "tensorboard_enable: is not a key of the Logger's configuration. Did you mean 'tensorboard_enabled'?",
        "wandb.project: expected text, got 3.",
        "wandb.tags: expected a list of texts, got 'one'.",
        "mlflow: expected a mapping, got ['experiment'].",
        "gpu_monitoring.collection_interval: expected seconds above 0, got 0.",
        "gpu_monitoring.flush_interval: expected seconds above 0, got '10'.",
        "num_val_samples_to_print: expected a whole number from 0 on, got -1.",
    ]


@pytest.mark.parametrize("cfg", [None, "logs", 3])
def test_what_is_no_configuration_is_said(cfg: Any) -> None:
    with pytest.raises(ConfigError, match="expected a mapping"):
        settings_from(cfg, {})


@pytest.mark.parametrize("tags", ["one", 5, [1], {"a": 1}])
def test_tags_that_are_no_texts_are_said(tags: Any) -> None:
    with pytest.raises(ConfigError, match=r"wandb\.tags: expected a list of texts"):
        settings_from(config(wandb={"tags": tags}), {})


def test_gpu_monitoring_that_is_no_mapping_is_said() -> None:
    with pytest.raises(ConfigError, match="gpu_monitoring: expected a mapping, got 10"):
        settings_from(config(gpu_monitoring=10), {})


def test_what_has_no_meaning_here_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    odd = config(wandb_enabled=True, wandb={"project": "p", "name": "a", "save_code": True}, mlflow_enabled=True)

    settings = [settings_from(odd, {}) for _ in range(2)]

    assert settings[0].name == "a"
    assert [record.getMessage().partition(" (otel-ml")[0] for record in caplog.records] == [
        "wandb.save_code of the Logger's configuration is not used by otel_ml.",
        "A run has one name in every backend: 'a' is used, and not grpo-dev-logger.",
    ]


@pytest.mark.feature("N27", "yes", "finish leaves nothing behind, and may be called again")
def test_a_logger_that_is_finished_leaves_the_environment_as_it_was(tmp_path: Path) -> None:
    logger = Logger(config(log_dir=tmp_path / "logs", wandb_enabled=True))
    assert os.environ["WANDB_PROJECT"] == "grpo-dev"

    logger.finish()
    logger.finish()

    assert "WANDB_PROJECT" not in os.environ
    logger.log_metrics({"loss": 1.0}, 1)


def test_a_log_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"log_dir: .*Choose a folder"):
        Logger({"log_dir": tmp_path / "file" / "logs"})


@pytest.mark.parametrize(
    ("kind", "exporter"),
    [(WandbLogger, "wandb"), (SwanlabLogger, "swanlab"), (TensorboardLogger, "tensorboard"), (MLflowLogger, "mlflow")],
)
def test_a_logger_of_one_backend_writes_to_that_one(
    kind: type[Any], exporter: str, tmp_path: Path, otel_ml_capture: Capture
) -> None:
    logger = kind({}, log_dir=str(tmp_path))
    logger.log_metrics({"loss": 1.0}, 1, prefix="train")

    assert otel_ml_capture.values("train/loss") == [1.0]
    # The run of the test has begun already, which names what this one would have been given.
    assert any(f"exporters=('jsonl', '{exporter}')" in notice for notice in otel_ml_capture.notices)


def test_monitor_gpus_samples_this_host(
    tmp_path: Path, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    logger = Logger(
        config(log_dir=tmp_path, monitor_gpus=True, gpu_monitoring={"collection_interval": 60, "flush_interval": 60})
    )

    assert logger.gpu_monitor is not None
    logger.gpu_monitor.stop()
    assert otel_ml_capture.values("system.memory.usage", axis="time")


@pytest.mark.parametrize(
    ("is_on", "section", "expected"),
    [
        (True, {"log_nemo_gym_full_result_tables": True}, True),
        (True, {"log_nemo_gym_full_result_tables": False}, False),
        (True, {"project": "grpo-dev"}, False),
        (False, {"log_nemo_gym_full_result_tables": True}, False),
    ],
)
def test_full_results_of_nemo_gym_become_tables_where_wandb_is_on_and_its_section_says_so(
    is_on: bool, section: Any, expected: bool
) -> None:
    assert should_log_nemo_gym_full_result_tables(wandb_enabled=is_on, wandb_config=section) is expected
