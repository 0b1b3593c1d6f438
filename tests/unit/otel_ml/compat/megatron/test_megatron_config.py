"""`LoggerConfig` and console logging: every documented field works, or is said to have no meaning."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from otel_ml.compat.megatron import (
    LoggerConfig,
    add_filter_to_all_loggers,
    barrier_and_log,
    module_filter,
    safe_serialize,
    setup_logging,
    start,
    warning_filter,
)
from otel_ml.compat.megatron.config import NO_MEANING
from otel_ml.exceptions import ConfigError
from otel_ml.testing import Capture, capture
from otel_ml.warn_once import forget_warnings

DOCUMENTED = " ".join(
    (
        "log_interval log_params_norm log_throughput log_throughput_to_tensorboard throughput_window_size log_progress",
        "timing_log_level timing_log_option tensorboard_dir tensorboard_log_interval tensorboard_queue_size",
        "log_timers_to_tensorboard log_loss_scale_to_tensorboard log_validation_ppl_to_tensorboard",
        "log_memory_to_tensorboard memory_keys log_memory_interval log_device_memory_used",
        "log_l2_norm_grad_to_tensorboard log_num_zeros_in_grad log_max_attention_logit log_runtime_to_tensorboard",
        "runtime_time_unit barrier_with_L1_time log_world_size_to_tensorboard wandb_project wandb_exp_name",
        "wandb_save_dir wandb_entity logging_level filter_warnings modules_to_filter set_level_for_all_loggers",
        "log_energy save_config_filepath moe_routing_trace_path moe_routing_trace_max_training_iters",
        "moe_routing_trace_capture_logits moe_routing_trace_capture_hidden_states moe_routing_trace_dump_weights",
        "skip_train_metrics_log mlflow_experiment mlflow_run_name",
        "mlflow_tracking_uri mlflow_tags mlflow_description mlflow_log_artifacts comet_project comet_experiment_name",
        "comet_workspace comet_api_key comet_tags",
    )
).split()


@pytest.fixture(autouse=True)
def loggers_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget_warnings()
    for name in ("MEGATRON_BRIDGE_LOGGING_LEVEL", "MEGATRON_LOGGING_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    root = logging.getLogger()
    filters = {handler: list(handler.filters) for handler in root.handlers}
    levels = {logger: logger.level for logger in (root, *every_logger())}
    of_loggers = {logger: list(logger.filters) for logger in levels}
    yield
    for logger in (root, *every_logger()):
        logger.setLevel(levels.get(logger, logging.NOTSET))
        logger.filters = of_loggers.get(logger, [])
    for handler in root.handlers:
        handler.filters = filters.get(handler, [])


def every_logger() -> list[logging.Logger]:
    return [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def test_every_documented_field_is_there_with_its_default() -> None:
    assert {one.name for one in fields(LoggerConfig)} == set(DOCUMENTED)
    config = LoggerConfig()
    config.finalize()
    assert (config.log_interval, config.timing_log_option, config.runtime_time_unit) == (100, "minmax", "hours")
    assert config.given() == []


def test_every_field_without_a_meaning_says_why(caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = dict.fromkeys(NO_MEANING, "x")

    LoggerConfig(**given).finalize()

    for name, why in NO_MEANING.items():
        assert f"LoggerConfig.{name} has no meaning here: {why}." in caplog.text


WITH_MLFLOW: dict[str, Any] = {"mlflow_experiment": "e", "mlflow_run_name": "r"}


def test_as_there_mlflow_has_to_be_installed_where_the_run_is_to_go_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)

    with pytest.raises(ModuleNotFoundError, match=r"mlflow_experiment='e'.*pip install 'otel-ml\[mlflow\]'"):
        LoggerConfig(**WITH_MLFLOW).finalize()


@pytest.mark.parametrize(
    "elsewhere", [{"OTEL_ML_EXPORTERS": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}], ids=str
)
def test_where_mlflow_is_written_by_nobody_here_it_need_not_be_installed(
    elsewhere: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    for name, value in elsewhere.items():
        monkeypatch.setenv(name, value)

    LoggerConfig(**WITH_MLFLOW).finalize()


def test_all_wrong_fields_are_said_at_once() -> None:
    config = LoggerConfig(
        log_interval=0, timing_log_option="mean", runtime_time_unit="weeks", wandb_project="p", mlflow_experiment="e"
    )

    with pytest.raises(ConfigError) as error:
        config.finalize()

    assert len(error.value.problems) == 5


def test_backends_follow_from_the_fields() -> None:
    assert LoggerConfig().exporters is None
    config = LoggerConfig(tensorboard_dir="tb", wandb_project="p", mlflow_experiment="e")
    assert config.exporters == ["jsonl", "tensorboard", "wandb", "mlflow"]


class Unserialisable:
    def __str__(self) -> str:
        return "<torch.dtype>"


@pytest.mark.feature("M22", "yes", "nested, with values of any kind")
def test_the_whole_configuration_becomes_parameters_and_a_file(captured: Capture, tmp_path: Path) -> None:
    config = LoggerConfig(save_config_filepath=str(tmp_path / "out" / "config.yaml"), filter_warnings=False)

    start(config, {"model": {"dtype": Unserialisable(), "layers": [2, 4]}})

    [params] = [event.body for event in captured.events if event.kind == "ml.params"]
    assert params == {"model": {"dtype": "<torch.dtype>", "layers": [2, 4]}}
    written = yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())
    assert written["params"] == params
    assert written["logger"]["log_interval"] == 100


class Precision(str, Enum):
    BF16 = "bf16"


@dataclass
class Model:
    layers: int


def test_the_file_has_numbers_enums_and_classes_as_the_run_s_parameters_do(captured: Capture, tmp_path: Path) -> None:
    config = LoggerConfig(save_config_filepath=str(tmp_path / "config.yaml"))
    given: dict[str, Any] = {
        "lr": np.float64(0.5),
        "precision": Precision.BF16,
        "model_class": Model,
        "model": Model(2),
    }
    given["itself"] = given

    start(config, given)

    [params] = [event.body for event in captured.events if event.kind == "ml.params"]
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())["params"]
    assert {name: written[name] for name in ("lr", "precision", "model")} == {
        "lr": 0.5,
        "precision": "bf16",
        "model": {"layers": 2},
    }
    assert written["model_class"] == params["model_class"]
    assert written.keys() == params.keys()


def messages(capsys_lines: list[str], *records: tuple[str, int, str]) -> list[str]:
    for name, level, text in records:
        logging.getLogger(name).log(level, text)
    return capsys_lines


@pytest.fixture
def shown() -> Iterator[list[str]]:
    with handled() as lines:
        yield lines


@contextmanager
def handled() -> Iterator[list[str]]:
    """Return what a handler of the root logger gets from here on."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield lines
    logging.getLogger().removeHandler(handler)


@pytest.mark.feature("M25", "better", "loggers made later are filtered too")
def test_warnings_and_modules_are_filtered_also_of_loggers_made_later(shown: list[str]) -> None:
    setup_logging(modules_to_filter=["noisy"])

    found = messages(
        shown,
        ("made.later", logging.INFO, "info"),
        ("made.later", logging.WARNING, "warning"),
        ("made.later", logging.ERROR, "error"),
        ("noisy.inner", logging.ERROR, "noise"),
        ("noisyneighbour", logging.INFO, "a name that begins so, as for Megatron and `module_filter()`"),
        ("not.noisy", logging.INFO, "other"),
    )

    assert found == ["info", "error", "other"]


def test_a_handler_that_is_added_afterwards_gets_nothing_either_of_loggers_that_there_were() -> None:
    before = logging.getLogger("there.before")
    setup_logging(modules_to_filter=["noisy"])

    with handled() as lines:
        before.warning("as Megatron's filters, which are at the loggers")
        logging.getLogger().warning("of the root logger")
        before.error("error")

    assert lines == ["error"]


def test_a_filter_that_the_program_has_added_itself_stays() -> None:
    quiet = logging.getLogger("quiet.by.itself")
    quiet.addFilter(warning_filter)
    setup_logging()
    setup_logging(filter_warning=False)

    assert warning_filter in quiet.filters
    quiet.removeFilter(warning_filter)


def test_the_last_call_counts(shown: list[str]) -> None:
    setup_logging(modules_to_filter=["noisy"])
    setup_logging(filter_warning=False)

    assert messages(shown, ("noisy", logging.WARNING, "kept")) == ["kept"]


@pytest.mark.parametrize(
    ("given", "bridge", "core", "level"),
    [
        (None, None, None, logging.INFO),
        (None, None, "ERROR", logging.ERROR),
        (None, "10", "ERROR", logging.ERROR),
        (logging.WARNING, "10", None, logging.WARNING),
        (None, "loud", None, logging.INFO),
    ],
)
def test_the_argument_comes_before_the_variables(
    monkeypatch: pytest.MonkeyPatch, given: int | None, bridge: str | None, core: str | None, level: int
) -> None:
    for name, value in (("MEGATRON_BRIDGE_LOGGING_LEVEL", bridge), ("MEGATRON_LOGGING_LEVEL", core)):
        if value is not None:
            monkeypatch.setenv(name, value)

    setup_logging(given)

    assert logging.getLogger().level == level


def test_the_level_of_all_loggers_can_be_set() -> None:
    logger = logging.getLogger("otel_ml.tests.quiet")
    others = {one: one.level for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)}

    setup_logging(logging.ERROR, set_level_for_all_loggers=True)

    assert logger.level == logging.ERROR
    for other, level in others.items():
        other.setLevel(level)


def test_loggers_of_bridge_have_the_level_too() -> None:
    theirs, other = logging.getLogger("megatron.bridge.training"), logging.getLogger("megatron.core.training")
    theirs.setLevel(logging.WARNING)
    other.setLevel(logging.WARNING)

    setup_logging(logging.DEBUG)

    assert (theirs.level, other.level) == (logging.DEBUG, logging.WARNING)


def test_the_filters_of_megatron_let_through_what_its_own_do() -> None:
    def record(name: str = "a.b", level: int = logging.INFO) -> logging.LogRecord:
        return logging.LogRecord(name, level, __file__, 1, "text", None, None)

    assert [warning_filter(record(level=level)) for level in (logging.INFO, logging.WARNING, logging.ERROR)] == [
        True,
        False,
        True,
    ]
    assert not module_filter(record("megatron.core.x"), ["other", "megatron.core"])
    assert not module_filter(record("megatronics"), ["megatron"])
    assert module_filter(record("apex"), ["megatron"])
    assert module_filter(record("apex"), [])


def test_a_filter_is_added_to_each_logger_that_there_is() -> None:
    quiet = logging.Filter("nobody")
    named = logging.getLogger("a.logger.of.the.program")
    try:
        add_filter_to_all_loggers(quiet)

        assert quiet in logging.getLogger().filters
        assert quiet in named.filters
    finally:
        for logger in (logging.getLogger(), *every_logger()):
            logger.removeFilter(quiet)


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_rank_0_prints_where_training_is_and_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str, lines: int
) -> None:
    monkeypatch.setenv("OTEL_ML_RANK", rank)

    barrier_and_log("after model setup")

    assert capsys.readouterr().out.count("[after model setup] datetime: ") == lines


def test_what_has_no_text_is_shown_by_its_type() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("none")

    assert [safe_serialize(value) for value in ("text", 42, None, [1, 2], Broken())] == [
        "text",
        "42",
        "None",
        "[1, 2]",
        "<Broken>",
    ]


@pytest.mark.parametrize(
    ("project", "name"),
    [
        ("wandb_project", "wandb_exp_name"),
        ("mlflow_experiment", "mlflow_run_name"),
        ("comet_project", "comet_experiment_name"),
    ],
)
@pytest.mark.parametrize("missing", [None, ""])
def test_a_project_without_the_name_of_its_run_is_refused_as_there(
    project: str, name: str, missing: str | None
) -> None:
    config = LoggerConfig(**{project: "p", name: missing})  # type: ignore[arg-type]  # names of fields

    with pytest.raises(ValueError, match=f"Set logger.{name}"):
        config.finalize()
