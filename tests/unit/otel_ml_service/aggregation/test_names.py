"""How a run's metrics are called: as they were written on the ranks."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import StepRecord, Summary, Text
from tests.strategies import Rank, Service

WRITTEN = ["training loss", "损失/训练", "mfu(%)", "mAP@[0.5:0.95]", "prep", "prep/weights", " x ", "../up", "n" * 600]


def published(service: Service) -> dict[str, float]:
    rows = [record.values for record in service.records if isinstance(record, StepRecord) and record.axis == "step"]
    return {name: value for row in rows for name, value in row.items() if "otel_ml/" not in name}


def test_a_metric_is_published_as_it_was_written_and_nothing_is_said() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]

    service.take(*[rank.step(0, {name: float(rank.writer.rank) for name in WRITTEN}) for rank in ranks])

    assert published(service) == dict.fromkeys(WRITTEN, 0.5)
    assert service.notices == []


def test_further_reductions_ranks_and_attributes_are_appended_to_it() -> None:
    service, rank = Service(), Rank(0, world_size=1)

    service.take(
        rank.record(0, {"mfu (%)": [1.0, 3.0]}, "mean,max"),
        rank.record(0, {"wait [s]": 2.0}, "rank"),
        rank.record(0, {"solved": 1.0}, attributes=(("task", "数学 (easy)"),)),
        rank.done(0),
    )

    assert published(service) == {
        "mfu (%)": 2.0, "mfu (%)/max": 3.0, "wait [s]/rank_0": 2.0, "solved/task/数学 (easy)": 1.0,
    }  # fmt: skip


def test_a_metric_that_is_called_as_a_value_of_another_one_is_published_beside_it() -> None:
    service, rank = Service(), Rank(0, world_size=1)

    for step in range(2):
        service.take(
            rank.record(step, {"lat/max": 99.0, "gn/rank_0": 7.0, "f1/class/cat": 0.5}),
            rank.record(step, {"lat": [1.0, 3.0]}, "mean,max"),
            rank.record(step, {"gn": 1.0}, "rank"),
            rank.record(step, {"f1": 0.1}, attributes=(("class", "cat"),)),
            rank.done(step),
        )
    service.restart()
    service.take(rank.record(2, {"lat": [1.0, 3.0]}, "mean,max"), rank.record(2, {"lat/max": 99.0}), rank.done(2))

    assert published(service) == {
        "lat": 2.0, "lat/max": 3.0, "lat/max/mean": 99.0, "gn/rank_0": 1.0, "gn/rank_0/mean": 7.0,
        "f1/class/cat": 0.1, "f1/class/cat/mean": 0.5,
    }  # fmt: skip
    assert sum("otel-ml explain name-taken" in said for said in service.notices) == 3
    assert any("'lat/max': that is published as 'lat/max/mean'" in said for said in service.notices)


def test_two_series_of_a_metric_that_are_published_as_one_are_said_once() -> None:
    service, rank = Service(), Rank(0, world_size=1)

    for step in range(2):
        service.take(
            rank.record(step, {"k": 1.0}, attributes=(("a", "b/c/d"),)),
            rank.record(step, {"k": 5.0}, attributes=(("a", "b"), ("c", "d"))),
            rank.done(step),
        )

    assert published(service).keys() == {"k/a/b/c/d"}
    [said] = service.notices
    assert "'k/a/b/c/d'" in said
    assert "otel-ml explain name-taken" in said


def test_axes_that_publish_one_name_are_told_once_with_the_name() -> None:
    service, rank = Service(), Rank(0, world_size=1)

    for step in range(3):
        service.take(
            rank.record(step, {"eval/acc": 1.0, "eval/f1": 1.0}), rank.done(step),
            rank.record(step, {"acc": 2.0, "f1": 2.0}, axis="eval"), rank.done(step, axis="eval"),
        )  # fmt: skip

    [said] = service.notices
    assert "on axis 'step' of role 'trainer' and one on axis 'eval' of role 'trainer' are both published as" in said
    assert "'eval/acc'" in said
    assert "otel-ml explain name-taken" in said


def test_axes_with_names_of_their_own_are_not_told_of() -> None:
    service, rank = Service(), Rank(0, world_size=1)

    for step in range(3):
        service.take(
            rank.record(step, {"acc": 1.0}), rank.done(step),
            rank.record(step, {"acc": 2.0}, axis="eval"), rank.done(step, axis="eval"),
        )  # fmt: skip

    assert service.notices == []


@pytest.mark.parametrize(
    ("name", "wanted"), [("two\nlines\x1b[31m", "two\\nlines\\x1b[31m"), ("n" * 1001, "n" * 991 + "-")]
)
def test_what_cannot_be_published_as_it_is_is_said_once_for_all(name: str, wanted: str) -> None:
    service, rank = Service(), Rank(0, world_size=1)

    for step in range(3):
        service.take(rank.step(step, {name: 1.0, f"{name}, too": 2.0}))
    service.restart()
    service.take(rank.step(3, {f"{name}, new": 1.0}))
    service.take(rank.event("ml.text", "x", 3, name=name), rank.event("ml.summary", {name: 1.0}))

    assert len(published(service)) == 3
    assert any(shown.startswith(wanted) for shown in published(service))
    [said] = service.notices
    assert "otel-ml explain name-changed" in said
    assert "\n" not in said


def test_texts_and_final_values_are_called_as_they_were_written() -> None:
    service, rank = Service(), Rank(0, world_size=1)

    service.take(rank.event("ml.text", "x", 0, name="样本 (1)"), rank.event("ml.summary", {"acc [%]": 1.0}))

    assert [record.name for record in service.records if isinstance(record, Text)] == ["样本 (1)"]
    assert [dict(record.values) for record in service.records if isinstance(record, Summary)] == [{"acc [%]": 1.0}]
