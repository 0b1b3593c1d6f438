"""Every row of the table is recorded by its helper, under its name, with its reduction."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml.diagnostics import rl
from otel_ml.testing import Capture, otel_ml_capture
from otel_ml.wire.trace_context import half_of_role, span_half, traceparent
from tests.e2e.jobs import the_run_in

__all__ = ["otel_ml_capture"]

PAGE = Path(__file__).parents[4] / "docs" / "diagnostics" / "rl.md"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def timed(block: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        with block():  # type: ignore[attr-defined]
            pass

    return call


def updates() -> None:
    clock = Clock()
    policy = rl.PolicyUpdates(clock=clock)
    policy.updated(magnitude=0.5)
    clock.now = 4.0
    policy.updated(magnitude=0.5)


def failure() -> None:
    watch = rl.ReplicaWatch()
    watch.failed("r1", "oom")
    watch.recovered("r1")


def io(block: Callable[[int], object]) -> Callable[[], None]:
    def call() -> None:
        with block(8):  # type: ignore[attr-defined]
            pass

    return call


VALUES = torch.tensor([[1.0, 2.0], [3.0, 6.0]])

CALLS: dict[str, Callable[[], None]] = {
    "advantages": lambda: rl.advantages(VALUES),
    "returns": lambda: rl.returns(VALUES),
    "state_values": lambda: rl.state_values(VALUES),
    "kl": lambda: rl.kl(VALUES),
    "entropy": lambda: rl.entropy(VALUES),
    "clip_fractions": lambda: rl.clip_fractions(VALUES),
    "PolicyUpdates.updated": updates,
    "policy_staleness": lambda: rl.policy_staleness([1, 3], current=3),
    "batch_reward": lambda: rl.batch_reward([1.0, 0.0], correct=[True, False]),
    "episode": lambda: rl.episode(3.0, 17),
    "groups": lambda: rl.groups([[1.0, 0.0], [1.0, 1.0]]),
    "sequence_lengths": lambda: rl.sequence_lengths([5, 9]),
    "tokenization": timed(rl.tokenization),
    "sampling_parameters": lambda: rl.sampling_parameters(temperature=0.7, top_p=0.9, top_k=20, max_tokens=64),
    "generated": lambda: rl.generated(100, seconds=2.0),
    "requests": lambda: rl.requests(running=3, queued=5),
    "kv_cache": lambda: rl.kv_cache(size=1 << 30, utilization=0.5, misses=1, lookups=4),
    "ReplicaWatch.failed": failure,
    "ReplicaWatch.recovered": failure,
    "model_loading": timed(rl.model_loading),
    "idle": timed(rl.idle),
    "batch_creation": timed(rl.batch_creation),
    "weight_push": timed(rl.weight_push),
    "weight_pull": timed(rl.weight_pull),
    "synchronization": timed(rl.synchronization),
    "buffer_state": lambda: rl.buffer_state(size=5, capacity=10, queued=2),
    "evicted": lambda: rl.evicted(3),
    "buffer_write": io(rl.buffer_write),
    "buffer_read": io(rl.buffer_read),
}


@pytest.mark.feature("F19", "better", "one table: staleness, KV cache, queues, replicas, eviction, weight sync")
@pytest.mark.feature(
    "R14", "yes", "values, advantages, returns, lengths, correct and incorrect, groups, clip, entropy, KL"
)
@pytest.mark.feature("N31", "yes", "engine gauges from any thread or process, per replica")
@pytest.mark.parametrize("row", rl.ROWS, ids=lambda row: row.measure.name)
def test_the_helper_records_the_row(row: rl.Row, otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    CALLS[row.helper]()

    assert row.measure.name in {point.name for point in otel_ml_capture.points}
    assert {p.reduction for p in otel_ml_capture.points if p.name == row.measure.name} == {row.reduction}
    assert otel_ml_capture.notices == []


def test_what_was_spelled_in_british_english_records_the_same(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    timed(rl.synchronisation)()
    timed(rl.tokenisation)()
    rl.kv_cache(utilisation=0.25)

    assert {point.name: point.value for point in otel_ml_capture.points}.keys() == {
        "time/rl/sync/overhead", "time/rl/sample/tokenisation", "rl/engine/kv_cache_utilisation",
    }  # fmt: skip
    assert otel_ml_capture.notices == []


def test_a_generation_that_took_no_time_that_the_clock_can_tell_has_no_rate(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)
    rl.generated(100, seconds=0.0)

    assert otel_ml_capture.points == []
    assert otel_ml_capture.notices == []


def test_the_helpers_of_the_table_are_all_there_are() -> None:
    public = {name for name in rl.__all__ if name not in {"ROWS", "Row", "markdown"}}

    assert {row.helper.partition(".")[0] for row in rl.ROWS} == public
    assert set(CALLS) == {row.helper for row in rl.ROWS}


def test_names_are_unique_and_read_as_the_proposal_with_dots() -> None:
    names = [row.measure.name for row in rl.ROWS]

    assert len(set(names)) == len(names)
    assert all(row.convention.startswith("rl.") for row in rl.ROWS)
    assert {row.convention for row in rl.ROWS} >= {"rl.sync.push.duration", "rl.train.kl", "rl.sample.episode_length"}


def test_the_page_has_the_table_of_the_code() -> None:
    assert rl.markdown() in PAGE.read_text(encoding="utf-8")


def test_elements_outside_the_mask_do_not_count(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.advantages(VALUES, VALUES < 4)
    rl.entropy([[1.0, 9.0], [3.0]], [[1, 0], [1]])

    assert otel_ml_capture.values("rl/train/advantage") == [2.0]
    assert otel_ml_capture.values("rl/train/advantage/max") == [3.0]
    assert otel_ml_capture.values("rl/train/entropy") == [2.0]


def test_a_mask_that_selects_nothing_records_nothing(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.advantages(VALUES, VALUES > 100)
    rl.advantages([])
    rl.batch_reward([], correct=[])

    assert otel_ml_capture.points == []


def test_ranks_with_more_elements_weigh_more(otel_ml_capture: Capture) -> None:
    for rank, values in enumerate(([1.0], [5.0, 5.0, 5.0])):
        with otel_ml_capture.rank(rank):
            otel_ml.set_step(0)
            rl.kl(torch.tensor(values))

    weighted = [point for point in otel_ml_capture.points if point.name == "rl/train/kl"]
    assert len(weighted) == 2
    assert {point.rank: point.mean for point in weighted} == {0: 1.0, 1: 5.0}


def test_clip_fractions_count_ratios_outside_the_clip(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.clip_fractions(torch.tensor([0.5, 0.9, 1.0, 1.1, 1.5, 1.6]), low=0.2, high=0.3)

    assert otel_ml_capture.values("rl/train/clip_fraction_low") == [pytest.approx(1 / 6)]
    assert otel_ml_capture.values("rl/train/clip_fraction_high") == [pytest.approx(2 / 6)]


def test_staleness_comes_from_the_axis(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)
    otel_ml.set_step(7, axis="policy_version")

    rl.policy_staleness([7, 5, 3])

    (point,) = [point for point in otel_ml_capture.points if point.name == "rl/train/staleness"]
    assert (point.count, point.value, point.min, point.max) == (3, 6.0, 0.0, 4.0)


def test_staleness_of_contexts_says_whose_samples_they_are_too(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)
    otel_ml.set_step(7, axis="policy_version")

    rl.policy_staleness([otel_ml.context(version=7), otel_ml.context(version=5), otel_ml.context()])

    points = {(one.name, *one.attributes.values()): one for one in otel_ml_capture.points}
    staleness = points["rl/train/staleness",]
    assert (staleness.count, staleness.value, staleness.max) == (2, 2.0, 2.0), "of one the version is not known"
    assert points["consumed/samples", "0"].value == 3.0
    assert points["consumed/staleness", "0"].max == 2.0


def test_without_a_version_staleness_is_absent_and_said(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.policy_staleness([1])

    assert otel_ml_capture.points == []
    assert "policy_version" in otel_ml_capture.notices[0]


def test_the_update_frequency_of_a_step_is_updates_by_the_time_they_took(tmp_path: Path) -> None:
    """Several epochs over one batch are quick updates after a long wait: a mean of rates would forget the wait."""
    clock = Clock()
    policy = rl.PolicyUpdates(clock=clock)
    with otel_ml.init("updates", exporters="jsonl"):
        otel_ml.set_step(0)
        policy.updated()
        for seconds in (1.0, 1.0, 8.0):
            clock.now += seconds
            policy.updated()
        otel_ml.shutdown(timeout=60.0)

    run = the_run_in(tmp_path / "otel-ml-runs")
    assert otel_ml.read(run)["rl/train/update_frequency"] == ([0], [pytest.approx(3 / 10)])


def test_a_nan_is_seen_in_the_ends_of_numbers_as_of_tensors(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.advantages([1.0, math.nan, 2.0])
    rl.returns(torch.tensor([1.0, math.nan, 2.0]))

    values = {point.name: point.value for point in otel_ml_capture.points}
    assert len(values) == 6
    assert all(map(math.isnan, values.values()))


def test_a_reading_takes_the_time_it_took(otel_ml_capture: Capture) -> None:
    clock = Clock()
    otel_ml.set_step(0)

    with rl.buffer_read(8, clock=clock):
        clock.now += 2.0

    assert otel_ml_capture.values("rl/buffer/read_throughput") == [4.0]


@pytest.mark.parametrize("block", [rl.buffer_read, rl.buffer_write])
def test_a_block_that_is_told_no_number_of_samples_does_not_end_training(otel_ml_capture: Capture, block: Any) -> None:
    otel_ml.set_step(0)

    with block("eight"):
        pass

    assert any("str" in notice for notice in otel_ml_capture.notices)


def test_a_replica_fails_once_until_it_recovers(otel_ml_capture: Capture) -> None:
    clock = Clock()
    watch = rl.ReplicaWatch(clock=clock)
    otel_ml.set_step(0)
    watch.failed("r1", "lost")
    watch.failed("r1", "lost")
    clock.now += 30.0
    watch.recovered("r1")
    watch.recovered("r1")

    assert otel_ml_capture.values("rl/engine/recovery_time") == [30.0]
    assert [point.value for point in otel_ml_capture.points if point.name == "rl/engine/replica_failures"] == [1.0]
    assert [event.kind for event in otel_ml_capture.events] == ["rl.replica.failed", "rl.replica.recovered"]


@pytest.mark.feature("R15", "yes", "reward minimum, mean and maximum of each environment tag")
def test_environments_have_series_of_their_own(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.batch_reward([1.0], environment="math")
    rl.batch_reward([0.0], environment="code")

    rewards = {p.attributes["environment"]: p.value for p in otel_ml_capture.points if p.name == "rl/sample/reward"}
    assert rewards == {"math": 1.0, "code": 0.0}


def made_by(rank: int) -> str:
    half = half_of_role("generator")
    return traceparent(half << 64 | 7, span_half(half, rank, 390, 0))


def test_rewards_are_split_by_who_made_the_samples(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.batch_reward([1.0, 0.0, 0.5, 9.0], contexts=[made_by(3), made_by(1), made_by(3), "of another tracer"])

    rewards = [(p.attributes.get("generator"), p.value) for p in otel_ml_capture.points if p.name == "rl/sample/reward"]
    assert sorted(rewards, key=str) == [("1", 0.0), ("3", 1.5), (None, 10.5)], "sums"


def test_contexts_that_are_fewer_than_rewards_are_said_and_split_nothing(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.batch_reward([1.0, 0.0], contexts=[made_by(3)])

    (notice,) = otel_ml_capture.notices
    assert "1 contexts for 2 rewards" in notice
    assert [(point.name, point.value) for point in otel_ml_capture.points] == [("rl/sample/reward", 1.0)]


def test_a_mask_of_another_shape_is_said_and_training_goes_on(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.advantages(VALUES, torch.tensor([True, False, True]))

    (notice,) = otel_ml_capture.notices
    assert re.match(r"advantages\(\) at test_rl\.py:\d+ failed with IndexError", notice)
    assert otel_ml_capture.points == []


def test_verdicts_that_are_fewer_than_rewards_are_said_and_split_nothing(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.batch_reward([1.0, 0.0, 1.0], correct=[True, False])

    (notice,) = otel_ml_capture.notices
    assert "2 verdicts for 3 rewards" in notice
    assert [point.name for point in otel_ml_capture.points] == ["rl/sample/reward"]


@pytest.mark.parametrize("made", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
def test_a_verdict_between_0_and_1_counts_by_it_as_correct_and_by_the_rest_as_incorrect(
    otel_ml_capture: Capture, made: Callable[[Any], Any]
) -> None:
    otel_ml.set_step(0)

    rl.batch_reward(made([1.0, 0.0, 4.0]), correct=made([1.0, 0.0, 0.25]))

    assert otel_ml_capture.values("rl/sample/reward/correct") == [(1.0 + 0.25 * 4.0) / 1.25]
    assert otel_ml_capture.values("rl/sample/reward/incorrect") == [0.75 * 4.0 / 1.75]
    assert otel_ml_capture.notices == []


@pytest.mark.parametrize("verdict", [-1.0, 2.0, math.nan])
def test_a_verdict_that_is_not_from_0_to_1_is_said_and_splits_its_reward_nowhere(
    otel_ml_capture: Capture, verdict: float
) -> None:
    otel_ml.set_step(0)

    for _ in range(2):
        rl.batch_reward([1.0, 0.0, 4.0, 9.0], correct=[1.0, 0.0, 0.5, verdict])

    assert otel_ml_capture.values("rl/sample/reward/correct") == [2.0]
    assert otel_ml_capture.values("rl/sample/reward/incorrect") == [4.0 / 3.0]
    (notice,) = otel_ml_capture.notices
    assert f"verdicts that are not from 0 to 1, such as {verdict!r}." in notice


def test_groups_of_another_shape_are_said(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    rl.groups(torch.tensor([1.0, 0.0]))

    (notice,) = otel_ml_capture.notices
    assert "[groups, samples]" in notice
    assert otel_ml_capture.points == []


def test_two_updates_at_the_same_tick_of_the_clock_have_no_rate(otel_ml_capture: Capture) -> None:
    clock = Clock()
    policy = rl.PolicyUpdates(clock=clock)
    otel_ml.set_step(0)
    for now in (1.0, 1.0, 3.0):
        clock.now = now
        policy.updated()

    assert otel_ml_capture.values("rl/train/update_frequency") == [0.5]
    assert otel_ml_capture.notices == []
