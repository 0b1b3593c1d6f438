"""`MetricsManager`: every documented name appears, with the value that its definition has."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml.compat.roll import (
    DurationTracker,
    MetricsManager,
    dump_trajectories,
    log_trajectories,
    reduce_metrics,
    reduce_metrics_list,
    strip_at_tag_in_log,
)
from otel_ml.compat.roll.tracker import Tracker
from otel_ml.testing import Capture, capture
from tests.e2e.jobs import environment, finished


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


@dataclass
class Batch:
    """Four samples of two prompts: right, wrong, right, right; prompts of 2 tokens, responses of up to 3."""

    batch: dict[str, Any]
    meta_info: dict[str, Any] = field(default_factory=dict)


def the_batch() -> Batch:
    response = np.array([[0, 0, 1, 1, 0], [0, 0, 1, 1, 1], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0]])
    tokens = np.array([[0, 1.0, 2.0, 0], [0, -1.0, -1.0, -1.0], [0, 3.0, 0, 0], [0, 4.0, 4.0, 0]])
    return Batch(
        {
            "response_mask": response,
            "final_response_mask": response[:, 1:],
            "prompt_mask": np.array([[1, 1, 0, 0, 0]] * 4),
            "responses": np.zeros((4, 3)),
            "scores": np.array([1.0, 0.0, 1.0, 1.0]),
            "token_level_rewards": np.array([[0, 0, 1.0, 0], [0, 0, 0, 0.0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]]),
            "advantages": tokens,
            "raw_advantages": tokens * 2,
            "returns": tokens + 1,
            "values": tokens - 1,
            "ref_log_probs": tokens * 0 - 2,
            "old_log_probs": tokens * 0 - 3,
        },
        {"agg_entropy": 0.5, "generation_config": {"num_return_sequences": 2}},
    )


@dataclass
class Throughput:
    mean_throughput: float
    mean: float = 2.0


@dataclass
class Cluster:
    world_size: int = 4
    dp_size: int = 2


@dataclass
class Machines:
    num_gpus: int = 8


WORKER = {
    "actor": (
        "lr ppo_ratio_high_clipfrac ppo_ratio_low_clipfrac ppo_ratio_clipfrac ratio_mean ratio_max ratio_min clipfrac",
        "kl_loss total_loss approxkl policykl pg_loss weighted_pg_loss valid_samples total_samples valid_sample_ratio",
        "sample_weights_mean sample_weights_min sample_weights_max sft_loss positive_sft_loss negative_sft_loss",
    ),
    "critic": ("lr loss value vpred clipfrac error reward_clip_frac",),
}

DOCUMENTED = [
    *(f"{role}/{name}" for role, lines in WORKER.items() for name in " ".join(lines).split()),
    *(f"val/score/{end}" for end in ("mean", "max", "min")),
    *(
        f"critic/{name}/{end}"
        for name in ("score", "rewards", "advantages", "returns", "values")
        for end in ("mean", "max", "min")
    ),
    *(f"tokens/{name}/{end}" for name in ("response_length", "prompt_length") for end in ("mean", "max", "min")),
    *(f"critic/{name}/mean" for name in ("ref_log_prob", "old_log_prob", "entropy")),
    "system/tps",
    "system/samples",
    *(f"time/{name}" for name in ("rollout", "ref_log_probs_values_reward", "old_log_probs_values", "adv")),
]


@pytest.fixture
def manager() -> MetricsManager:
    manager = MetricsManager()
    manager.timers = {"tps": Throughput(800.0), "actor_infer": Throughput(400.0), "actor_train": Throughput(200.0)}
    phases = ("rollout", "ref_log_probs_values_reward", "old_log_probs_values", "adv")
    manager.add_timer_metrics({**dict.fromkeys(phases, 1.5), "never": math.nan})
    manager.add_all_metrics(4, the_batch(), -1, Machines(), Cluster(), Cluster())
    manager.add_validation_metrics([0.0, 1.0, 0.5], ["sokoban", "lake", "lake"])
    for role, lines in WORKER.items():
        manager.add_reduced_metrics({name: [1.0, 3.0] for name in " ".join(lines).split()}, prefix=role)
    return manager


@pytest.mark.feature("R14", "yes", "every name of the documentation, from one batch")
@pytest.mark.feature("R2", "yes", "the same names in every backend")
def test_every_documented_name_is_recorded(captured: Capture, manager: MetricsManager) -> None:
    Tracker(prints=False).log(manager.get_metrics(), step=4)

    assert set(DOCUMENTED) - {point.name for point in captured.points} == set()
    assert {point.step for point in captured.points} == {4}
    assert not captured.notices


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens/prompt_length/mean", 2.0),
        ("tokens/response_length/mean", 2.0),
        ("tokens/response_length/diff", 2.0),
        ("tokens/total_length/max", 5.0),
        ("tokens/total_response_length/clip", 1.0),
        ("tokens/right_response_length/mean", 5 / 3),
        ("tokens/error_response_length/clip", 1.0),
        ("critic/score/mean", 0.75),
        ("critic/correct/mean", 0.75),
        ("critic/rewards/max", 1.0),
        ("critic/advantages/mean", (1 + 2 - 3 + 3 + 8) / 8),
        ("critic/advantages/min", -1.0),
        ("critic/right_response/advantages/mean", 14 / 5),
        ("critic/error_response/raw_advantages/max", -2.0),
        ("critic/returns/max", 5.0),
        ("critic/values/min", -2.0),
        ("critic/entropy/mean", 0.5),
        ("critic/old_log_prob/mean", -3.0),
        ("group/correct_ratio/mean", 0.75),
        ("group/all_correct_groups_ratio", 0.5),
        ("group/mixed_groups_ratio", 0.5),
        ("group/response_length_diff/mean", 1.0),
        ("group/advantage_diff/max", 2.5),
        ("group/correct_vs_incorrect_advantage_diff/mean", 2.5),
        ("system/samples", 20),
        ("system/tps_gpu", 100.0),
        ("system/actor_infer/tps_gpu", 100.0),
        ("system/actor_infer/tps_dp", 200.0),
        ("system/actor_train/tps_dp", 100.0),
        ("val/lake/score/mean", 0.75),
        ("val/sokoban/score/max", 0.0),
        ("actor/ratio_max", 3.0),
        ("actor/ratio_mean", 2.0),
    ],
)
@pytest.mark.feature("R13", "yes", "phases, tokens/s, per GPU and per DP rank")
@pytest.mark.feature("R15", "yes", "mean, max and min, of all and of each environment tag")
def test_a_metric_is_what_its_definition_says(manager: MetricsManager, name: str, value: float) -> None:
    assert manager.get_metrics()[name] == pytest.approx(value)


def test_a_batch_in_bfloat16_as_a_reward_model_gives_it_is_measured() -> None:
    def measured(kind: torch.dtype) -> dict[str, float]:
        batch = the_batch()
        arrays = {name: torch.as_tensor(np.array(values)) for name, values in batch.batch.items()}
        batch.batch = {name: a.to(kind) if a.is_floating_point() else a for name, a in arrays.items()}
        manager = MetricsManager()
        manager.add_all_metrics(4, batch, 2)
        return manager.get_metrics()

    assert measured(torch.bfloat16) == pytest.approx(measured(torch.float32), rel=1e-2)


def test_what_no_sample_has_is_absent_not_nan_or_zero() -> None:
    batch = the_batch()
    batch.batch["scores"] = np.zeros(4)
    manager = MetricsManager()

    manager.add_token_metrics(batch)
    manager.add_values_metrics(batch)
    manager.add_timer_metrics({"never": math.nan})

    found = manager.get_metrics()
    assert not [name for name in found if "right_response/" in name or "never" in name]
    assert not [name for name, value in found.items() if math.isnan(value)]
    assert "tokens/right_response_length/mean" not in found


def test_domains_have_their_own_prefix_and_leave_the_others_alone(manager: MetricsManager) -> None:
    before = manager.get_metrics()

    manager.add_domain_all_metrics(4, {"math": the_batch()})

    found = manager.get_metrics()
    assert found["math/critic/score/mean"] == 0.75
    assert found["math/tokens/prompt_length/mean"] == 2.0
    assert before.items() <= found.items()
    manager.clear_metrics()
    assert manager.get_metrics() == {}


@pytest.mark.feature("R12", "better", "phases above OTEL_ML_TIMER_LEVEL cost a look-up, by variable and not by rebuild")
def test_detailed_phases_are_there_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    for level in ("1", "2"):
        monkeypatch.setenv("OTEL_ML_TIMER_LEVEL", level)
        with capture() as captured:
            otel_ml.set_step(0)
            with otel_ml.timed(f"actor_train/train_step/total_{level}"), otel_ml.timed(f"onload_{level}", level=2):
                pass
            seen[level] = {point.name for point in captured.points}

    assert seen["1"] == {"time/actor_train/train_step/total_1"}
    assert seen["2"] == {"time/actor_train/train_step/total_2", "time/onload_2"}


@pytest.mark.feature("R18", "yes", "count, min, max and mean since the last look")
def test_durations_are_counted_also_of_what_raises() -> None:
    durations = DurationTracker("env")

    with durations.track():
        pass
    with pytest.raises(ValueError), durations.track():
        raise ValueError

    assert durations.log()["env/count"] == 2
    assert durations.log() == {}


def test_durations_without_a_name_have_the_keys_that_rolls_scheduler_looks_up_also_where_nothing_was_taken() -> None:
    durations = DurationTracker()
    durations.observe(0.5)
    durations.observe(1.5)

    assert durations.log() == {"count": 2, "min": 0.5, "max": 1.5, "mean": 1.0}
    assert durations.log() == {"count": 0, "min": 0.0, "max": 0.0, "mean": 0.0}


@pytest.mark.feature("R16", "yes", "a table of some, a file of all, kept in the run")
def test_trajectories_are_a_table_and_a_file(captured: Capture, tmp_path: Path) -> None:
    rows = [{"prompt": f"p{place}", "reward": place / 10} for place in range(12)]

    log_trajectories("rollouts", rows, step=5)
    path = dump_trajectories(tmp_path / "dump", rows, step=5)

    assert len(path.read_text().splitlines()) == 12
    table, artifact = [event for event in captured.events if event.kind in {"ml.table", "ml.artifact"}]
    assert (table.name, table.step, len(table.body["rows"])) == ("rollouts", 5, 10)
    assert artifact.name == "trajectories_5.jsonl"


LOGGING = """
from otel_ml.compat.roll import get_logger

get_logger().info("a line")
get_logger().error("a mistake")
"""


@pytest.mark.feature("R19", "yes", "a file for each rank, whose lines say whose they are")
def test_each_rank_has_a_log_file_of_its_own(tmp_path: Path) -> None:
    place = {"WORKER_NAME": "actor_train", "RANK": "3", "WORLD_SIZE": "8", "ROLL_LOG_DIR": str(tmp_path / "logs")}

    said = finished([sys.executable, "-c", LOGGING], environment(**place), tmp_path)

    lines = (tmp_path / "logs" / "log_rank_actor_train_3_8.log").read_text().splitlines()
    assert [line.rpartition("] ")[2] for line in lines] == ["a line", "a mistake"]
    assert all("[actor_train 3 / 8][PID " in line for line in lines)
    assert "a mistake" in said
    assert "a line" not in said


CONFIGURED_LATER = """
import os

from otel_ml.compat.roll import get_logger

logger = get_logger()  # as ROLL's modules do when they are imported
logger.info("before")
os.environ["ROLL_LOG_DIR"] = "first"  # as its configuration does
assert get_logger() is logger
logger.info("at first")
os.environ["ROLL_LOG_DIR"], os.environ["WORKER_NAME"] = "second", "env"
get_logger()
logger.info("at last")
"""


def test_a_folder_that_is_set_after_the_first_call_has_the_lines_from_the_next_call_on(tmp_path: Path) -> None:
    finished([sys.executable, "-c", CONFIGURED_LATER], environment(), tmp_path)

    first = (tmp_path / "first" / "log_rank_DRIVER_0_1.log").read_text().splitlines()
    second = (tmp_path / "second" / "log_rank_env_0_1.log").read_text().splitlines()
    assert [line.rpartition("] ")[2] for line in first] == ["at first"]
    assert [line.rpartition("] ")[2] for line in second] == ["at last"]
    assert re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] \[", first[0])


@pytest.mark.parametrize("blocked", [("logs",), ("logs", "output")], ids=["ROLL's other folder", "no folder at all"])
def test_a_folder_that_cannot_be_made_does_not_stop_the_program(tmp_path: Path, blocked: tuple[str, ...]) -> None:
    for name in blocked:
        (tmp_path / name).write_text("a file")

    said = finished([sys.executable, "-c", LOGGING], environment(ROLL_LOG_DIR="logs"), tmp_path)

    files = list((tmp_path / "output").glob("logs/log_rank_DRIVER_0_1.log"))
    assert len(files) == (len(blocked) == 1)
    assert all("a line" in file.read_text() for file in files)
    assert "'logs/log_rank_DRIVER_0_1.log' is not written: " in said
    assert said.count("is not written") == len(blocked)


FORKED = """
import os

from otel_ml.compat.roll import get_logger

get_logger().info("of the parent")
child = os.fork()
if child == 0:
    get_logger().info("of the child")
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_child_logs_too(tmp_path: Path) -> None:
    finished([sys.executable, "-c", FORKED], environment(ROLL_LOG_DIR=str(tmp_path)), tmp_path)

    lines = (tmp_path / "log_rank_DRIVER_0_1.log").read_text().splitlines()
    assert sorted(line.rpartition("] ")[2] for line in lines) == ["of the child", "of the parent"]


def test_what_workers_have_reduced_is_averaged_over_them() -> None:
    workers = [
        {"adv_std": 1.0, "wait_p99": 10.0, "n@sum": 1.0, "of_one": 7.0},
        {"adv_std": 3.0, "wait_p99": 20.0, "n@sum": 3.0},
    ]

    assert reduce_metrics_list(workers) == {"adv_std": 2.0, "wait_p99": 15.0, "n@sum": 2.0, "of_one": 7.0}
    assert reduce_metrics_list(workers, max)["wait_p99"] == 20.0
    assert reduce_metrics_list([]) == {}


def test_a_reduced_list_is_a_float_as_in_roll_also_of_whole_numbers_and_of_any_sequence() -> None:
    reduced = reduce_metrics({"n@sum": [1, 2], "turns_max": (1, 4), "steps": range(3)})

    assert [(value, type(value)) for value in reduced.values()] == [(3.0, float), (4.0, float), (1.0, float)]


def test_blanks_around_a_tag_do_not_make_it_another_one(caplog: pytest.LogCaptureFixture) -> None:
    assert reduce_metrics({"loss@ sum ": [1.0, 2.0]}) == {"loss@ sum ": 3.0}
    assert "is not a reduction" not in caplog.text


def test_what_cannot_be_reduced_stays_and_the_others_are_reduced() -> None:
    assert reduce_metrics({"odd@sum": [None, "x"], "loss": [1.0, 3.0]}) == {"odd@sum": [None, "x"], "loss": 2.0}
    assert reduce_metrics_list([{"odd": "x", "loss": 1.0}, {"loss": 3.0}])["loss"] == 2.0


@pytest.mark.parametrize("lacking", ["scores", "response_mask", "token_level_rewards"])
def test_a_batch_without_what_a_family_needs_does_not_stop_training(lacking: str) -> None:
    manager, batch = MetricsManager(), the_batch()
    del batch.batch[lacking]

    manager.add_metric("loss", 1.0)
    manager.add_token_metrics(batch)
    manager.add_values_metrics(batch)
    assert manager.add_group_metrics(batch, 3) == {}  # four samples are no groups of three
    manager.add_domain_all_metrics(1, {"math": batch})

    assert manager.get_metrics()["loss"] == 1.0


def test_a_tracker_of_ones_own_is_called_without_a_step_too() -> None:
    class Own:
        @strip_at_tag_in_log
        def log(self, values: dict[str, float], step: int | None) -> tuple[dict[str, float], int | None]:
            return values, step

    assert Own().log({"loss@sum": 1.0}) == ({"loss": 1.0}, None)
