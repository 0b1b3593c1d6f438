"""What a page is told of a run, at first and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.records import Params, Record, StepRecord
from otel_ml_service.stored_runs.read_records import RunUnreadableError
from otel_ml_service.ui.followed_run import ChartRequest, FollowedRun
from tests.recorded_run import digits_records, export, going_on, write_run
from tests.unit.otel_ml_service.report.runs import records_of_everything


def version_of(run: FollowedRun) -> str:
    news = run.news("", frozenset(), [])
    assert news is not None
    version: str = news["version"]
    return version


def chart_of(run: FollowedRun, name: str) -> str:
    run.page()
    [key] = [key for key, (series, _) in run._charts.items() if series.name == name]
    return key


def test_a_page_that_knows_all_parts_is_told_nothing_until_something_has_changed(tmp_path: Path) -> None:
    run = FollowedRun(write_run(tmp_path, "01abc", digits_records(steps=5)))

    first = run.news("", frozenset(), [])
    assert first is not None
    assert run.news(first["version"], frozenset(), []) is None
    some = {first["parts"][name]["hash"] for name in ("title", "facts")}
    again = run.news("another", frozenset(some), [])
    assert again is not None
    assert first["parts"].keys() - again["parts"].keys() == {"title", "facts"}
    assert {"answer", "curves", "timing"} <= again["parts"].keys()
    assert again["charts"] == {}


def test_a_chart_gets_its_numbers_and_then_those_after_its_last_step(tmp_path: Path) -> None:
    run = FollowedRun(write_run(tmp_path, "01abc", digits_records(steps=5)))
    key, version = chart_of(run, "loss"), version_of(run)

    first = run.news(version, frozenset(), [ChartRequest(key, None, None), ChartRequest("none", None, None)])
    assert first is not None
    [told] = first["charts"].values()
    assert [step for step, _ in told["lines"][0]["points"]] == [0, 1, 2, 3, 4]
    assert (told["from"], told["role"], told["axis"]) == (None, "trainer", "step")
    further = run.news("", frozenset(), [ChartRequest(key, told["generation"], 2)])
    other = run.news("", frozenset(), [ChartRequest(key, told["generation"] + 1, 2)])
    assert further is not None
    assert other is not None
    assert [step for step, _ in further["charts"][key]["lines"][0]["points"]] == [3, 4]
    assert further["charts"][key]["from"] == 2
    assert len(other["charts"][key]["lines"][0]["points"]) == 5
    assert run.news(version, frozenset(), [ChartRequest(key, told["generation"], 4)]) is None


def test_who_it_was_is_told_as_a_strip(tmp_path: Path) -> None:
    run = FollowedRun(write_run(tmp_path, "01abc", digits_records(steps=5)))
    key = chart_of(run, "time/forward/argmax")

    news = run.news("", frozenset(), [ChartRequest(key, None, None)])

    assert news is not None
    assert news["charts"][key]["kind"] == "strip"


def test_a_run_that_goes_on_is_live_until_it_is_over(tmp_path: Path) -> None:
    records = digits_records(steps=3)
    with going_on(tmp_path, "01abc", records[:-1]) as folder:
        run = FollowedRun(folder)
        with run.held() as held:
            live, version = held.is_live, held.version
            steps = len(held.contents.history.get("loss"))
        with run.held() as held:
            assert held.version == version, "nothing came"
        export(folder, [StepRecord(100, "trainer", "step", 3, 0, 1.0, {"loss": 0.5})])
        with run.held() as held:
            assert (len(held.contents.history.get("loss")), held.version != version) == (4, True)
    with run.held() as held:
        over = held.is_live, held.version[-1]
        again = held.version
    with run.held() as held:
        assert held.version == again, "a run that is over is read once"

    assert (live, version[-1], steps) == (True, "-", 3)
    assert over == (False, ".")


def test_a_run_of_which_nothing_can_be_read_yet_says_so_and_is_read_as_soon_as_it_can_be(tmp_path: Path) -> None:
    records = digits_records(steps=3)
    with going_on(tmp_path, "01abc", records, exporters=[]) as folder:
        run = FollowedRun(folder)
        with pytest.raises(RunUnreadableError, match="'01abc' is being recorded, and nothing of it can be read yet"):
            run.page()
        export(folder, records)
        assert "01abc" in run.page()


def test_a_step_that_comes_again_makes_a_page_ask_for_the_whole_curve(tmp_path: Path) -> None:
    def row(seq: int, step: int) -> Record:
        return StepRecord(seq, "trainer", "step", step, 0, 1.0, {"loss": 0.5})

    with going_on(tmp_path, "01abc", [Params(1, 1.0, {}), row(2, 0), row(3, 1)]) as folder:
        run = FollowedRun(folder)
        run.page()
        begun = run._generation
        export(folder, [row(4, 2)])
        run.page()
        assert run._generation == begun
        export(folder, [row(5, 2)])
        run.page()
        assert run._generation > begun


def test_the_step_that_shows_the_worst_finding_is_the_first_to_be_seen(tmp_path: Path) -> None:
    run = FollowedRun(write_run(tmp_path, "01abc", records_of_everything(ranks=2)))

    named = run.step(("trainer", "step", 57))
    assert (named["role"], named["axis"], named["step"], len(named["rows"])) == ("trainer", "step", 57, 2)
    assert run.step(("", "step", 57)) == named
    assert run.step(("trainer", "step", 7)) == {"rows": []}
    assert run.step(("nobody", "step", 57)) == {"rows": []}
    assert run.step(None)["step"] in {58, 59}
    assert 'data-live="1"' in run.page()
    assert 'data-live="1"' not in FollowedRun(write_run(tmp_path, "02abc", digits_records(steps=3))).page()
