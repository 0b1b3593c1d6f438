"""Roles meet on time: a rollout stands beside the trainer step it was done in; a metric by version and by task."""

from __future__ import annotations

import json

import pytest

from otel_ml_exporters.records import StepRecord
from otel_ml_service.report.axes import beside
from otel_ml_service.report.by_version import by_version_and_task
from otel_ml_service.report.contents import Contents, contents
from otel_ml_service.report.page import page
from tests.unit.otel_ml_service.report.job_of_roles import job_of_two_roles
from tests.unit.otel_ml_service.report.test_page import Reader


@pytest.fixture(scope="module")
def run() -> Contents:
    return contents("run", "pages", job_of_two_roles())


@pytest.fixture(scope="module")
def read(run: Contents) -> Reader:
    return Reader(page([run]))


def test_a_rollout_stands_beside_the_trainer_step_that_it_was_done_in(run: Contents) -> None:
    assert beside(run, "generator", "rollout", 60) == "beside step 31"
    assert beside(run, "generator", "rollout", 1000) == ""
    assert beside(run, "trainer", "step", 31) == ""


def test_a_finding_of_another_axis_says_beside_which_step_it_began(read: Reader) -> None:
    assert "Rank 1 of generator was slow in generate, rollouts 60–69 (beside step 31): +200 ms a step" in "".join(
        read.texts
    )


def test_the_page_has_the_times_of_all_roles_the_trainers_first(read: Reader) -> None:
    [found] = [json.loads(value) for _, has in read.elements if (value := has.get("data-times")) is not None]

    assert [(place["role"], place["axis"], place["prefix"]) for place in found] == [
        ("trainer", "step", ""), ("generator", "rollout", "generator/rollout/"),
    ]  # fmt: skip
    assert found[0]["points"][:2] == [[0, 0.0], [1, 2.0]]
    assert found[1]["points"][0] == [0, 0.5]


def test_a_run_of_one_axis_has_no_other_to_meet() -> None:
    read = Reader(
        page([contents("run", "pages", [row for row in job_of_two_roles() if getattr(row, "axis", "") == "step"])])
    )

    assert [has for _, has in read.elements if "data-times" in has] == []


@pytest.mark.feature("N21", "better", "a table for each role, with its own shares, which add up to its step")
def test_each_role_has_its_own_shares_of_time(read: Reader) -> None:
    timing = read.text.partition("Where the time goes")[2]

    assert [line for line in timing.splitlines() if line in {"trainer", "generator, rollout"}] == [
        "trainer", "generator, rollout",
    ]  # fmt: skip
    assert "100 %" in timing


def test_a_metric_is_drawn_by_the_version_of_its_samples_and_by_task(read: Reader) -> None:
    charts = [json.loads(value) for _, has in read.elements if (value := has.get("data-curves")) is not None]
    [by_version] = [one for one in charts if one["axis"] == "policy_version"]
    [by_task] = [one for one in charts if {line["name"] for line in one["lines"]} == {"code", "math"}]

    points = dict(map(tuple, by_version["lines"][0]["points"]))
    assert points[3] == pytest.approx(0.03)
    assert points[57] == pytest.approx(0.57)
    assert set(points) == set(range(59))
    assert by_task["lines"][0]["points"][0] == [0, 0.3]
    assert "reward by version" in read.text


def by_version_of(*names: str) -> str:
    rows = [
        StepRecord(step + 1, "trainer", "step", step, 0, 1.0 + step, {name: float(step) for name in names})
        for step in range(4)
    ]
    return by_version_and_task(contents("run", "pages", rows))


@pytest.mark.parametrize(
    ("names", "titles"),
    [
        (["reward", "reward/environment/math", "reward/environment/code"], ["reward by task"]),
        (["reward", "reward/environment/math"], []),
        (["consumed/version/generator/0", "reward", "reward/generator/0"], ["reward by version"]),
        (["consumed/version/generator/0", "reward/generator/0"], []),
        (["consumed/version/generator/max", "reward", "reward/generator/max"], []),
        (["reward", "reward/generator/0"], []),
        (["reward"], []),
    ],
)
def test_a_chart_by_version_or_by_task_is_there_where_there_are_several(names: list[str], titles: list[str]) -> None:
    drawn = by_version_of(*names)

    assert [text for text in Reader(drawn).texts if text.startswith("reward by ")] == titles
    assert ("By version: the mean of the samples" in drawn) is (titles == ["reward by version"])
    assert bool(drawn) is bool(titles)


@pytest.mark.parametrize(
    ("time", "told"), [(9.9, ""), (10.0, "beside step 0"), (10.1, "beside step 1"), (20.0, "beside step 1"), (20.1, "")]
)
def test_a_step_of_another_axis_is_beside_the_one_that_was_being_done(time: float, told: str) -> None:
    rows = [StepRecord(at + 1, "trainer", "step", at, 0, 10.0 + 10.0 * at, {"loss": 1.0}) for at in range(2)]

    run = contents("run", "pages", [*rows, StepRecord(9, "generator", "rollout", 7, 0, time, {"generator/x": 1.0})])

    assert beside(run, "generator", "rollout", 7) == told
    assert beside(run, "generator", "rollout", 8) == ""
    assert beside(run, "generator", "step", 7) == ""


def test_where_there_is_no_trainer_nothing_is_beside_it() -> None:
    run = contents("run", "pages", [StepRecord(9, "generator", "rollout", 7, 0, 1.0, {"generator/x": 1.0})])

    assert beside(run, "generator", "rollout", 7) == ""
