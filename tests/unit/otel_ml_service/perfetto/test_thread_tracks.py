"""Spans of a rank lie on as few tracks as let them nest."""

from __future__ import annotations

from otel_ml_service.perfetto.thread_tracks import Ended, ThreadTracks


def test_what_is_inside_of_its_parent_is_on_its_track() -> None:
    tracks = ThreadTracks()

    assert tracks.place("step", None, 10) == 0
    assert tracks.place("forward", "step", 5) == 0
    assert tracks.place("attention", "forward", 5) == 0
    assert tracks.threads == [""]
    assert list(tracks.over_by(4)) == []
    assert list(tracks.over_by(5)) == [Ended(0, 5), Ended(0, 5)]
    assert list(tracks.over_by(10)) == [Ended(0, 10)]


def test_what_outlasts_its_parent_or_meets_a_sibling_has_another_track() -> None:
    tracks = ThreadTracks()
    tracks.place("step", None, 10)

    assert tracks.place("long", "step", 11) == 1
    assert tracks.place("first", "step", 8) == 0
    assert tracks.place("beside", "step", 6) == 2
    assert tracks.place("of nobody", "unknown", 3) == 3
    assert list(tracks.over_by(8)) == [Ended(0, 8), Ended(2, 6), Ended(3, 3)]
    assert tracks.place("next", None, 20) == 2


def test_a_track_is_of_one_thread() -> None:
    tracks = ThreadTracks()
    tracks.place("step", None, 10, "main")

    assert tracks.place("load", "step", 5, "loader") == 1
    assert tracks.place("forward", "step", 5, "main") == 0
    assert list(tracks.over_by(5)) == [Ended(0, 5), Ended(1, 5)]
    assert tracks.place("inner", "step", 7) == 0
    assert tracks.place("save", None, 9, "saver") == 2
    assert tracks.place("again", None, 9, "loader") == 1
    assert tracks.threads == ["main", "loader", "saver"]


def test_who_has_ended_is_nobodys_parent() -> None:
    tracks = ThreadTracks()
    tracks.place("step", None, 10)
    tracks.place("forward", "step", 5)
    list(tracks.over_by(5))

    assert tracks.place("late", "forward", 8) == 1
