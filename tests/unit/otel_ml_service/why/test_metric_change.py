"""Why a metric fell, rose or is no number any more."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.records import StepRecord
from tests.unit.otel_ml_service.why.asking import SLOW, asked
from tests.unit.otel_ml_service.why.jobs import job, numbered


def noisy(seed: int, level: float, since: int, by: float) -> list[float]:
    rng = np.random.default_rng(seed)
    return [level + 0.05 * rng.normal() + (by if step >= since else 0.0) for step in range(160)]


def test_a_metric_that_falls_when_a_rate_changes_coincided_and_is_never_caused() -> None:
    reward = noisy(1, 0.8, 100, -0.4)

    answer = asked(job(values=lambda step: {"reward": reward[step], "lr": 0.1 if step < 101 else 0.5}), metric="reward")

    assert (answer.verdict, answer.first) == ("coincided", 100)
    assert answer.sentences[0].startswith("reward fell at step 100 from 0.8")
    assert "lr went from 0.1 to 0.5 at step 101" in answer.sentences[1]
    assert answer.effect == pytest.approx(-0.4, abs=0.05)


def test_a_metric_that_falls_alone_cannot_be_told() -> None:
    reward = noisy(1, 0.8, 100, -0.4)

    answer = asked(job(values=lambda step: {"reward": reward[step]}), metric="reward", steps=(130, 130))

    assert (answer.verdict, answer.first) == ("cannot tell", 100)
    assert "log what may" in answer.sentences[1]


def test_another_role_is_met_in_time() -> None:
    reward = noisy(1, 0.8, 100, -0.4)
    rows = job(values=lambda step: {"reward": reward[step]})
    times = {row.step: row.time for row in rows if isinstance(row, StepRecord)}
    rollouts = [
        StepRecord(0, "generator", "rollout", number, 0, times[2 * number] + 0.001, {
            "generator/rollout/version": 390.0 if number >= 50 else 410.0
        })
        for number in range(80)
    ]  # fmt: skip

    answer = asked(numbered([*rows, *rollouts]), metric="reward")

    assert answer.verdict == "coincided"
    assert "generator/rollout/version went from 410 to 390 at rollout 50 (beside step 101)" in answer.sentences[1]


def test_a_device_that_is_measured_by_the_clock_is_met_in_time() -> None:
    rows = job(slow=SLOW, extra_s=0.4)
    begin, end = (
        next(row.time for row in rows if isinstance(row, StepRecord) and row.step == step) for step in (80, 119)
    )
    clocks = [
        StepRecord(0, "trainer", "time", second, 0, 1000.0 + second * 0.05, {
            "hw.gpu.clock": 700.0 if begin - 0.4 <= 1000.0 + second * 0.05 <= end else 1980.0
        })
        for second in range(420)
    ]  # fmt: skip

    answer = asked(numbered([*rows, *clocks]))

    assert answer.verdict == "coincided"
    assert "hw.gpu.clock went from 1,980 MHz to 700 MHz" in answer.sentences[1]


def test_a_metric_that_is_no_longer_a_number_is_told_with_its_step() -> None:
    answer = asked(job(values=lambda step: {"loss": 1.0 / (step + 1) if step < 70 else math.nan}))

    assert answer.about == "loss"
    assert answer.sentences[0] == "loss became nan at step 70; the step before had 0.01429."
    assert answer.sentences[2].startswith("Norms of gradients and activations")


def test_of_a_random_walk_nothing_is_told() -> None:
    walk = np.cumsum(np.random.default_rng(5).normal(size=160)).tolist()

    answer = asked(job(values=lambda step: {"walk": walk[step]}), metric="walk")

    assert answer.verdict == "cannot tell"
    assert "follow one another" in answer.sentences[1]


def test_a_short_metric_says_how_many_values_it_takes() -> None:
    answer = asked(job(steps=20, values=lambda step: {"reward": float(step > 10)}), metric="reward")

    assert "takes 44 values to be told from noise, and it has 20" in answer.sentences[1]


def test_a_metric_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'reward'"):
        asked(job(values=lambda step: {"reward": 1.0}), metric="rewrad")
    with pytest.raises(ConfigError, match=r"no steps of axis 'rollout'\. It has: axis 'step' of role 'trainer'"):
        asked(job(), steps=(1, 2), axis="rollout")


def test_a_metric_that_falls_and_recovers_is_asked_about_for_its_fall() -> None:
    noise = np.random.default_rng(5).normal(scale=0.02, size=240)

    def reward(step: int) -> dict[str, float]:
        return {"reward": (0.5 if 80 <= step < 140 else 1.3 if step >= 140 else 1.0) + noise[step]}

    answer = asked(job(steps=240, values=reward), "reward")

    assert answer.first == 80, "and not for the way back, which is larger"
    assert answer.sentences[0].startswith("reward fell at step 80")


def test_a_metric_that_is_not_a_number_now_and_then_is_not_said_to_stay_so() -> None:
    answer = asked(job(values=lambda step: {"loss": math.nan if step in {70, 90} else 1.0}), metric="loss")

    assert answer.sentences[0] == (
        "loss was nan at step 70, and not finite in 2 of 160 steps; the step before had 1, the one after it 1."
    )
    assert answer.look_at[0].text == "the first one that is not finite"


def test_a_metric_that_never_was_a_number_is_said_to_be_none() -> None:
    answer = asked(job(values=lambda step: {"loss": math.nan}), metric="loss")

    assert answer.sentences == (
        "loss is not finite in any of steps 0-159: its last value is nan.",
        "Cannot tell: there is no finite value to compare with.",
        "Norms of gradients and activations (`otel_ml.diagnostics.dynamics`) tell which layer was no longer finite "
        "first.",
    )


def test_of_several_metrics_that_are_no_longer_numbers_the_first_one_is_told() -> None:
    answer = asked(
        job(
            values=lambda step: {
                "a_norm": math.inf if step >= 60 else 1.0,
                "loss": math.nan if step >= 70 else 1.0,
                "score": math.nan if step == 20 else 1.0,
            }
        )
    )

    assert answer.about == "a_norm"


def test_what_somebody_set_is_not_the_metric_that_a_question_about_nothing_in_particular_is_about() -> None:
    loss = noisy(1, 2.0, 100, 1.0)

    answer = asked(job(values=lambda step: {"loss": loss[step], "lr": 0.1 if step < 60 else 0.5}, is_timed=False))

    assert (answer.about, answer.first) == ("loss", 100)


def test_a_metric_that_did_not_vary_before_has_no_number_of_scatters() -> None:
    answer = asked(job(values=lambda step: {"lr": 0.1 if step < 60 else 0.5}), metric="lr")

    assert answer.sentences[0] == "lr rose at step 60 from 0.1 to 0.5 (+0.4; it did not vary before)."


RANKS_TOLD = [
    ({"rank": 1.0, "ranks": 1.0}, ", on rank 1 alone"),
    ({"rank": 1.0, "ranks": 3.0}, ", on 3 ranks, of which rank 1 is the lowest"),
    ({"ranks": 4.0}, ", on all 4 ranks at once"),
]


@pytest.mark.parametrize(("of_ranks", "said"), RANKS_TOLD)
def test_on_which_ranks_a_metric_was_not_finite_first_is_told(of_ranks: dict[str, float], said: str) -> None:
    def values(step: int) -> dict[str, float]:
        own = {f"otel_ml/nonfinite_{name}/loss": value for name, value in of_ranks.items()}
        return {"loss": math.nan, **own} if step >= 70 else {"loss": 0.5}

    answer = asked(job(values=values))
    slow = asked(job(values=values), steps=(60, 80))

    assert answer.sentences[0] == f"loss became nan at step 70{said}; the step before had 0.5."
    assert f"loss became nan at step 70{said}" in [one.text for one in slow.evidence]


def test_where_the_run_does_not_keep_it_what_would_tell_the_rank_is_said() -> None:
    answer = asked(job(values=lambda step: {"loss": math.nan if step >= 70 else 0.5}))

    assert answer.sentences[2].endswith('Which rank was first is not known: record it with `reduce="rank"`, too.')
