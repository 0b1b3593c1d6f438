"""A script written for verl's tracking records what it logs, and has none of the defects that were reported there."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml.compat import wandb
from otel_ml.compat.verl import (
    DapoFilteredRewardTableLogger,
    FileLogger,
    RLInsightLogger,
    Tracking,
    ValidationGenerationsLogger,
)
from otel_ml.testing import Capture, capture
from tests.e2e.jobs import answer_of, the_run_in


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's own file is written where the program runs."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def test_a_step_of_metrics_and_the_configuration_are_kept(captured: Capture) -> None:
    tracking = Tracking("grpo", "dev", default_backend=["console", "wandb"], config={"actor": {"lr": 1e-6}})
    tracking.log(data={"actor/pg_loss": np.float32(0.5), "critic/rewards/mean": 0.25}, step=3)
    tracking.log({"actor/pg_loss": 0.75}, 4)
    tracking.finish()

    assert captured.values("actor/pg_loss") == [0.5, 0.75]
    assert captured.values("critic/rewards/mean") == [0.25]
    assert [event.body for event in captured.events if event.kind == "ml.params"] == [{"actor": {"lr": 1e-6}}]


def test_the_console_has_the_line_that_verl_prints(captured: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    Tracking("grpo", "dev", default_backend="console").log({"loss": 0.5, "note": "x", "acc": np.float32(1)}, step=4)

    assert capsys.readouterr().out == "step:4 - loss:0.5 - acc:1.0\n"


def test_generations_of_a_validation_are_a_table_of_their_step(captured: Capture) -> None:
    logger = ValidationGenerationsLogger("grpo", "dev")
    logger.log(["wandb"], [("2+2", "4", 1.0), ("3+3", "7", 0.0)], 10)
    logger.log(["wandb"], [("2+2", "4", 1.0)], 20)

    first, second = [event for event in captured.events if event.kind == "ml.table"]
    assert first.body == {"columns": ["input", "output", "score"], "rows": [["2+2", "4", 1.0], ["3+3", "7", 0.0]]}
    assert (first.name, first.step, second.step) == ("val/generations", 10, 20)


def test_generations_of_a_process_without_tracking_are_in_the_run_of_their_project(tmp_path: Path) -> None:
    rollouter = ValidationGenerationsLogger(project_name="grpo", experiment_name="dev")
    rollouter.log(["console", "file"], [("2+2", "4", 1.0)], 10)
    otel_ml.shutdown()

    run = the_run_in(tmp_path / "otel-ml-runs")
    assert run.parent.name == "grpo"
    assert not (run / "tensorboard").exists()  # which nobody asked for
    assert (rollouter.project_name, rollouter.experiment_name) == ("grpo", "dev")


def test_texts_none_and_what_is_no_number_do_not_stop_training(captured: Capture) -> None:
    tracking = Tracking("grpo", "dev", default_backend="clearml")
    tracking.log({"note": "fine", "nothing": None, "bad": object(), "loss": 1.0}, step=0, backend=["wandb"])
    tracking.log(5, step=0)  # type: ignore[arg-type]
    tracking.log({"late": 2.0}, step="one")

    said = " ".join(captured.notices)
    for what in ("default_backend='clearml'", "Tracking.log(backend=['wandb'])", "'bad'", "step='one'"):
        assert what in said, what
    assert [event.body for event in captured.events if event.kind == "ml.text"] == ["fine"]
    assert captured.values("loss") == [1.0]


def test_names_are_published_as_verl_writes_them(tmp_path: Path) -> None:
    tracking = Tracking("grpo", "dev", default_backend="file")
    tracking.log({"val-core/gsm8k/reward/mean@8": 0.5, "a (b)": 1.0}, step=0)
    tracking.finish()

    published = [
        name for name in otel_ml.read(the_run_in(tmp_path / "otel-ml-runs")) if not name.startswith("otel_ml/")
    ]
    assert published == ["a (b)", "val-core/gsm8k/reward/mean@8"]


def test_a_resumed_run_goes_on_in_its_file_and_erases_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", "grpo-dev")
    for step in (1, 2):
        with Tracking("grpo", "dev", default_backend="file") as tracking:
            tracking.log({"loss": float(step)}, step=step)

    assert otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["loss"] == ([1, 2], [1.0, 2.0])


def test_a_run_is_written_where_swanlab_and_trackio_look(tmp_path: Path) -> None:
    with Tracking("digits", "dev", default_backend=["swanlab", "trackio"]) as tracking:
        tracking.log({"loss": 0.5}, step=3)

    run = the_run_in(tmp_path / "otel-ml-runs")
    for backend in ("swanlab", "trackio"):
        assert ["loss", "step", 3, 0.5] in [scalar[:4] for scalar in answer_of(backend, run)["scalars"]], backend


@pytest.mark.parametrize(("exit_code", "status"), [(0, "finished"), (1, "failed")])
def test_a_run_ends_as_its_exit_code_says(tmp_path: Path, exit_code: int, status: str) -> None:
    Tracking("grpo", "dev", default_backend="file").finish(exit_code=exit_code)

    last_line = (the_run_in(tmp_path / "otel-ml-runs") / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last_line)["status"] == status


@pytest.mark.parametrize(
    ("variable", "value", "place"),
    [("VERL_FILE_LOGGER_PATH", "deep/mine.jsonl", "deep/mine.jsonl"),
     ("VERL_FILE_LOGGER_ROOT", "root", "root/grpo/dev.jsonl"),
     ("UNUSED", "x", "grpo/dev.jsonl")],
)  # fmt: skip
def test_the_backend_file_is_verls_file_at_verls_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    with Tracking("grpo", "dev", default_backend=["file"]) as tracking:
        tracking.log({"loss": np.float32(0.5), "note": "warm"}, step=1)
        tracking.log({"loss": 0.25}, step=2)

    lines = [json.loads(line) for line in (tmp_path / place).read_text().splitlines()]
    assert lines == [{"step": 1, "data": {"loss": 0.5, "note": "warm"}}, {"step": 2, "data": {"loss": 0.25}}]


def test_a_file_that_cannot_be_written_does_not_stop_training(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: Capture
) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "taken" / "file.jsonl"))
    with Tracking("grpo", "dev", default_backend=["file"]) as tracking:
        tracking.log({"loss": 0.5}, step=1)

    assert captured.values("loss") == [0.5]
    [said] = captured.notices
    assert "taken/file.jsonl' is not written: File exists" in said
    assert "explain dump-not-written" in said


def test_scripts_find_each_backend_they_asked_for(captured: Capture) -> None:
    tracking = Tracking("grpo", "dev", default_backend=["console", "wandb", "mlflow"])

    assert set(tracking.logger) == {"console", "wandb", "mlflow"} <= set(Tracking.supported_backend)
    assert tracking.logger["wandb"] is wandb
    tracking.logger["mlflow"].log(data={"extra": 2.0}, step=3)
    assert captured.values("extra") == [2.0]


def test_scripts_find_a_backend_too_that_no_exporter_writes_to(
    captured: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")
    chosen = ["clearml", "vemlp_wandb", "rl_insight"]
    tracking = Tracking("grpo", "dev", default_backend=chosen)

    assert list(tracking.logger) == chosen
    assert isinstance(tracking.logger["rl_insight"], RLInsightLogger)
    for step, backend in enumerate(chosen):
        tracking.logger[backend].log(data={"extra": 2.0}, step=step)
        tracking.logger[backend].finish()
    assert captured.values("extra") == [2.0, 2.0, 2.0]
    assert [sum(f"{backend!r}" in said for said in captured.notices) for backend in chosen] == [1, 1, 0]
    assert sum("rl_insight gets nothing" in said for said in captured.notices) == 1


@pytest.mark.parametrize(
    ("config", "is_asked_for"),
    [
        ({"transfer_queue": {"metrics": {"enabled": True}}}, True),
        ({"transfer_queue": {"metrics": {"enabled": False}}}, False),
        ({"transfer_queue": {"metrics": None}}, False),
        ([1], False),
    ],
)
def test_a_configuration_of_any_form_does_not_stop_training(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, config: Any, *, is_asked_for: bool
) -> None:
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")
    Tracking("grpo", "dev", default_backend="rl_insight", config=config)
    RLInsightLogger.register_metrics(5)  # type: ignore[arg-type]

    assert any("'transfer_queue'" in said for said in captured.notices) is is_asked_for
    assert any("register_metrics(5, None)" in said for said in captured.notices)


def test_filtered_rewards_of_dapo_are_a_row_of_their_step(captured: Capture) -> None:
    DapoFilteredRewardTableLogger("grpo", "dev").log(["wandb"], {1.0: 2, 0.0: 7}, 4)

    [table] = [event for event in captured.events if event.kind == "ml.table"]
    assert (table.name, table.step) == ("training/filter_groups/filtered_reward_counts", 4)
    assert table.body == {"columns": ["step", "reward_counts"], "rows": [[4, "0:7, 1:2"]]}


def test_states_of_rl_insight_are_timers_where_its_variable_asks_for_them(
    monkeypatch: pytest.MonkeyPatch, captured: Capture
) -> None:
    otel_ml.set_step(1)
    for asked in ("0", "1"):
        monkeypatch.setenv("VERL_RL_INSIGHT_ENABLE", asked)
        with RLInsightLogger.trace_state("rollout", state_lane_id=0):
            pass

    assert len(captured.values("time/rollout")) == 1


@pytest.mark.parametrize(
    ("lanes", "intervals"),
    [(("replica_0", "replica_0"), 1), (("replica_0", "replica_1"), 2), ((None, None), 1), ((3, 3), 1)],
)
def test_states_of_a_lane_that_overlap_are_one_interval(
    monkeypatch: pytest.MonkeyPatch, captured: Capture, lanes: tuple[Any, Any], intervals: int
) -> None:
    """An engine that answers two requests at once generates once, and not for twice the time."""
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")
    otel_ml.set_step(1)
    first, second = (RLInsightLogger.trace_state("generate", state_lane_id=lane) for lane in lanes)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert captured.spans.count("generate") == intervals

    generate, update = (RLInsightLogger.trace_state(name, state_lane_id=lanes[0]) for name in ("generate", "update"))
    with pytest.raises(KeyError), generate, update:
        raise KeyError
    assert captured.spans.count("generate") == intervals + 1
    assert captured.spans.count("update") == 1


@pytest.mark.parametrize("name", [7, print, None])
def test_a_state_of_any_name_stops_no_training(monkeypatch: pytest.MonkeyPatch, captured: Capture, name: Any) -> None:
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")
    otel_ml.set_step(1)
    with RLInsightLogger.trace_state(name, state_lane_id=["unhashable"]):  # type: ignore[arg-type]
        pass

    assert len(captured.spans) == 1


@pytest.mark.parametrize(("of_the_job", "written"), [("tensorboard", {"jsonl", "tensorboard"}), ("jsonl", {"jsonl"})])
def test_exporters_of_the_job_are_added_to_the_backends_of_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_the_job: str, written: set[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", of_the_job)
    with Tracking("grpo", "dev", default_backend="file") as tracking:
        tracking.log({"loss": 0.5}, step=1)

    run = the_run_in(tmp_path / "otel-ml-runs")
    assert (run / "metrics.jsonl").exists()
    assert any(run.rglob("*tfevents*")) == ("tensorboard" in written)


def test_a_transfer_queue_that_is_to_be_scraped_is_said_not_to_be(
    captured: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")

    RLInsightLogger.init("p", "e", {"transfer_queue": {"metrics": {"enabled": True}}})

    assert any("'transfer_queue'" in notice and "nothing is scraped" in notice for notice in captured.notices)


@pytest.mark.parametrize("values", [np.array([1.0, math.nan, math.inf]), torch.tensor([1.0, math.nan, math.inf])])
def test_the_file_is_json_also_where_an_array_has_values_that_json_has_not(tmp_path: Path, values: Any) -> None:
    logger = FileLogger("grpo", "dev")
    logger.log({"lengths": values}, step=1)
    logger.finish()

    line = (tmp_path / "grpo" / "dev.jsonl").read_text(encoding="utf-8")
    assert json.loads(line, parse_constant=pytest.fail) == {"step": 1, "data": {"lengths": [1.0, None, None]}}


def test_the_file_has_null_where_verls_has_it(tmp_path: Path) -> None:
    logger = FileLogger("grpo", "dev")
    logger.log({"loss": math.nan, "ratio": np.float32("inf"), "none": None, "lr": 0.5, "odd": object()}, step=1)
    logger.finish()

    line = (tmp_path / "grpo" / "dev.jsonl").read_text(encoding="utf-8")
    assert json.loads(line, parse_constant=pytest.fail) == {
        "step": 1,
        "data": {"loss": None, "ratio": None, "none": None, "lr": 0.5},
    }


@pytest.mark.parametrize(
    ("backend", "variable", "said"),
    [
        ("tensorboard", "TENSORBOARD_DIR", "below OTEL_ML_DIR"),
        ("swanlab", "SWANLAB_LOG_DIR", "below OTEL_ML_DIR"),
        ("swanlab", "SWANLAB_MODE", "swanlab sync"),
        ("mlflow", "MLFLOW_RUN_ID", "otel_ml.init(id=…)"),
    ],
)
def test_a_variable_of_verls_that_is_not_read_is_said_where_its_backend_is_chosen(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, backend: str, variable: str, said: str
) -> None:
    otel_ml.init()
    monkeypatch.setenv(variable, "elsewhere")

    Tracking("grpo", "dev", default_backend="console")
    assert not captured.notices
    Tracking("grpo", "dev", default_backend=backend)

    [notice] = captured.notices
    assert variable in notice
    assert said in notice


@pytest.mark.parametrize("config", [{"trainer": {"wandb_proxy": "http://proxy:8080"}}, {"trainer": None}, {}, [1]])
def test_a_proxy_for_wandb_is_said_to_be_set_where_the_service_runs(captured: Capture, config: Any) -> None:
    otel_ml.init()

    Tracking("grpo", "dev", default_backend="wandb", config=config)

    asked = isinstance(config, dict) and bool(config.get("trainer"))
    assert any("wandb_proxy" in notice and "HTTPS_PROXY" in notice for notice in captured.notices) is asked


def test_a_line_on_the_console_is_there_before_the_next_step(tmp_path: Path) -> None:
    """Where stdout is a file, a job that is killed loses what was not flushed."""
    program = (
        "from otel_ml.compat.verl import Tracking\nimport os\n"
        "Tracking('grpo', 'dev', default_backend='console').log({'loss': 0.5}, 1)\n"
        "os._exit(0)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert shown.stdout == "step:1 - loss:0.5\n"
