from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters.records import Audio, HistogramValue, Params, Record, StepRecord, Summary, Table
from otel_ml_service.findings.finding import COLUMNS, Finding, row_of
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import Run


def test_of_its_own_account_show_has_what_is_not_as_it_should_be(otel_ml: Run, tmp_path: Path) -> None:
    own = {"otel_ml/step": 3.0, "otel_ml/lag/exporter/jsonl": 0.0, "otel_ml/lost/exporter/jsonl": 2.0}
    rows = [
        StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": 1.0, "otel_ml/too_late": 1.0}),
        StepRecord(2, "", "time", 10, 0, 2.0, own),
    ]
    write_run(tmp_path, "01abc", rows)

    _, shown, _ = otel_ml("show", "01abc")
    _, whole, _ = otel_ml("show", "01abc", "--all")
    _, asked, _ = otel_ml("show", "01abc", "*otel_ml/*", "--csv")

    table = shown[shown.index("metric ") :].splitlines()[1:]
    assert [line.split()[0] for line in table[:-1]] == ["loss", "otel_ml/lost/exporter/jsonl", "otel_ml/too_late"]
    assert table[-1] == "2 more of otel_ml's own account: otel-ml show 01abc --all"
    assert {line.split()[0] for line in whole.splitlines() if "otel_ml/" in line} == {*own, "otel_ml/too_late"}
    assert len(asked.splitlines()) == 5


def test_show_prints_every_series_with_its_last_value(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=10))

    status, out, _ = otel_ml("show", "01a")

    assert status == 0
    row = next(line for line in out.splitlines() if line.startswith("loss"))
    assert row.split()[:4] == ["loss", "step", "10", "0.2"]
    assert "ranks=4" in out


def test_show_says_where_the_time_goes_so_that_it_adds_up_and_what_was_found(otel_ml: Run, tmp_path: Path) -> None:
    row = {
        "time/forward": 3.0, "time/all_reduce": 2.5, "time/exposed/forward": 3.0, "time/exposed/forward/rank": 2.0,
        "time/exposed/all_reduce": 1.0, "time/exposed/all_reduce/rank": 0.0,
    }  # fmt: skip
    finding = Finding("slow", 2, "forward", "critical", 0, 2, slowdown=2.0, extra_s=2.0, cost_s=6.0, saved_s=1.5)
    table = Table(4, 3.0, "otel_ml/findings", "step", 2, COLUMNS, (row_of(finding),))
    earlier = Table(3, 3.0, "otel_ml/findings", "step", 1, COLUMNS, (row_of(replace(finding, saved_s=9.0)),))
    steps = [StepRecord(seq, "trainer", "step", seq, 0, float(seq), row) for seq in (0, 1, 2)]
    write_run(tmp_path, "01abc", [*steps, earlier, table], exporters=[])

    _, out, _ = otel_ml("show", "01abc")

    rows = [line.split() for line in out.splitlines()]
    assert ["forward", "3", "s", "75", "%", "2"] in rows
    assert ["all_reduce", "1", "s", "25", "%", "0"] in rows
    [timer] = [row for row in rows if row[:1] == ["time/forward"]]
    assert timer[3:9] == ["3", "s", "3", "s", "3", "s"], "in the unit that fits"
    assert not any(row[0].startswith("time/exposed") for row in rows if row), "the table above has it"
    assert "4 more of otel_ml's own account" in out
    assert out.splitlines()[-2:] == [
        "found",
        "critical: rank 2 slow in forward, since step 0: +2 s a step, 1.5 s shorter without it",
    ]


def test_show_counts_what_is_no_scalar_in_words_and_amended_values_of_the_user_only(
    otel_ml: Run, tmp_path: Path
) -> None:
    place: dict[str, Any] = {"time": 1.0, "axis": "step", "step": 0}
    recorded: list[Record] = [
        StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": 1.0}),
        StepRecord(2, "trainer", "step", 0, 0, 2.0, {"otel_ml/lag/jsonl": 1.0, "loss": 2.0}, amendment=True),
        HistogramValue(3, name="a", edges=(0.0, 1.0), counts=(1.0,), **place),
        HistogramValue(4, name="b", edges=(0.0, 1.0), counts=(1.0,), **place),
        Audio(5, name="c", wav=b"", sample_rate=8000, **place),
    ]
    write_run(tmp_path, "01abc", recorded, exporters=[])

    _, out, _ = otel_ml("show", "01abc")

    assert "1 step, 1 audio clip, 2 histograms, 1 amended value" in out.splitlines()


def test_show_counts_the_steps_that_hold_something_of_the_user_as_runs_and_why_do(otel_ml: Run, tmp_path: Path) -> None:
    recorded: list[Record] = [
        StepRecord(step + 1, "trainer", "step", step, 0, 1.0 + step, {"loss": 1.0, "time/step": 1.0})
        for step in range(10)
    ]
    own = StepRecord(11, "", "time", 0, 0, 12.0, {"otel_ml/delivered/exporter/jsonl": 20.0})
    write_run(tmp_path, "01abc", [*recorded, own], exporters=[])

    _, shown, _ = otel_ml("show", "01abc")
    _, listed, _ = otel_ml("runs", "--json")
    _, told, _ = otel_ml("why", "01abc")

    assert "10 steps, 0 amended values" in shown.splitlines()
    assert json.loads(listed)["steps"] == 10
    assert "in 10 steps" in told


def test_show_shortens_a_long_parameter_and_says_how_long_it_is(otel_ml: Run, tmp_path: Path) -> None:
    params = {"lr": 0.1, "prompt": "x" * 9_000, "seed": 3}
    write_run(tmp_path, "01abc", [Params(1, 1.0, params)])

    _, out, _ = otel_ml("show", "01abc")

    shown = " ".join(out.split())
    assert "x… (9,000 characters) seed=3" in shown
    assert shown.count("x") < 100


def test_show_plots_several_metrics_by_glob(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records())

    status, out, _ = otel_ml("show", "01abc", "loss", "time/forward*", "--height", "4")

    assert status == 0
    titles = [line.split()[0] for line in out.splitlines() if "over step" in line]
    assert titles == [
        "loss",
        "time/forward",
        "time/forward/argmax",
        "time/forward/mean",
    ]
    assert any("\u2800" < character <= "\u28ff" for character in out)


NAMED = ["acc[top-1]", "acct", "损失/训练 (%)", "mfu___-8ae227af"]


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("acc[top-1]", ["acc[top-1]"]),
        ("acc*", ["acc[top-1]", "acct"]),
        ("损失/训练 (%)", ["损失/训练 (%)"]),
        ("mfu(%)", ["mfu___-8ae227af"]),
    ],
    ids=["brackets", "glob", "any letters", "a run of before names stayed as they were written"],
)
def test_show_finds_a_metric_by_the_name_that_was_written(
    otel_ml: Run, tmp_path: Path, asked: str, shown: list[str]
) -> None:
    write_run(tmp_path, "01abc", [StepRecord(1, "trainer", "step", 1, 0, 1.0, dict.fromkeys(NAMED, 1.0))])

    status, out, _ = otel_ml("show", "01abc", asked, "--csv")

    assert status == 0
    assert out.splitlines()[1:] == [f"step,{name},1,1.0" for name in shown]


def test_show_csv_gives_exact_values(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3))

    _, out, _ = otel_ml("show", "latest", "loss", "--csv")

    assert out.splitlines() == ["axis,name,step,value", *(f"step,loss,{i},{2.0 / (i + 1)!r}" for i in range(3))]


def test_an_unknown_metric_is_an_error_with_the_nearest_name(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3))

    status, out, err = otel_ml("show", "01abc", "lost")

    assert (status, out) == (1, "")
    assert "no metric 'lost'. Did you mean 'loss'?" in err


def test_a_name_with_spaces_is_in_quotes_in_commands_and_is_told_whole_where_it_stood_without(
    otel_ml: Run, tmp_path: Path
) -> None:
    rows = [
        StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": 1.0}),
        StepRecord(2, "", "time", 10, 0, 2.0, {"otel_ml/lag/exporter/jsonl": 0.0}),
    ]
    folder = write_run(tmp_path, "01abc", rows)
    (folder.path / "state" / "name").write_text("my first run")

    _, out, _ = otel_ml("show", "my first run")
    status, _, err = otel_ml("show", "my", "first", "run")

    assert "otel-ml show 'my first run' --all" in out
    assert status == 1
    assert "Run my first run (01abc) has no metric 'first'." in " ".join(err.split())


def test_one_metric_is_shown_as_it_is_among_all_others(otel_ml: Run, tmp_path: Path) -> None:
    rows = [
        StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": 1.0, "a": 1.0}),
        StepRecord(2, "trainer", "step", 1, 0, 1.0, {"loss": 2.0}),
        StepRecord(3, "trainer", "step", 0, 0, 1.0, {"loss": 0.5}, amendment=True),
        StepRecord(4, "trainer", "eval", 1, 0, 1.0, {"loss": 7.0}),
    ]
    write_run(tmp_path, "01abc", rows)

    _, one, _ = otel_ml("show", "01abc", "loss", "--csv")
    _, glob, _ = otel_ml("show", "01abc", "los*", "--csv")
    status, _, errors = otel_ml("show", "01abc", "los", "--csv")
    _, for_a_person, _ = otel_ml("show", "01abc", "los")

    assert one == glob == "axis,name,step,value\nstep,loss,0,0.5\nstep,loss,1,2.0\neval,loss,1,7.0\n"
    assert status == 1
    assert "Did you mean 'loss'?" in errors
    assert for_a_person.startswith("loss   last 2")


LOST = {"otel_ml/recorded": 400.0, "otel_ml/dropped/never_arrived": 150.0, "otel_ml/dropped/HTTP 400: no": 40.0}
BESIDES = {"otel_ml/too_late": 10.0, "otel_ml/dropped/bad_value": 2.0, "otel_ml/dropped/events_never_arrived": 3.0}


def test_what_a_run_lost_is_in_show_and_in_runs_with_its_reasons(otel_ml: Run, tmp_path: Path) -> None:
    step = StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": 1.0})
    write_run(tmp_path, "01abc", [step, Summary(2, 2.0, {**LOST, **BESIDES, "acc": float("nan")})])
    write_run(tmp_path, "02abc", [step, Summary(2, 2.0, {"otel_ml/recorded": 1.0})])

    _, shown, _ = otel_ml("show", "01abc")
    _, whole, _ = otel_ml("show", "02abc")
    _, listed, _ = otel_ml("runs")
    _, told, _ = otel_ml("runs", "--json")

    assert "200 of 400 values recorded are lost: never_arrived (150); HTTP 400: no (40); too_late (10)" in shown
    assert "not recorded: bad_value (2)" in shown
    assert "texts, files or spans are lost: events_never_arrived (3)" in shown
    assert " lost: " not in whole
    [line] = [line for line in listed.splitlines() if "01abc" in line]
    assert "200 values lost" in " ".join(line.split())
    assert " ".join(listed.split()).count("values lost") == 1
    counts = {row["id"]: row["lost"] for row in map(json.loads, told.splitlines())}
    reasons = {"never_arrived": 150, "HTTP 400: no": 40, "too_late": 10, "bad_value": 2, "events_never_arrived": 3}
    assert counts == {"01abc": reasons, "02abc": {}}


def test_what_arrives_after_an_end_is_lost_no_more_at_the_next_one(otel_ml: Run, tmp_path: Path) -> None:
    step = StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": 1.0})
    ends = [Summary(2, 2.0, {**LOST, "acc": 0.5}), Summary(3, 3.0, {"otel_ml/recorded": 400.0})]
    write_run(tmp_path, "01abc", [step, *ends])

    _, shown, _ = otel_ml("show", "01abc")

    assert " lost: " not in shown
    assert "acc=0.5" in shown


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("phases", [("forward", "backward"), ("forward-recv", "forward")])
def test_show_and_the_report_take_what_a_program_writes_into_the_names_of_the_account(
    otel_ml: Run, tmp_path: Path, odd: float, phases: tuple[str, str]
) -> None:
    first, second = (f"time/exposed/{phase}" for phase in phases)
    row = {first: 0.3, f"{first}/rank": odd, second: 0.1, f"{second}/rank": 2.0}
    write_run(tmp_path, "01abc", [StepRecord(seq, "trainer", "step", seq, 0, float(seq), row) for seq in (1, 2, 3)])

    shown, out, _ = otel_ml("show", "01abc")
    written, _, _ = otel_ml("report", "01abc")

    assert (shown, written) == (0, 0)
    rows = [line.split() for line in out.splitlines() if line.startswith(phases) and " ms " in line]
    assert rows == [[phases[0], "300", "ms", "75", "%"], [phases[1], "100", "ms", "25", "%", "2"]]
