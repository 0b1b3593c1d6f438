"""Two runs side by side: what differs, by how much, and what made one slower."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from otel_ml_exporters.records import Artifact, Params, Record
from otel_ml_service.why.comparison import Comparison, compared
from otel_ml_service.why.facts import facts_of
from otel_ml_service.why.interval import of_differences, of_means
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import in_a_terminal, otel_ml
from tests.unit.otel_ml_service.why.jobs import finding, job, numbered

PLAIN = job()
SLOWER = job(slow=range(160), extra_s=0.004)


def of(a: list[Record], b: list[Record]) -> Comparison:
    return compared(facts_of("a", a), facts_of("b", b))


def with_param(records: list[Record], **params: float) -> list[Record]:
    return numbered([Params(0, 1000.0, params), *records])


def test_a_slow_rank_of_one_run_made_it_slower_whichever_comes_first() -> None:
    accused = job(slow=range(160), extra_s=0.004, findings=[finding(since=0, until=159, extra_s=0.0039)])

    for found, slow in ((of(PLAIN, accused), "B"), (of(accused, PLAIN), "A")):
        assert found.verdict == "caused"
        assert f"Caused in {slow}: rank 2 was slow in forward" in found.sentences[1]
    assert of(PLAIN, accused).sentences[0].startswith("B is slower: a step takes 16 ms in B and 12 ms in A (+4 ms")
    assert of(accused, PLAIN).sentences[0].startswith("B is faster")


def test_a_rank_that_is_as_slow_in_both_runs_made_neither_slower() -> None:
    both = [finding(since=0, until=159, extra_s=0.0039)]

    found = of(job(findings=both), job(slow=range(160), extra_s=0.004, findings=both))

    assert found.verdict == "cannot tell"


def test_another_parameter_coincides_and_no_more() -> None:
    found = of(with_param(PLAIN, seq_len=1024), with_param(SLOWER, seq_len=2048))

    assert found.verdict == "coincided"
    assert [(one.name, one.a, one.b) for one in found.params] == [("seq_len", "1024", "2048")]
    assert "Coincided: seq_len differs; forward takes 4 ms more, and nothing shows" in found.sentences[1]
    both = of(with_param(PLAIN, seq_len=1024, hidden=1), with_param(SLOWER, seq_len=2048, hidden=2))
    assert "hidden and seq_len differ; " in both.sentences[1]


def test_without_any_difference_but_time_it_cannot_be_told() -> None:
    assert of(PLAIN, SLOWER).verdict == "cannot tell"
    assert "the same as far as they were recorded" in of(PLAIN, SLOWER).sentences[1]


def test_a_run_is_as_fast_as_itself() -> None:
    found = of(PLAIN, PLAIN)

    assert (found.params, found.code, found.verdict) == ((), (), "cannot tell")
    assert not any(one.is_sure for one in found.phases)


def test_phases_add_up_to_the_step_and_one_that_a_run_does_not_have_is_no_zero() -> None:
    more = job(values=lambda step: {"time/exposed/eval": 0.003, "time/exposed/eval/rank": 0.0})

    found = of(PLAIN, more)

    assert found.adds_up
    assert found.step is not None
    assert sum(one.by for one in found.phases) == pytest.approx(found.step.by, abs=1e-12)
    [new] = [one for one in found.phases if one.name == "eval"]
    assert (new.a, new.b) == (None, pytest.approx(0.003))


def test_metrics_are_compared_at_equal_steps_with_an_interval() -> None:
    noise = np.random.default_rng(1).normal(size=(2, 160)) * 0.05
    a = job(steps=160, values=lambda step: {"reward": 0.5 + noise[0, step], "tokens_per_second": 100.0 + step})
    b = job(steps=120, values=lambda step: {"reward": 0.7 + noise[1, step], "tokens_per_second": 100.0 + step})

    found = of(a, b)

    [reward] = found.metrics
    assert (reward.first, reward.last, reward.steps) == (56, 119, 64)  # as far as both are
    assert reward.low is not None
    assert reward.high is not None
    assert reward.low < 0.2 < reward.high
    assert reward.high - reward.low < 0.1
    assert [one.name for one in found.throughput] == ["tokens_per_second"]
    assert "reward (0.4" in found.sentences[2]


def test_commit_and_packages_are_compared(tmp_path: Path) -> None:
    def with_code(records: list[Record], commit: str, torch: str) -> list[Record]:
        packages = tmp_path / f"{torch}.txt"
        packages.write_text(f"numpy==2.0\ntorch=={torch}\n")
        code = Artifact(0, 1000.0, "code", "code", "packages.txt", packages, "", 10, None)
        return numbered([Params(0, 1000.0, {"otel_ml": {"git": {"commit": commit}}}), code, *records])

    found = of(with_code(PLAIN, "abc", "2.6"), with_code(SLOWER, "def", "2.7"))

    assert [(one.name, one.a, one.b) for one in found.code] == [("git.commit", "abc", "def")]
    assert [(one.name, one.a, one.b) for one in found.packages] == [("torch", "2.6", "2.7")]
    assert found.verdict == "coincided"


def test_runs_keep_their_names_where_there_are_too_few_steps() -> None:
    found = of(job(steps=1), PLAIN)

    assert found.sentences[0] == (
        "A step takes 12 ms in B and 12 ms in A; there are too few steps to say whether that is by chance."
    )


def test_one_metric_is_not_several() -> None:
    found = of(job(values=lambda step: {"loss": 0.5}), job(values=lambda step: {"loss": 0.5}))

    assert found.sentences[2] == "loss, the only metric of both at equal steps, is not sure to differ."


@pytest.mark.parametrize("since", [0, 40])
def test_a_metric_that_is_no_number_in_one_run_alone_is_told_first(since: int) -> None:
    broken = job(values=lambda step: {"loss": math.nan if step >= since else 0.5, "norm": 1.0})
    whole = job(values=lambda step: {"loss": 0.5, "norm": 1.0})

    for found, name in ((of(whole, broken), "B"), (of(broken, whole), "A")):
        where = "in all steps" if since == 0 else "from step 40 on"
        assert found.sentences[2].startswith(f"loss is nan in {name} {where}, and finite in the other run. ")


def test_a_run_beside_itself_is_said_to_be_the_same_run() -> None:
    facts = facts_of("a", PLAIN)

    assert compared(facts, facts).sentences[0].startswith("A and B are the same run: a step takes 12 ms.")


@pytest.mark.parametrize("records", [[], job(steps=1), job(steps=3, is_timed=False)])
def test_a_run_without_steps_can_be_compared_with_another(records: list[Record]) -> None:
    for found in (of(records, PLAIN), of(PLAIN, records), of(records, records)):
        assert found.verdict == "cannot tell"
        assert all(found.sentences)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_intervals_hold_what_is_so_in_nine_of_ten_cases(correlation: float) -> None:
    rng, holds = np.random.default_rng(2), 0
    for _ in range(200):
        values = rng.normal(size=(2, 320))
        for at in range(1, 320):
            values[:, at] += correlation * values[:, at - 1]
        by, low, high = of_means(values[0].tolist(), (values[1] + 0.3).tolist())
        paired = of_differences((values[1] - values[0] + 0.3).tolist())
        assert low is not None
        assert high is not None
        assert low <= by <= high
        assert paired.low is not None
        assert paired.high is not None
        holds += (low <= 0.3 <= high) + (paired.low <= 0.3 <= paired.high)

    assert 0.9 <= holds / 400 <= 0.99


def test_the_interval_of_two_means_is_welchs_of_blocks_of_steps() -> None:
    """Quantiles of Student's t for 30 and 18.29 degrees of freedom, from tables: 2.0423 and 2.0985."""
    a = [float(number % 2) for number in range(16) for _ in range(4)]

    alike = of_means(a, [value + 10 for value in a])
    wider = of_means(a, [3 * value for value in a])

    error = math.sqrt(2 * (4 / 15) / 16)
    assert alike.low == pytest.approx(10 - 2.0423 * error, rel=1e-4)
    assert alike.high == pytest.approx(10 + 2.0423 * error, rel=1e-4)
    # Variances of 1 and 9 in units of the first: (1 + 9)² / (1 + 81) × 15 = 18.29 degrees of freedom, t = 2.0985.
    assert wider.high == pytest.approx(1 + 2.0985 * math.sqrt(10 * (4 / 15) / 16), rel=1e-3)


def test_diff_prints_sentences_then_tables_and_json_has_all(tmp_path: Path) -> None:
    write_run(tmp_path, "01a", with_param(PLAIN, seq_len=1024))
    write_run(tmp_path, "02b", with_param(SLOWER, seq_len=2048))

    done = otel_ml(tmp_path, "diff", "01a", "02b")
    plain = json.loads(otel_ml(tmp_path, "diff", "01a", "02b", "--json").stdout)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("B is slower: a step takes 16 ms in B and 12 ms in A (+4 ms, 95 % between")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert plain["verdict"] == "coincided"
    assert plain["step"]["low"] < 0.004 < plain["step"]["high"]


def test_a_rank_that_is_slow_for_a_while_made_the_run_slower_though_most_steps_are_as_fast() -> None:
    a_while = job(slow=range(80, 120), extra_s=0.015, findings=[finding(since=80, until=119, extra_s=0.015)])

    found = of(PLAIN, a_while)

    assert found.verdict == "caused"
    assert found.step is not None
    assert found.step.by == pytest.approx(0.015 / 4, rel=0.05)
    assert found.sentences[0].startswith("B is slower")


def test_runs_are_called_by_their_names_and_findings_are_of_a_or_b(tmp_path: Path) -> None:
    accused = job(slow=range(160), extra_s=0.004, findings=[finding(since=0, until=159, extra_s=0.0039)])
    for run, records in (("01M8GQFF4BTTFDT7ZRA6P8PBJV", PLAIN), ("other", accused)):
        write_run(tmp_path, run, records)

    said = otel_ml(tmp_path, "diff", "01M8GQFF4BTTFDT7ZRA6P8PBJV", "other").stdout

    assert "A is proud-harbor-941 (01M8GQFF4BTTFDT7ZRA6P8PBJV),\nB is other\n" in said
    assert "- B: rank 2 was slow in forward" in said


def test_of_long_texts_the_part_that_differs_is_shown(tmp_path: Path) -> None:
    common = "python -m torch.distributed.run --nproc-per-node 8 train.py --data /mnt/data"
    for run, more in (("one", " --lr 0.1 --layers 24 --hidden 4096"), ("two", " --lr 0.2 --layers 24 --hidden 4096")):
        params = Params(0, 1000.0, {"otel_ml": {"command": common + more}})
        write_run(tmp_path, run, numbered([params, *PLAIN]))

    _, said = in_a_terminal(tmp_path, "diff", "one", "two", columns=80, NO_COLOR="1")
    [row] = [line for line in said.splitlines() if "command" in line[:8]]

    assert "--lr 0.1" in row
    assert "--lr 0.2" in row
    assert len(row) <= 80
