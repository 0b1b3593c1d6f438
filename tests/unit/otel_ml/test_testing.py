from __future__ import annotations

import math

import pytest

import otel_ml
from otel_ml.testing import Capture, capture, otel_ml_capture

__all__ = ["otel_ml_capture"]


def test_values_at_each_step_are_captured(otel_ml_capture: Capture) -> None:
    for step in range(3):
        otel_ml.set_step(step)
        otel_ml.log({"loss": 3.0 - step})

    assert otel_ml_capture.values("loss") == [3.0, 2.0, 1.0]
    assert {point.reduction for point in otel_ml_capture.points} == {"mean"}


def test_fake_ranks_are_told_apart(otel_ml_capture: Capture) -> None:
    for rank in range(4):
        with otel_ml_capture.rank(rank):
            otel_ml.log({"reward": rank}, step=0)

    assert otel_ml_capture.values("reward") == [1.5]
    assert otel_ml_capture.values("reward", rank=3) == [3.0]


def test_values_and_means_are_weighted_as_the_run_shows_them(otel_ml_capture: Capture) -> None:
    for rank, loss, weight in ((0, 1.0, 3.0), (0, 4.0, 1.0), (1, 9.0, None)):
        with otel_ml_capture.rank(rank):
            otel_ml.log({"loss": loss}, step=0, reduce="mean", weight=weight)

    assert otel_ml_capture.values("loss", rank=0) == [1.75]
    assert otel_ml_capture.values("loss") == [(7.0 + 9.0) / (4.0 + 1.0)]
    assert [(point.mean, point.value, point.count) for point in otel_ml_capture.points] == [
        (1.75, 5.0, 2),
        (9.0, 9.0, 1),
    ]


def test_a_step_whose_weights_are_0_has_no_value(otel_ml_capture: Capture) -> None:
    otel_ml.log({"loss": 2.0}, step=0, weight=0.0)
    otel_ml.log({"loss": 3.0}, step=1, weight=2.0)
    otel_ml.log({"lr": 0.5}, step=0, weight=0.0, reduce="last")

    assert otel_ml_capture.values("loss") == [3.0]
    assert otel_ml_capture.values("lr") == [0.5]
    assert math.isnan(otel_ml_capture.points[0].mean)


def test_events_timers_and_notices_are_captured(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(2)
    with otel_ml.timed("forward"):
        otel_ml.log_text("sample", "hello")
    otel_ml.log({"bad": object()})

    (text,) = [event for event in otel_ml_capture.events if event.kind == "ml.text"]
    assert (text.name, text.step, text.body) == ("sample", 2, "hello")
    assert [point.name for point in otel_ml_capture.points] == ["time/forward"]
    assert len(otel_ml_capture.spans) == 1
    assert "'bad'" in otel_ml_capture.notices[0]


@pytest.mark.parametrize(
    ("reduce", "values"),
    [("sum", [6.0]), ("last", [2.0]), ("first", [3.0]), (("first", "last"), [3.0, 2.0])],
)
def test_in_how_many_parts_it_was_sent_cannot_be_seen(
    otel_ml_capture: Capture, reduce: str | tuple[str, ...], values: list[float]
) -> None:
    for value in (3.0, 1.0, 2.0):
        otel_ml.log({"x": value}, step=0, reduce=reduce)
        assert otel_ml_capture.points

    assert [point.value for point in otel_ml_capture.points] == values
    assert {(point.min, point.max) for point in otel_ml_capture.points if reduce == "sum"} <= {(1.0, 3.0)}


def test_two_captures_know_nothing_of_each_other() -> None:
    with capture() as first:
        otel_ml.log({"x": 1}, step=0)
        assert first.values("x") == [1.0]
    with capture() as second:
        otel_ml.log({"x": 2}, step=0)
        assert second.values("x") == [2.0]


def test_what_a_module_defined_when_it_was_imported_is_known_in_every_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    from otel_ml._internal.series.definition import DEFINITIONS

    monkeypatch.setattr(DEFINITIONS, "declared", [])
    otel_ml.define_metric("tokens*", reduce="sum")
    found = []
    for _ in range(2):
        with capture() as captured:
            otel_ml.log({"tokens_seen": 5}, step=0)
            found += [point.reduction for point in captured.points]
    assert found == ["sum", "sum"]


def test_a_metric_that_a_module_made_is_reduced_alike_in_every_capture() -> None:
    tokens = otel_ml.get_meter("module").create_counter("tokens")
    found = []
    for kind in ("text", "image"):
        with capture() as captured:
            otel_ml.set_step(0)
            tokens.add(1, {"kind": kind})
            found += [point.reduction for point in captured.points]

    assert found == ["sum", "sum"]


def test_how_a_run_before_it_reduced_a_name_is_not_known_in_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")
    with otel_ml.init("before"):
        otel_ml.log({"loss": 0.5}, step=0, reduce="max")

    with capture() as captured:
        otel_ml.log({"loss": 0.5}, step=0, reduce="sum")
        assert [point.reduction for point in captured.points] == ["sum"]


def test_a_capture_inside_a_run_is_refused() -> None:
    with capture(), pytest.raises(otel_ml.OtelMLError, match="shutdown"), capture():
        pass
