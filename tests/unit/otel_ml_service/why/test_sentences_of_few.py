"""Sentences about none, one and two of something read as a person would write them."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import JsonValue, Table
from otel_ml_service.cli.time_account import finding_lines
from otel_ml_service.why.comparison import compared
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.asking import asked, texts
from tests.unit.otel_ml_service.why.jobs import Values, job
from tests.unit.otel_ml_service.why.test_without import asked as without
from tests.unit.otel_ml_service.why.test_without import data_parallel


def metrics(first: float, **others: float) -> Values:
    return lambda step: {
        "loss": first + 0.001 * (step % 3),
        **{name: value + 0.001 * (step % 3) for name, value in others.items()},
    }


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ({}, {}, "The runs share no metric at any step."),
        (metrics(0.5), metrics(0.5), "loss, the only metric of both at equal steps, is not sure to differ."),
        (metrics(0.5, kl=1.0), metrics(0.5, kl=1.0), "Neither of 2 metrics at equal steps is sure to differ."),
        (metrics(0.5, kl=1.0, lr=2.0), metrics(0.5, kl=1.0, lr=2.0), "Of 3 metrics at equal steps none is sure to"),
        (metrics(0.5), metrics(0.7), "At equal steps the only metric of both differs: loss (0.5"),
        (metrics(0.5, kl=1.0), metrics(0.7, kl=1.0), "At equal steps 1 of 2 metrics differs: loss (0.5"),
        (metrics(0.5, kl=1.0), metrics(0.7, kl=2.0), "At equal steps 2 of 2 metrics differ: kl (1"),
    ],
)
def test_of_metrics_of_two_runs(a: Values | dict[str, float], b: Values | dict[str, float], said: str) -> None:
    runs = [facts_of(name, job(values=of) if callable(of) else job()) for name, of in (("a", a), ("b", b))]

    assert compared(*runs).sentences[2].startswith(said)


@pytest.mark.parametrize(
    ("ranks", "phase", "steps", "said"),
    [
        (
            "2",
            "forward",
            range(3, 4),
            "Without rank 2 in forward, step 3 would take 11 ms instead of 26 ms: 15 ms shorter.",
        ),
        ("2", "forward", range(3, 5), "Without rank 2 in forward, steps 3-4 would take 11 ms each instead of 26 ms: "),
        ("8-9", "forward", range(3, 5), "Cannot tell: ranks 8 and 9 in forward have no spans in steps 3-4. "),
        (
            "2",
            "nosuch",
            range(3, 4),
            "Cannot tell: there is no timer 'nosuch' in step 3. Timers there: all_reduce and ",
        ),
        (
            "2",
            "nosuch",
            range(3, 5),
            "Cannot tell: there is no timer 'nosuch' in steps 3-4. Timers there: all_reduce",
        ),
    ],
)
def test_of_steps_without_something(ranks: str, phase: str, steps: range, said: str) -> None:
    found = without(f"rank={ranks},phase={phase}", data_parallel(steps, {2: 25.0}), steps=(steps[0], steps[-1]))

    assert found.sentence.startswith(said)


@pytest.mark.parametrize(
    ("values", "steps", "said"),
    [
        ({"kl": float("nan")}, (7, 7), "kl is not finite in step 7: its last value is nan."),
        ({"kl": float("nan")}, (7, 8), "kl is not finite in any of steps 7-8: its last value is nan."),
    ],
)
def test_of_a_metric_in_steps(values: dict[str, float], steps: tuple[int, int], said: str) -> None:
    assert asked(job(values=lambda step: values), metric="kl", steps=steps).sentences[0] == said


@pytest.mark.parametrize(("count", "said"), [(1, "it has 1"), (2, "it has 2")])
def test_of_values_that_are_too_few(count: int, said: str) -> None:
    answer = asked(job(values=lambda step: {"kl": 1.0} if step < count else {}), metric="kl")

    assert answer.sentences[1].endswith(f"values to be told from noise, and {said}.")


COLUMNS = ("level", "kind", "place", "phase", "since", "until", "times", "given", "amount")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("warning", "slow", "rank 2", "forward", 7, 7), "rank 2 slow in forward, step 7"),
        (("warning", "slow", "rank 2", "forward", 7, 8), "rank 2 slow in forward, steps 7-8"),
        (("warning", "slow", "rank 2", "untimed", 7, None), "rank 2 slow outside of its timers, since step 7"),
        (("warning", "pause", "rank 0", "untimed", 7, None, 3), "rank 0 pauses outside of its timers, 3 times"),
        (("warning", "load", "ranks 2, 5", "forward", 0, None, None, 1.4286, "tokens"), "ranks 2, 5 had 1.43 ×"),
    ],
)  # fmt: skip
def test_of_findings(row: tuple[JsonValue, ...], said: str) -> None:
    [line] = finding_lines(Table(1, 0.0, "otel_ml/findings", "step", 80, COLUMNS, (row,)))

    assert line.startswith(f"warning: {said}")


@pytest.mark.parametrize(("silent", "said"), [(5, "1 more has none in "), (6, "2 more have none in ")])
def test_of_ranks_that_are_missing(silent: int, said: str) -> None:
    rows = tuple(("critical", "silent", rank, "", 10, None, None, None, "") for rank in range(silent))
    columns = ("level", "kind", "rank", "phase", "since", "until", "times", "given", "amount")
    table = Table(0, 1000.0, "otel_ml/findings", "step", 159, columns, rows)

    assert f"{said}some of these steps" in texts(asked(job(more=[table], missing=frozenset(range(10, 160)))))
