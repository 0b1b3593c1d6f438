"""`progress.txt` and checkpoints: documented fields, and a throughput over all jobs of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml.compat.megatron import (
    LoggerConfig,
    ProgressLog,
    append_to_progress_log,
    on_load_checkpoint_success,
    on_save_checkpoint_success,
    progress_log,
)
from otel_ml.testing import Capture, capture
from otel_ml.warn_once import forget_warnings


@pytest.fixture
def captured() -> Iterator[Capture]:
    forget_warnings()
    with capture() as run:
        yield run


def test_a_progress_line_has_the_documented_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    monkeypatch.setenv("WORLD_SIZE", "64")

    append_to_progress_log(tmp_path, "Starting job", barrier=True)
    monkeypatch.setenv("RANK", "1")
    append_to_progress_log(tmp_path, "another rank")
    append_to_progress_log(None, "nowhere")

    [line] = (tmp_path / "progress.txt").read_text().splitlines()
    assert line.split("\t")[1:] == ["Job ID: 123", "# GPUs: 64", "Starting job"]


def throughputs(folder: Path) -> list[tuple[float, float]]:
    rows = [line.split("\t") for line in (folder / "progress.txt").read_text().splitlines()]
    return [(float(row[5].split()[2]), float(row[6].split()[2])) for row in rows if len(row) > 6]


@pytest.mark.feature("M24", "better", "job throughput is not 0; fields are found by name; time between jobs counts")
def test_throughput_goes_on_across_restarts(tmp_path: Path) -> None:
    work = 4e15  # of an iteration: 1 TFLOP/s on each of 4 GPUs makes 1000 s

    first = ProgressLog(tmp_path, world_size=4, now=0)
    first.saved(1, work, 1e9, now=1000)
    first.saved(2, 2 * work, 2e9, is_async=True, now=2000)
    first.committed(2, now=2100)
    first.saved(3, 3 * work, 3e9, is_async=True, now=3000)  # and died: never committed
    second = ProgressLog(tmp_path, 2 * work, world_size=4, now=4000)
    second.saved(4, 4 * work, 4e9, now=5000)

    assert throughputs(tmp_path) == [(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (2.0, 0.8)]
    assert (
        (tmp_path / "progress.txt")
        .read_text()
        .splitlines()[1]
        .endswith(
            "Saved checkpoint\tIteration: 1\tJob throughput: 1.0 TFLOP/s/GPU\tCumulative throughput: 1.0 TFLOP/s/GPU\t"
            "Floating-point operations: 4.00e+15\tTokens (in billions): 1.00"
        )
    )


def test_a_job_of_another_size_begins_a_new_account_at_what_was_committed(tmp_path: Path) -> None:
    work = 4e15
    ProgressLog(tmp_path, world_size=4, now=0).saved(1, work, 1e9, now=1000)
    append_to_progress_log(tmp_path, "a note of somebody: with a colon\tand a tab")
    larger = ProgressLog(tmp_path, work, world_size=8, now=2000)

    larger.saved(2, 3 * work, 2e9, now=3000)

    assert throughputs(tmp_path)[-1] == (1.0, 1.0)


def test_a_progress_file_that_cannot_be_written_does_not_stop_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")

    append_to_progress_log(tmp_path / "file" / "below", "Starting job")

    assert "Nothing was added to progress.txt" in caplog.text
    assert progress_log(LoggerConfig(), tmp_path) is None
    assert progress_log(LoggerConfig(log_progress=True), tmp_path) is not None


def test_a_line_that_ends_too_early_is_left_out_of_the_throughput(tmp_path: Path) -> None:
    log = ProgressLog(tmp_path, now=0.0, world_size=1)
    log.saved(1, 1e12, 1e9, now=1.0)
    with (tmp_path / "progress.txt").open("ab") as file:
        file.write(
            b"1970-01-01 00:00:02\tJob ID: \t# GPUs: 1\tSaved checkpoint\tIteration: 2\tFloating-point operations: \n"
        )
        file.write(b"\xff\xfe\n")

    log.saved(3, 4e12, 1e9, now=2.0)

    last = (tmp_path / "progress.txt").read_bytes().splitlines()[-1]
    assert b"\tCumulative throughput: 2.0 TFLOP/s/GPU\t" in last


@pytest.mark.feature("M23", "yes", "artifact and note on save, lineage event on load")
def test_a_checkpoint_says_which_run_it_is_of(captured: Capture, tmp_path: Path) -> None:
    run = otel_ml.init()
    checkpoint = tmp_path / "iter_0000010"
    checkpoint.mkdir()
    (checkpoint / "weights.bin").write_bytes(b"\x00\x01")

    on_save_checkpoint_success(checkpoint, tmp_path, np.int64(10), run)
    found = on_load_checkpoint_success(checkpoint, tmp_path)

    assert found == json.loads((tmp_path / "latest_otel_ml_checkpoint.json").read_text())
    assert found["run_id"] == run.id
    by_kind = {event.kind: event for event in captured.events}
    assert by_kind["ml.artifact"].step == 10
    assert by_kind["checkpoint.saved"].attributes["iteration"] == 10
    assert by_kind["checkpoint.loaded"].attributes["from.run_id"] == run.id
    assert on_load_checkpoint_success(checkpoint, tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([{"train_iterations_productive_end": 10}, True], {}),  # one-logger's own
        (["iter_0000010", "latest_checkpointed_iteration.txt", "checkpoints", 10], {}),  # Megatron-LM's wandb_utils
        (["iter_0000010", "checkpoints", 10], {"wandb_writer": object()}),  # Megatron Bridge's, before it is changed
        (["iter_0000010", "checkpoints", 10, None], {}),
    ],
)
def test_a_saved_checkpoint_that_is_told_as_elsewhere_is_reported_and_training_goes_on(
    given: Sequence[Any], named: Mapping[str, Any], captured: Capture
) -> None:
    otel_ml.init()
    told: Any = on_save_checkpoint_success

    for _ in range(2):
        told(*given, **named)

    [said] = captured.notices
    assert [event.kind for event in captured.events] == ["ml.notice"]
    assert "is not recorded: " in said
    assert "Expected checkpoint_path, save_dir, iteration and the run that start() returned" in said
    assert "Leave out the call of one-logger" in said


def test_a_loaded_checkpoint_is_told_as_megatron_bridge_does(captured: Capture, tmp_path: Path) -> None:
    run = otel_ml.init()

    assert on_load_checkpoint_success(tmp_path / "iter_0000010", tmp_path, run) is None

    [event] = captured.events
    assert event.kind == "checkpoint.loaded"
