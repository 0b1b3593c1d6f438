"""Dumps, plots, folders, start-up times, the checkpoint status, and the gradient norm."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml.compat.nemo_rl import (
    Logger,
    configure_rich_logging,
    flatten_dict,
    get_next_experiment_dir,
    log_container_init_timing,
    warn_if_inf_grad_norm,
    write_checkpoint_status,
)
from otel_ml.compat.nemo_rl.timelines import average_figure, per_worker_figure
from otel_ml.compat.nemo_rl.token_errors import token_error_figure, worst_sample
from otel_ml.testing import Capture, Event


@pytest.fixture
def logger(otel_ml_capture: Capture, tmp_path: Path) -> Logger:
    return Logger({"log_dir": str(tmp_path)})


def images(captured: Capture) -> list[Event]:
    return [event for event in captured.events if event.kind == "ml.image"]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.feature("N11", "yes", "one object a sample, with `idx`")
def test_a_batch_is_one_object_a_sample(logger: Logger, tmp_path: Path) -> None:
    batch = UserDict(
        content=["a", "b"],
        rewards=torch.tensor([1.0, 0.5], dtype=torch.bfloat16),
        input_lengths=np.array([3, 4]),
        token_ids=torch.tensor([[1, 2], [3, 4]]),
        pieces=[torch.tensor([1]), np.array([2, 3])],
        when=[date(2026, 1, 1), None],
        task="math",
    )

    logger.log_batched_dict_as_jsonl(batch, "dumps/train_data_step1.jsonl")

    first, second = rows(tmp_path / "dumps" / "train_data_step1.jsonl")
    assert first == {
        "content": ["a"], "rewards": [1.0], "input_lengths": [3], "token_ids": [[1, 2]], "pieces": [[1]],
        "when": ["2026-01-01"], "task": "math", "idx": 0,
    }  # fmt: skip
    assert (second["pieces"], second["idx"]) == ([[2, 3]], 1)


@pytest.mark.feature("N11", "better", "a step that is done again does not erase its earlier file")
def test_a_step_that_is_done_again_keeps_its_earlier_files(logger: Logger, tmp_path: Path) -> None:
    for content in "abc":
        logger.log_batched_dict_as_jsonl({"content": [content]}, "train_data_step1.jsonl")

    assert {path.name: rows(path)[0]["content"] for path in tmp_path.glob("*.jsonl")} == {
        "train_data_step1.1.jsonl": ["a"],
        "train_data_step1.2.jsonl": ["b"],
        "train_data_step1.jsonl": ["c"],
    }
    assert not list(tmp_path.glob(".train*"))


@pytest.mark.feature("N11", "yes", "texts are added as they are")
def test_texts_are_added_as_they_are(logger: Logger, tmp_path: Path) -> None:
    logger.log_string_list_as_jsonl(['{"a": 1}', "é"], "raw/lines.jsonl")
    logger.log_string_list_as_jsonl(["x"], "raw/lines.jsonl")

    assert (tmp_path / "raw" / "lines.jsonl").read_text(encoding="utf-8") == '{"a": 1}\né\nx\n'


def test_a_dump_that_cannot_be_written_is_said_and_training_goes_on(
    logger: Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")

    for step in range(3):
        logger.log_batched_dict_as_jsonl({"a": [1]}, f"file/train{step}.jsonl")
    logger.log_string_list_as_jsonl([3], "other.jsonl")  # type: ignore[list-item]
    logger.log_batched_dict_as_jsonl({"a": [{(1, 2): 3}]}, "keys.jsonl")

    assert caplog.text.count("Files are not written into") == 2
    assert "(otel-ml explain dump-not-written)" in caplog.text
    assert (tmp_path / "other.jsonl").read_text() == "3\n"
    assert [path.name for path in tmp_path.iterdir() if "keys" in path.name] == []


@pytest.mark.feature("N8", "yes", "matplotlib figures, in every backend")
def test_a_figure_is_drawn_at_the_call(logger: Logger, otel_ml_capture: Capture) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2])
    logger.log_plot(figure, 4, "plots/loss")
    figure.clear()
    logger.log_plot("no figure", 5, "plots/bad")  # type: ignore[arg-type]

    [image] = images(otel_ml_capture)
    assert (image.name, image.step) == ("plots/loss", 4)
    assert image.body.startswith(b"\x89PNG")
    assert any("log_figure()" in notice for notice in otel_ml_capture.notices)


@pytest.mark.feature("N18", "yes", "a line a worker and their mean")
def test_timelines_are_two_plots(logger: Logger, otel_ml_capture: Capture) -> None:
    logger.log_plot_per_worker_timeline_metrics({0: [1, 2], 1: [3, 4]}, 6, "generation", "running", 0.5)

    assert [(image.name, image.step) for image in images(otel_ml_capture)] == [
        ("generation/per_worker_running", 6),
        ("generation/average_running", 6),
    ]


@pytest.mark.feature("N18", "better", "a worker without values does not empty the mean")
def test_the_mean_is_over_the_workers_that_have_values_as_long_as_all_have() -> None:
    metrics = {10: [1, 3], 2: [3.0, 5.0, 7.0], 5: [], "late": np.array([2.0, 4.0])}

    [mean] = average_figure(metrics, "running", 0.5).axes[0].lines  # type: ignore[union-attr]
    lines = per_worker_figure(metrics, "running", 0.5).axes[0].lines  # type: ignore[union-attr]

    assert mean.get_xdata().tolist() == [0.0, 0.5]
    assert mean.get_ydata().tolist() == [2.0, 4.0]
    assert [line.get_label() for line in lines] == ["worker_2", "worker_10", "worker_late"]
    assert lines[0].get_xdata().tolist() == [0.0, 0.5, 1.0]


def test_timelines_without_values_or_seconds_are_not_drawn_and_nothing_raises(
    logger: Logger, otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    logger.log_plot_per_worker_timeline_metrics({}, 1, "p", "n", 0.5)
    logger.log_plot_per_worker_timeline_metrics({0: []}, 1, "p", "n", 0.5)
    assert not caplog.records
    logger.log_plot_per_worker_timeline_metrics({0: [1]}, 1, "p", "n", 0)
    logger.log_plot_per_worker_timeline_metrics({0: ["x"]}, 1, "p", "n", 1.0)

    assert images(otel_ml_capture) == []
    assert "p/n: expected a timeline_interval above 0 s, got 0" in caplog.text
    assert "p/per_worker_n is not drawn: ValueError" in caplog.text


def logprobs(**changes: Any) -> dict[str, Any]:
    """Return three samples of six tokens, two of which are the prompt; sample 1 is off by 0.5 at its fourth token."""
    generation = torch.full((3, 6), -1.0)
    training = generation.clone()
    training[1, 3] = -1.5
    training[0, 4] = -1.1
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]] * 3)
    return {
        "generation_logprobs": generation,
        "prev_logprobs": training,
        "token_mask": mask,
        "sample_mask": torch.ones(3),
        "prompt_lengths": torch.tensor([2, 2, 2]),
        "full_lengths": torch.tensor([6, 6, 6]),
        **changes,
    }


@pytest.mark.feature("N19", "yes", "the sample with the largest mean error, its worst tokens marked")
def test_the_sample_that_is_off_most_is_plotted(logger: Logger, otel_ml_capture: Capture) -> None:
    sample = worst_sample(logprobs())
    assert sample is not None
    assert sample.index == 1
    assert sample.error == pytest.approx((math.exp(0.5) + 3) / 4)
    assert sample.positions.tolist() == [1, 2, 3, 4]
    assert sample.difference.tolist() == pytest.approx([0, 0.5, 0, 0])

    figure = token_error_figure(logprobs())
    assert figure is not None
    *curves, absolute, relative = figure.axes[0].lines
    assert len(curves) == 3
    assert np.ravel(absolute.get_xdata()).tolist() == np.ravel(relative.get_xdata()).tolist() == [2]
    assert relative.get_label() == f"Max rel error (prob): {1 - math.exp(-0.5):.4f}"

    logger.log_plot_token_mult_prob_error(logprobs(), 9, "train/token_error")
    [image] = images(otel_ml_capture)
    assert (image.name, image.step) == ("train/token_error", 9)


@pytest.mark.feature("N19", "better", "masked samples and tokens never win, whatever they hold")
def test_masked_samples_and_tokens_do_not_count() -> None:
    data = logprobs(sample_mask=torch.tensor([1.0, 0.0, 0.0]))
    data["prev_logprobs"][2] = -math.inf
    data["prev_logprobs"][0, 1] = math.nan

    sample = worst_sample(data)

    assert sample is not None
    assert sample.index == 0
    assert sample.error == pytest.approx((math.exp(0.1) + 3) / 4)


def test_nothing_is_plotted_where_no_generated_token_counts(
    logger: Logger, otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    assert worst_sample(logprobs(sample_mask=torch.zeros(3))) is None
    assert worst_sample(logprobs(full_lengths=torch.tensor([2, 2, 2]))) is None

    logger.log_plot_token_mult_prob_error(logprobs(sample_mask=torch.zeros(3)), 1, "e")
    assert not caplog.records
    logger.log_plot_token_mult_prob_error({}, 1, "e")

    assert images(otel_ml_capture) == []
    assert "e is not drawn: KeyError" in caplog.text


@pytest.mark.feature("N26", "better", "jobs that start at once get folders of their own")
def test_every_start_has_a_folder_of_its_own(tmp_path: Path) -> None:
    base = tmp_path / "exp_900" / "logs"

    with ThreadPoolExecutor(8) as starts:
        folders = list(starts.map(lambda _: get_next_experiment_dir(str(base)), range(8)))

    assert sorted(folders) == [str(base / f"exp_{number:03d}") for number in range(1, 9)]
    (base / "exp_041").mkdir()
    (base / "exp_old").mkdir()
    assert get_next_experiment_dir(base) == str(base / "exp_042")
    (base / "exp_042").rename(base / "exp_042_baseline")
    (base / "my_exp_100").mkdir()
    assert get_next_experiment_dir(base) == str(base / "exp_043")


@pytest.mark.feature("N28", "better", "printed, and parameters of the run")
def test_start_up_phases_are_printed_and_kept_with_the_run(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    for name, seconds in (("SLURM_JOB_START_TIME", 60), ("NRL_JOB_START_EPOCH", 50), ("NRL_RAY_READY_EPOCH", 20)):
        monkeypatch.setenv(name, str(now - seconds))

    times = log_container_init_timing()

    assert times == pytest.approx(
        {"slurm_prologue": 10, "cluster_startup": 30, "driver_startup": 20, "total": 60}, abs=5
    )
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "CONTAINER INIT TIMING" in lines
    assert "cluster_startup (orchestrator+container+ray): 30.0s" in lines
    assert "slurm_prologue: 10.0s" in lines
    [params] = [event.body for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert params == {"startup": times}


def test_start_up_times_that_are_missing_or_broken_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert log_container_init_timing() == {}
    assert "NRL_JOB_START_EPOCH not set" in caplog.text
    monkeypatch.setenv("NRL_JOB_START_EPOCH", "soon")
    monkeypatch.setenv("NRL_RAY_READY_EPOCH", str(time.time() - 5))

    assert list(log_container_init_timing()) == ["driver_startup"]
    assert capsys.readouterr().out.count("CONTAINER INIT TIMING") == 1


@pytest.mark.feature("N34", "yes", "time and step of the last checkpoint, never half written")
def test_the_checkpoint_status_names_the_newest_checkpoint(tmp_path: Path) -> None:
    before = time.time()
    write_checkpoint_status(tmp_path / "checkpoints", 10)
    path = write_checkpoint_status(str(tmp_path / "checkpoints"), 20)

    assert path == tmp_path / "checkpoints" / "latest_checkpoint_status.json"
    status = json.loads(path.read_text())
    assert status["last_checkpoint_step"] == 20
    assert before <= status["last_successful_ckpt_save_completion"] <= time.time()
    assert list(path.parent.iterdir()) == [path]


def test_a_status_that_cannot_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")

    write_checkpoint_status(tmp_path / "file", 1)

    assert "latest_checkpoint_status.json is not written" in caplog.text


@pytest.mark.feature("N33", "better", "NaN too, and an event of the run")
@pytest.mark.parametrize(
    "norm", [math.inf, math.nan, torch.tensor(math.inf), torch.tensor([1.0, math.inf]), np.float32("inf")], ids=repr
)
def test_a_gradient_norm_that_is_not_finite_is_a_warning_and_an_event(
    otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture, norm: Any
) -> None:
    assert not any(map(warn_if_inf_grad_norm, (2.0, torch.tensor(2.0), torch.tensor([1.0, 2.0]), None)))
    assert not caplog.records

    assert warn_if_inf_grad_norm(norm)

    assert "The gradient norm is" in caplog.text
    [event] = [event for event in otel_ml_capture.events if event.kind == "grad_norm.not_finite"]
    assert event.attributes == {"value": "nan" if norm is math.nan else "inf"}


def test_only_rank_0_prints_the_warning_and_every_rank_has_the_event(
    otel_ml_capture: Capture, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")

    warn_if_inf_grad_norm(math.inf)

    assert not caplog.records
    assert "grad_norm.not_finite" in {event.kind for event in otel_ml_capture.events}


@pytest.mark.feature("N6", "yes", "`flatten_dict` as NeMo RL's")
def test_nested_parameters_become_one_level() -> None:
    nested = {"a": 1, "b": {"c": [1, {"d": 2}], "e": {}}, 3: (4,), "f": [[5, 6]]}

    assert flatten_dict(nested) == {"a": 1, "b.c.0": 1, "b.c.1.d": 2, "3": (4,), "f.0": [5, 6]}
    assert flatten_dict(nested, sep="/", expand_lists=False) == {
        "a": 1, "b/c": [1, {"d": 2}], "3": (4,), "f": [[5, 6]],
    }  # fmt: skip


def test_rich_logging_is_set_up_once_and_leaves_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)

    configure_rich_logging("debug", show_path=False)
    configure_rich_logging()

    [handler] = root.handlers
    assert type(handler).__name__ == "RichHandler"
    assert root.level == logging.DEBUG


def test_a_batch_that_is_none_is_said_and_training_goes_on(
    logger: Logger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger.log_batched_dict_as_jsonl(None, "nothing.jsonl")  # type: ignore[arg-type]

    assert not (tmp_path / "nothing.jsonl").exists()
    assert "Files are not written into" in caplog.text
