"""What the view of one step draws, and says."""

from __future__ import annotations

from otel_ml_exporters.records import Span
from otel_ml_service.report.step_view import by_step, step_view

MS = 10**6


def span(name: str, begin: int, end: int, rank: int, step: int | None = 3, axis: str | None = "step") -> Span:
    return Span("0" * 32, f"{rank}{name}", None, name, begin * MS, end * MS, "trainer", rank, axis, step)


def two_ranks() -> list[Span]:
    timed = [
        (span("forward", 5, front, rank), span("step", 5, 16, rank), span("sync", front, 12, rank),
         span("backward", 12, 16, rank))
        for rank, front in ((0, 9), (1, 11))
    ]  # fmt: skip
    return [found for of_rank in timed for found in of_rank]


def test_a_row_is_a_rank_with_its_timers_in_microseconds_and_who_was_at_the_front_has_a_frame() -> None:
    view = step_view(("trainer", "step", 3), two_ranks())

    assert (view["role"], view["axis"], view["step"], view["us"]) == ("trainer", "step", 3, 11_000.0)
    assert view["names"] == ["step", "forward", "sync", "backward"]
    first, second = view["rows"]
    assert (first["who"], second["who"]) == ("trainer 0", "trainer 1")
    assert [box[:4] for box in first["boxes"]] == [
        [0, 0.0, 11_000.0, 0], [1, 0.0, 4_000.0, 1], [2, 4_000.0, 3_000.0, 1], [3, 7_000.0, 4_000.0, 1],
    ]  # fmt: skip
    assert [box[:4] for box in second["boxes"]] == [
        [0, 0.0, 11_000.0, 0], [1, 0.0, 6_000.0, 1], [2, 6_000.0, 1_000.0, 1], [3, 7_000.0, 4_000.0, 1],
    ]  # fmt: skip
    assert (first["boxes"][1][4], second["boxes"][1][4]) == (0, 1)
    assert {row["boxes"][0][4] for row in view["rows"]} == {0}
    said = "trainer, step 3: 11 ms. The slowest rank's step, 11 ms, is forward 6 ms (rank 1) + backward 4 ms (rank "
    assert view["said"].startswith(said)
    assert " + sync 1 ms (rank " in view["said"]
    assert view["said"].endswith(" has a frame.")


def test_a_rank_alone_has_its_longest_path_in_frames() -> None:
    view = step_view(("trainer", "step", 3), [span("forward", 0, 4, 0), span("backward", 4, 10, 0)])

    assert view["rows"] == [{"who": "trainer 0", "boxes": [[0, 0.0, 4_000.0, 0, 1], [1, 4_000.0, 6_000.0, 0, 1]]}]
    assert view["said"] == (
        "trainer, step 3: 10 ms. The slowest rank's step, 10 ms, is backward 6 ms (rank 0) + forward 4 ms (rank 0); "
        "what is on the longest path, through who was waited for, has a frame."
    )


def test_of_more_ranks_than_are_drawn_those_at_the_front_and_the_longest_are() -> None:
    spans = [span("forward", 0, 100 if rank == 49 else 10 + rank, rank) for rank in range(50)]

    view = step_view(("trainer", "step", 3), spans)

    assert [row["who"] for row in view["rows"]] == [f"trainer {rank}" for rank in range(2, 50)]
    assert view["said"].endswith("2 ranks are not drawn.")
    assert "not drawn" not in step_view(("trainer", "step", 3), spans[:48])["said"]


def test_of_many_phases_five_are_named_and_the_others_added_up() -> None:
    at, spans = 0, []
    for number in range(7):
        spans.append(span(f"t{number}", at, at + 10 - number, 0))
        at += 10 - number

    said = step_view(("trainer", "step", 3), spans)["said"]

    listed = " + ".join(f"t{number} {10 - number} ms (rank 0)" for number in range(5))
    assert f"The slowest rank's step, 49 ms, is {listed} + 9 ms of others; " in said


def test_a_step_without_length_is_a_microsecond() -> None:
    assert step_view(("trainer", "step", 3), [span("forward", 1, 1, 0)])["us"] == 1.0


def test_spans_belong_to_the_step_of_their_role_and_axis() -> None:
    mine, other = span("a", 0, 1, 0), span("b", 0, 1, 0, axis="eval")

    assert by_step([mine, other, span("c", 0, 1, 0, step=None), span("d", 0, 1, 0, axis=None)]) == {
        ("trainer", "step", 3): [mine], ("trainer", "eval", 3): [other],
    }  # fmt: skip
