"""A row of the list of runs, and which runs are kept open."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from otel_ml_exporters.records import Params, RunStatus, StepRecord, Summary
from otel_ml_service.report.contents import contents
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.ui.known_runs import KnownRuns, _summary
from tests.recorded_run import digits_records, write_run
from tests.waiting import eventually


def test_a_row_has_final_values_first_and_then_the_last_ones_of_short_names() -> None:
    series = {"a/b/c": 1.0, "b": 2.0, "a": 3.0, "a/b": 4.0, "time/step": 5.0, "otel_ml/lag": 6.0, "c": 7.0}
    records = [
        StepRecord(1, "trainer", "step", 4, 0, 1.0, series),
        StepRecord(2, "trainer", "eval", 9, 0, 1.0, {"eval": 8.0}),
        Summary(3, 1.0, {"final": 0.5, "a": 0.25, "otel_ml/recorded": 9.0}),
        RunStatus(4, 1.0, "finished"),
    ]

    row = _summary(contents("run-1", "pages", records), is_live=False)

    assert list(row["values"].items()) == [
        ("final", "0.5"), ("a", "0.25"), ("b", "2"), ("c", "7"), ("a/b", "4"), ("a/b/c", "1"),
    ]  # fmt: skip
    assert (row["state"], row["step"], row["said"]) == ("finished", 4, "")
    few = _summary(contents("run-1", "pages", records[:2]), is_live=True)
    assert list(few["values"]) == ["a", "b", "c", "a/b", "a/b/c", "eval"]
    assert few["state"] == "live"
    assert _summary(contents("run-1", "pages", records[1:2]), is_live=True)["step"] is None


def test_a_row_has_eight_parameters_of_the_user_cut_where_they_are_long() -> None:
    given = {"otel_ml.version": "1", **{f"p{number}": "x" * (57 + number) for number in range(9)}}

    row = _summary(contents("run-1", "pages", [Params(1, 1.0, given)]), is_live=False)

    assert list(row["params"]) == [f"p{number}" for number in range(8)]
    assert row["params"]["p3"] == "x" * 60
    assert row["params"]["p4"] == "x" * 59 + "…"


def test_the_runs_that_were_asked_for_last_are_kept(tmp_path: Path) -> None:
    names = [f"{number:02}abc" for number in range(10)]
    for name in names:
        write_run(tmp_path, name, digits_records(steps=1))
    known = KnownRuns(tmp_path)

    first = known.find("digits/00abc")
    assert first is not None
    assert known.find("digits/00abc") is first
    for name in names[1:8]:
        known.find(f"digits/{name}")
    assert known.find("digits/00abc") is first
    for name in names[2:10]:
        known.find(f"digits/{name}")
    assert known.find("digits/00abc") is not first
    assert known.find("digits/none") is None
    assert known.find("00abc") is None


def test_all_runs_are_listed_the_newest_first(tmp_path: Path) -> None:
    for name in ("01abc", "02abc"):
        write_run(tmp_path, name, digits_records(steps=2))
    known = KnownRuns(tmp_path)

    eventually(lambda: all("values" in row for row in known.rows()[0]))
    rows, older = known.rows()

    assert (len(rows), older) == (2, 0)
    assert rows[0]["modified"] >= rows[1]["modified"]
    assert {(row["name"], row["run"], row["experiment"], row["step"]) for row in rows} == {
        ("digits/01abc", "01abc", "digits", 1), ("digits/02abc", "02abc", "digits", 1),
    }  # fmt: skip


def test_a_run_that_has_changed_is_read_again(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=2))
    known = KnownRuns(tmp_path)
    eventually(lambda: known.rows()[0][0].get("step") == 1)

    with closing(Outbox(run.database)) as outbox:
        outbox.commit(Commit(records=[StepRecord(100, "trainer", "step", 9, 0, 1.0, {"loss": 0.5})]))

    eventually(lambda: known.rows()[0][0].get("step") == 9)
