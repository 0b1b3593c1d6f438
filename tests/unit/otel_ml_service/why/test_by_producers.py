"""A metric fell by the samples of one generator: caused where it would not have fallen without them, and only there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from otel_ml_exporters.records import Record, RunStatus, Span, SpanLink, StepRecord
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.jobs import numbered

STEPS, OLD = 160, range(100, 140)
GENERATORS = 3


def run_of(
    reward: Mapping[int, float], *, stale: Sequence[int] = (2,), is_split: bool = True, samples: int = 16
) -> list[Record]:
    """Return a job of generators with a reward of 0.8, in `OLD` that of `reward`; `stale` ones serve version 3 then."""
    rng = np.random.default_rng(3)
    rows: list[Record] = []
    for step in range(STEPS):
        values: dict[str, float] = {}
        means = []
        for rank in range(GENERATORS):
            is_old = step in OLD
            mean = (reward.get(rank, 0.8) if is_old else 0.8) + 0.01 * rng.normal()
            version = 3.0 if is_old and rank in stale else max(step - 1.0, 0.0)
            means.append(mean)
            values |= {
                f"consumed/samples/generator/{rank}": float(samples),
                f"consumed/version/generator/{rank}": version,
                f"consumed/staleness/generator/{rank}": step - version,
            }
            if is_split:
                values[f"reward/generator/{rank}"] = mean
        values["reward"] = sum(means) / GENERATORS
        rows.append(StepRecord(0, "trainer", "step", step, 0, 1000.0 + step, values))
        rows.append(StepRecord(0, "generator", "rollout", 2 * step, 0, 1000.0 + step, {"tokens": 100.0 + step % 3}))
    return numbered([*rows, RunStatus(0, 2000.0, "finished")])


def gradual(*, worse: float, seed: int = 5) -> list[Record]:
    """Return a job of which generator 2 has another reward from step 100 on, and more and more of the samples."""
    rng = np.random.default_rng(seed)
    rows: list[Record] = []
    for step in range(STEPS):
        samples = {0: 20.0, 1: 20.0, 2: float(4 + max(step - 100, 0))}
        means = {rank: 0.8 - (worse if rank == 2 and step >= 100 else 0.0) + 0.05 * rng.normal() for rank in samples}
        values = {f"consumed/samples/generator/{rank}": count for rank, count in samples.items()}
        values |= {f"reward/generator/{rank}": mean for rank, mean in means.items()}
        values["reward"] = sum(samples[rank] * means[rank] for rank in samples) / sum(samples.values())
        rows.append(StepRecord(0, "trainer", "step", step, 0, 1000.0 + step, values))
    return numbered([*rows, RunStatus(0, 2000.0, "finished")])


def pulls() -> Iterator[Span]:
    """Yield the pulls of generator 2: each takes 12 ms, the one at step 99 takes 9 s and brings version 3."""
    for step in range(60, 100):
        begin, long = int((1000 + step) * 1e9), step == 99
        link = SpanLink("aa", "bb", {"service.name": "trainer", "ml.rank": 0, "ml.version": 3 if long else step})
        length = 9_000_000_000 if long else 12_000_000
        yield Span(
            "cc", f"d{step}", None, "rl/sync/pull", begin - length, begin, "generator", 2, "rollout", 2 * step,
            links=(link,),
        )  # fmt: skip


def an_earlier_one() -> Span:
    """Return a pull of another version that took even longer."""
    link = SpanLink("aa", "bb", {"service.name": "trainer", "ml.rank": 0, "ml.version": 80})
    begin, end = int(1080 * 1e9), int(1095 * 1e9)
    return Span("cc", "long", None, "rl/sync/pull", begin, end, "generator", 2, "rollout", 161, links=(link,))


def asked(records: Sequence[Record], spans: Sequence[Span] = ()) -> Answer:
    facts = facts_of("run", records)
    facts.spans = lambda begin, end, *_: (span for span in spans if begin <= span.end_ns and span.start_ns <= end)
    return why(facts, Question("reward"))


@pytest.mark.feature(
    "F22", "better", "reward fell because a generator served an old version: caused, by counts of links"
)
def test_reward_that_fell_by_the_samples_of_one_generator_was_caused_by_it() -> None:
    answer = asked(run_of({2: 0.2}), [an_earlier_one(), *pulls()])

    assert (answer.verdict, answer.first) == ("caused", 100)
    assert answer.explained == pytest.approx(1.0, abs=0.05)
    assert answer.sentences[0].startswith("reward fell at step 100 from 0.8")
    assert "the samples of generator 2 had 0.1993 instead of 0.8021" in answer.sentences[1]
    assert "it served version 3 since step 100 and its rl/sync/pull took 9 s (usually 12 ms)" in answer.sentences[1]
    assert answer.sentences[2].startswith("Without its samples reward would be 0.8013; ")
    assert "look at rollout 198 (beside step 99)" in answer.sentences[2]
    evidence = "\n".join(one.text for one in answer.evidence)
    assert "steps 100-139 consumed 640 samples that are linked to generator 2" in evidence
    assert "generator 2 took version 3 at rollout 198 (beside step 99): rl/sync/pull, 9 s (usually 12 ms)" in evidence


def test_without_its_spans_the_generator_is_named_all_the_same() -> None:
    answer = asked(run_of({2: 0.2}))

    assert answer.verdict == "caused"
    assert ": it served version 3 since step 100; " in answer.sentences[1]


def test_reward_that_falls_by_and_by_is_caused_by_the_generator_whose_samples_changed_at_once() -> None:
    answer = asked(gradual(worse=0.6))

    assert (answer.verdict, answer.first) == ("caused", 100)
    assert answer.sentences[0].startswith("reward fell by and by from step 100 on: it had 0.79")
    assert answer.sentences[1].startswith("Caused: the samples of generator 2 had 0.2")


@pytest.mark.parametrize("seed", range(5))
def test_reward_that_only_wobbles_has_no_change_although_its_samples_are_counted(seed: int) -> None:
    answer = asked(gradual(worse=0.0, seed=seed))

    assert answer.verdict == "cannot tell"


@pytest.mark.parametrize("reward", [1.7e308, -1.7e308, float("inf"), float("nan")])
def test_whatever_a_generator_gives_there_is_an_answer(reward: float) -> None:
    assert asked(run_of({2: reward})).sentences[0]
    assert asked(run_of(dict.fromkeys(range(GENERATORS), reward))).sentences[0]


def test_samples_whose_contexts_name_nobody_are_said_to_be_that() -> None:
    rows = [
        StepRecord(0, "trainer", "step", step, 0, 1000.0 + step, {
            "consumed/samples": 8.0, "reward": 1.0 + 0.1 * (step % 5) - 0.8 * (step >= 50),
        })
        for step in range(90)
    ]  # fmt: skip

    answer = asked(numbered([*rows, RunStatus(0, 2000.0, "finished")]))

    assert "none of their contexts names who made it" in answer.sentences[2]


def test_reward_that_fell_in_all_samples_is_the_fault_of_no_generator() -> None:
    answer = asked(run_of(dict.fromkeys(range(GENERATORS), 0.5)))

    assert answer.verdict != "caused"
    assert "It is by the samples of no one producer" in answer.sentences[2]


def test_a_generator_that_makes_less_than_80_percent_of_the_fall_is_not_accused() -> None:
    answer = asked(run_of({0: 0.7, 1: 0.7, 2: 0.2}))

    assert answer.verdict != "caused"
    assert (
        "% of it goes with the samples of generator 2, not all: without these reward would be 0.7"
        in answer.sentences[2]
    )
    assert 0.5 < answer.explained < 0.8


def test_a_stale_generator_whose_samples_are_as_good_as_others_is_not_accused() -> None:
    answer = asked(run_of({0: 0.2}, stale=[2]))

    assert answer.verdict == "caused"
    assert "the samples of generator 0 had 0.202 instead of 0.8035" in answer.sentences[1]
    assert "generator 2" not in answer.sentences[1]
    assert "served" not in answer.sentences[1]


def test_without_the_metric_of_each_producer_it_coincided_and_what_is_needed_is_said() -> None:
    answer = asked(run_of({2: 0.2}, is_split=False))

    assert answer.verdict == "coincided"
    assert "record reward for each producer, too, with `rl.batch_reward(…, contexts=…)`" in answer.sentences[2]


def test_values_that_are_no_parts_of_the_metric_prove_nothing() -> None:
    rows = run_of({2: 0.2})
    other = [
        StepRecord(
            row.seq, row.role, row.axis, row.step, 0, row.time, {**row.values, "reward": 5.0 - (row.step in OLD)}
        )
        if isinstance(row, StepRecord) and row.axis == "step"
        else row
        for row in rows
    ]

    answer = asked(other)

    assert answer.verdict != "caused"
    assert "The values of its producers do not make up reward" in answer.sentences[2]


def test_two_generators_that_served_an_old_version_together_caused_it_together() -> None:
    rows = [
        StepRecord(row.seq, row.role, row.axis, row.step, 0, row.time, {**row.values, **_fourth(row)})
        if isinstance(row, StepRecord) and row.axis == "step"
        else row
        for row in run_of({1: 0.2, 2: 0.2}, stale=[1, 2])
    ]

    answer = asked(rows)

    assert answer.verdict == "caused"
    assert "generator 1" in answer.sentences[1]
    assert "generator 2" in answer.sentences[1]
    assert "generator 0" not in answer.sentences[1]
    assert "goes with their samples" in answer.sentences[1]


def _fourth(row: StepRecord) -> dict[str, float]:
    """Return what a fourth generator adds, which is never stale."""
    values = {"samples": 16.0, "version": row.step - 1.0, "staleness": 1.0}
    mean = (3 * row.values["reward"] + 0.8) / 4
    return {**{f"consumed/{name}/generator/3": value for name, value in values.items()}, "reward/generator/3": 0.8,
            "reward": mean}  # fmt: skip


def of_a_mix(*, before: Mapping[int, float], after: Mapping[int, float]) -> list[Record]:
    """Return a job whose generators make samples of 1 and of 0.3 all the time, and give others shares from step 100."""
    rng = np.random.default_rng(3)
    rows: list[Record] = []
    for step in range(STEPS):
        samples = after if step >= 100 else before
        means = {rank: (0.3 if rank else 1.0) + 0.01 * rng.normal() for rank in samples}
        values = {f"consumed/samples/generator/{rank}": count for rank, count in samples.items()}
        values |= {f"reward/generator/{rank}": mean for rank, mean in means.items()}
        values["reward"] = sum(samples[rank] * means[rank] for rank in samples) / sum(samples.values())
        rows.append(StepRecord(0, "trainer", "step", step, 0, 1000.0 + step, values))
    return numbered([*rows, RunStatus(0, 2000.0, "finished")])


def test_where_only_the_mix_of_producers_changed_nobody_is_said_to_have_made_worse_samples() -> None:
    answer = asked(of_a_mix(before={0: 4.0, 1: 4.0}, after={0: 1.0, 1: 7.0}))

    assert answer.verdict == "caused"
    assert "88% of the samples are of generator 1 instead of 50%" in answer.sentences[1]
    assert "12% of the samples are of generator 0 instead of 50%" in answer.sentences[1]
    assert "had 0." not in answer.sentences[1]
    assert answer.sentences[2].startswith("With the former shares reward would be 0.65")
    assert answer.explained == pytest.approx(1.0, abs=0.05)


def test_without_a_metric_it_is_about_the_one_that_producers_have_parts_of_and_not_about_a_part() -> None:
    answer = why(facts_of("run", run_of({2: 0.2})), Question())

    assert (answer.about, answer.verdict) == ("reward", "caused")


def test_a_generator_of_whose_versions_nothing_is_known_is_named_all_the_same() -> None:
    rows = [
        replace(row, values={name: value for name, value in row.values.items() if "version" not in name})
        for row in run_of({2: 0.2})
        if isinstance(row, StepRecord)
    ]

    answer = asked(numbered(rows))

    assert answer.verdict == "caused"
    assert "the samples of generator 2 had 0.1993 instead of 0.8021" in answer.sentences[1]
