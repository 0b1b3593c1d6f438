"""Where a span stands in the picture of the last steps."""

from __future__ import annotations

from otel_ml_exporters.records import Span
from otel_ml_service.report.timeline import timeline
from tests.unit.otel_ml_service.report.test_page import Reader

S = 10**9
BEGAN = 1_700_000_000 * S


def span(name: str, begin: int, end: int, rank: int = 0, step: int = 0, axis: str = "step") -> Span:
    return Span("0" * 32, "0" * 16, None, name, BEGAN + begin, BEGAN + end, "trainer", rank, axis, step)


def boxes(picture: str) -> list[tuple[str | None, ...]]:
    return [
        tuple(has[name] for name in ("x", "y", "width", "height", "class"))
        for tag, has in Reader(picture).elements
        if tag == "rect"
    ]


def test_a_timer_is_as_wide_as_it_is_long_and_stands_in_the_one_around_it() -> None:
    picture = timeline([span("step", 0, 10 * S), span("forward", 0, 4 * S), span("backward", 4 * S, 10 * S)])

    assert boxes(picture) == [
        ("110.0", "3", "790.0", "20", "c0"),
        ("110.0", "8", "316.0", "15", "c1"),
        ("426.0", "8", "474.0", "15", "c2"),
    ]
    read = Reader(picture)
    assert read.texts == [
        "trainer 0", "step: 10 s, step 0, rank 0", "forward: 4 s, step 0, rank 0", "backward: 6 s, step 0, rank 0",
        "10 s", "step", "forward", "backward",
    ]  # fmt: skip
    places = [(has["x"], has["y"]) for tag, has in read.elements if tag == "text"]
    assert places == [("104", "17"), ("900", "41")]
    [frame] = [has["viewbox"] for tag, has in read.elements if tag == "svg"]
    assert frame == "0 0 900 44"


def test_a_row_is_a_worker_and_what_is_deep_stays_in_it() -> None:
    nested = [span(f"t{depth}", depth * S, (20 - depth) * S, rank=1) for depth in range(6)]

    found = boxes(timeline([span("step", 0, 20 * S, rank=0), *nested]))

    assert [place[1] for place in found] == ["3", "29", "34", "39", "44", "44", "44"]
    assert [place[3] for place in found] == ["20", "20", "15", "10", "5", "5", "5"]


def test_the_last_four_steps_that_most_workers_were_in_are_drawn() -> None:
    spans = [span("step", step * S, (step + 1) * S, rank, step) for step in range(7) for rank in range(2)]

    picture = timeline([one for one in spans if (one.rank, one.step) != (1, 6)])

    said = [text for text in Reader(picture).texts if text.startswith("step: ")]
    assert said == [f"step: 1 s, step {step}, rank {rank}" for rank in range(2) for step in range(2, 6)]
    assert [place[0] for place in boxes(picture)] == ["110.0", "307.5", "505.0", "702.5"] * 2


def test_a_span_that_can_hardly_be_seen_is_drawn_all_the_same() -> None:
    found = boxes(timeline([span("step", 0, 10 * S), span("blink", 5 * S, 5 * S)]))

    assert found[1][:3] == ("505.0", "8", "0.6")


def test_the_axis_with_most_spans_comes_first_and_has_its_name_where_there_are_several() -> None:
    one = [span("eval", 0, S, axis="eval")]
    two = [span("step", step * S, (step + 1) * S, step=step) for step in range(2)]

    titles = [text for text in Reader(timeline([*one, *two])).texts if text.startswith("Axis")]

    assert titles == ["Axis step", "Axis eval"]
    assert "Axis" not in timeline(two)


def test_of_many_workers_and_names_the_first_are_drawn() -> None:
    workers = [span(f"t{rank:02}", 0, S, rank) for rank in range(40)]

    read = Reader(timeline(workers))

    assert "8 workers are not drawn." in read.texts
    assert len([tag for tag, _ in read.elements if tag == "rect"]) == 32
    keys = [has["class"] for tag, has in read.elements if tag == "span"]
    assert keys == [f"key c{number % 6}" for number in range(12)]
    assert "not drawn" not in timeline(workers[:32])


def test_without_a_step_there_is_no_picture() -> None:
    assert timeline([Span("0" * 32, "0" * 16, None, "x", 0, S, "trainer", 0, None, None)]) == ""
