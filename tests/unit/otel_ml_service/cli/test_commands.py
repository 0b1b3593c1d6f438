from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters.records import Audio, HistogramValue, Params, Record, RunStatus, StepRecord, Table, Text
from otel_ml_service.cli import main
from otel_ml_service.delivery.exporter_progress import PipelineStatus
from otel_ml_service.findings.finding import COLUMNS, Finding, row_of
from otel_ml_service.live_runs.delivery_file import DeliveryFile
from otel_ml_service.storage.outbox import Commit, Mark, Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def otel_ml(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder of the test, and return (status, standard output, standard error)."""
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def live_run(tmp_path: Path) -> Iterator[RunFolder]:
    """Return a run that a service has open."""
    run = write_run(tmp_path, "01live", digits_records(steps=3), exporters=[])
    with closing(Outbox(run.database)):
        yield run


def test_runs_lists_what_is_there_newest_first(otel_ml: Run, tmp_path: Path) -> None:
    old = write_run(tmp_path, "01old", digits_records(steps=5))
    write_run(tmp_path, "02new", digits_records(steps=7))
    for path in (old.database, old.jsonl):
        os.utime(path, (1, 1))

    status, out, _ = otel_ml("runs")

    assert status == 0
    assert out.index("02new") < out.index("01old")
    assert "finished" in out


def test_a_run_is_called_by_its_name_in_every_list_and_found_by_it(otel_ml: Run, tmp_path: Path) -> None:
    older, newer = (write_run(tmp_path, run, digits_records(steps=3)) for run in ("01old", "02new"))
    for run in (older, newer):
        (run.path / "state" / "name").write_text("baseline")
    for path in (older.database, older.jsonl):
        os.utime(path, (1, 1))

    _, listed, _ = otel_ml("runs")
    status, shown, _ = otel_ml("show", "baseline")

    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["baseline", "baseline"]
    assert (status, shown.splitlines()[:2]) == (0, ["digits/baseline  finished", str(newer.path)])


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


def test_a_run_that_has_ended_is_called_finished_by_all_while_its_service_is_there(
    otel_ml: Run, tmp_path: Path
) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3))
    with closing(Outbox(run.database)) as outbox:
        told = DeliveryFile(run.database.parent)
        told.keep(outbox.last_seq, {"jsonl": PipelineStatus("stopped", outbox.last_seq)})
        _, listed, _ = otel_ml("runs", "--json")
        _, shown, _ = otel_ml("show", "01abc")

    assert json.loads(listed)["status"] == "finished"
    assert shown.splitlines()[0] == "digits/01abc  finished"


def test_a_run_that_goes_on_is_called_live_by_all(otel_ml: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3)[:-1])
    with closing(Outbox(run.database)):
        _, listed, _ = otel_ml("runs", "--json")
        _, shown, _ = otel_ml("show", "01abc")

    assert json.loads(listed)["status"] == "live"
    assert shown.splitlines()[0] == "digits/01abc  live"


def test_runs_says_how_long_ago_a_run_was_written(otel_ml: Run, tmp_path: Path) -> None:
    run, now = write_run(tmp_path, "01old", digits_records(steps=5)), time.time()
    for path in (run.database, run.jsonl):
        os.utime(path, (now, now - 49 * 3600))

    _, out, _ = otel_ml("runs")

    [line] = [line for line in out.splitlines() if line.startswith("01old")]
    assert " 2 d ago" in line


@pytest.mark.parametrize("left", ["run.db", "metrics.jsonl"])
def test_a_run_that_cannot_be_read_keeps_no_command_from_the_others(otel_ml: Run, tmp_path: Path, left: str) -> None:
    bad = write_run(tmp_path, "01bad", digits_records(steps=5), exporters=[] if left == "run.db" else ["jsonl"])
    write_run(tmp_path, "02good", digits_records(steps=7))
    if left == "run.db":
        bad.database.write_bytes(b"not a database" * 1000)
        bad.database.with_name("run.db-wal").write_bytes(b"torn" * 1000)
    else:
        bad.database.unlink()
        bad.jsonl.write_text('{"what": "is this"}\n')

    status, listed, _ = otel_ml("runs")
    asked = {command: otel_ml(command, "01bad") for command in ("show", "report")}
    removed, _, _ = otel_ml("gc", "--keep", "0", "--yes")

    assert status == 0
    assert "unreadable" in next(line for line in listed.splitlines() if "01bad" in line)
    assert "finished" in next(line for line in listed.splitlines() if "02good" in line)
    assert {code for code, _, _ in asked.values()} == {1}
    assert all(str(bad.path / ("state/run.db" if left == "run.db" else left)) in said for _, _, said in asked.values())
    assert removed == 0
    assert not bad.path.exists()


def test_runs_counts_steps_of_the_user_not_rows(otel_ml: Run, tmp_path: Path) -> None:
    steps: list[Record] = [StepRecord(at + 1, "trainer", "step", at, 0, 1.0 + at, {"loss": 1.0}) for at in range(5)]
    again = StepRecord(6, "trainer", "step", 4, 0, 9.0, {"loss": 2.0}, amendment=True)
    own = StepRecord(7, "trainer", "step", 5, 0, 9.0, {"otel_ml/lag/jsonl": 0.0})
    other = StepRecord(8, "trainer", "time", 3, 0, 9.0, {"load": 0.5})
    write_run(tmp_path, "01abc", [*steps, again, own, other])
    rollouts = [StepRecord(at + 1, "trainer", "rollout", at, 0, 1.0, {"reward": 1.0}) for at in range(3)]
    write_run(tmp_path, "02rl", rollouts)
    write_run(tmp_path, "03text", [Text(1, 1.0, "t", "step", 0, "no step at all")])

    _, out, _ = otel_ml("runs", "--json")
    _, shown, _ = otel_ml("runs")

    found = {row["id"]: (row["steps"], row["rows"]) for row in map(json.loads, out.splitlines())}
    assert found == {"01abc": (5, 8), "02rl": (3, 3), "03text": (0, 0)}
    [line] = [line for line in shown.splitlines() if line.startswith("01abc")]
    assert line.split()[3] == "5"


def test_runs_and_the_report_say_how_much_a_backend_did_not_take(otel_ml: Run, tmp_path: Path) -> None:
    run, page = write_run(tmp_path, "01abc", digits_records(steps=5)), tmp_path / "page.html"
    with closing(Outbox(run.database)) as outbox:
        outbox.set_mark("mlflow", Mark(5, {"a metric's name": 3, "a key": 1}))
        outbox.set_mark("jsonl", Mark(5, {}))
        outbox.commit(Commit())

    _, shown, _ = otel_ml("runs", "--json")
    _, listed, _ = otel_ml("runs")
    otel_ml("report", "01abc", "-o", str(page))

    assert json.loads(shown)["not_taken"] == {"mlflow": 4}
    assert "4 values not in mlflow" in listed
    assert '<span>values not in mlflow</span><b class="failed">4</b>' in page.read_text()


def test_runs_says_what_to_try_where_there_is_none(otel_ml: Run) -> None:
    status, out, err = otel_ml("runs")

    assert (status, out) == (0, "")
    assert "otel-ml demo" in err


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
    assert ["forward", "3", "s", "75.0%", "2"] in rows
    assert ["all_reduce", "1", "s", "25.0%", "0"] in rows
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


@pytest.mark.parametrize("mark", ["", "metrics.jsonl", "state/run.db"])
def test_a_run_is_found_by_its_folder_or_a_file_in_it(otel_ml: Run, tmp_path: Path, mark: str) -> None:
    run = write_run(tmp_path / "elsewhere", "01abc", digits_records(steps=3))

    status, out, _ = otel_ml("show", str(run.path / mark))

    assert status == 0
    assert "loss" in out


def test_a_run_that_has_only_jsonl_is_read_too(otel_ml: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3))
    run.database.unlink()

    status, out, _ = otel_ml("show", "01abc", "--csv")

    assert status == 0
    assert "step,loss,2," in out


def test_an_unknown_metric_is_an_error_with_the_nearest_name(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3))

    status, out, err = otel_ml("show", "01abc", "lost")

    assert (status, out) == (1, "")
    assert "no metric 'lost'. Did you mean 'loss'?" in err


def test_an_ambiguous_run_is_an_error_that_names_the_candidates(otel_ml: Run, tmp_path: Path) -> None:
    for run_id in ("01a", "01b"):
        write_run(tmp_path, run_id, digits_records(steps=1), experiment=run_id)

    status, _, err = otel_ml("show", "01")

    assert status == 1
    assert "01a" in err
    assert "01b" in err


def test_tail_prints_the_last_steps_of_a_finished_run_and_ends(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=12))

    status, out, _ = otel_ml("tail", "01abc", "loss", "--lines", "3")

    assert status == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["step", "10"], ["step", "11"], ["status", "finished"]]


def test_tail_shows_what_the_program_recorded_unless_more_is_asked_for(otel_ml: Run, tmp_path: Path) -> None:
    row = {"loss": 1.0, "time/exposed/forward": 0.1, "generator/otel_ml/attempt": 1.0}
    write_run(tmp_path, "01abc", [StepRecord(1, "trainer", "step", 0, 0, 1.0, row)])

    _, plain, _ = otel_ml("tail", "01abc", "--no-follow")
    _, asked, _ = otel_ml("tail", "01abc", "*exposed*", "--no-follow")

    assert plain.split() == ["step", "0", "loss", "1"]
    assert "time/exposed/forward 100 ms" in asked


def test_tail_takes_globs(otel_ml: Run, tmp_path: Path) -> None:
    values = {"eval/acc": 0.5, "eval/loss": 1.0, "loss": 2.0}
    write_run(tmp_path, "01abc", [StepRecord(1, "trainer", "step", 0, 0, 0.0, values), RunStatus(2, 0.0, "finished")])

    _, out, _ = otel_ml("tail", "01abc", "eval/*")

    assert out.splitlines()[0].split() == ["step", "0", "eval/acc", "0.5", "eval/loss", "1"]


def test_gc_removes_only_what_was_asked_for_and_only_with_consent(
    otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = write_run(tmp_path, "02new", digits_records(steps=2))
    old = write_run(tmp_path, "01old", digits_records(steps=2), experiment="old")
    for path in (old.database, old.jsonl):
        os.utime(path, (1, 1))

    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    _, refused, _ = otel_ml("gc", "--keep", "1")
    still_there = old.path.exists()
    status, out, _ = otel_ml("gc", "--keep", "1", "--yes")

    assert "Nothing was removed" in refused
    assert re.search(rf"^{old.name} +old +01old", refused, re.MULTILINE)
    assert still_there
    assert status == 0
    assert "Removed 1 run" in out
    assert kept.path.exists()
    assert not old.path.parent.exists()


def test_gc_leaves_alone_what_is_not_delivered_what_others_made_and_what_a_link_leads_to(
    otel_ml: Run, tmp_path: Path
) -> None:
    done, left = (write_run(tmp_path, run_id, digits_records(steps=2)) for run_id in ("01done", "02left"))
    left.database.with_name("undelivered").touch()
    foreign = tmp_path / "digits" / "foreign"
    foreign.mkdir()
    (foreign / "metrics.jsonl").write_text('{"loss": 1}\n')
    elsewhere = write_run(tmp_path.with_name("elsewhere"), "03far", digits_records(steps=2))
    (tmp_path / "digits" / "link").symlink_to(elsewhere.path)
    (tmp_path / "linked").symlink_to(elsewhere.path.parent)

    _, out, _ = otel_ml("gc", "--keep", "0", "--yes")
    there = [path.exists() for path in (done.path, left.path, foreign, elsewhere.path)]
    otel_ml("gc", "--keep", "0", "--yes", "--undelivered")

    assert there == [False, True, True, True]
    assert "1 run left alone, not finished or not in all backends" in out
    assert [path.exists() for path in (left.path, foreign, elsewhere.path)] == [False, True, True]


def test_gc_says_that_a_run_is_being_recorded(otel_ml: Run, live_run: RunFolder, tmp_path: Path) -> None:
    write_run(tmp_path, "01old", digits_records(steps=2))

    _, out, _ = otel_ml("gc")

    said = " ".join(out.split())
    assert said.startswith("Nothing to remove: 1 run, ")
    assert said.endswith(", and 1 run being recorded.")
    assert live_run.path.exists()


def test_gc_understands_ages_and_says_what_an_age_is(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "02new", digits_records(steps=2))

    nothing, out, _ = otel_ml("gc", "--older-than", "30d", "--yes")
    wrong, _, err = otel_ml("gc", "--older-than", "soon")

    assert (nothing, wrong) == (0, 2)
    assert "Nothing to remove" in out
    assert "12h, 30d, 4w" in err


def test_exporters_lists_every_registered_one(otel_ml: Run) -> None:
    status, out, _ = otel_ml("exporters", "--json")

    rows = {row["name"]: row for row in map(json.loads, out.splitlines())}
    assert status == 0
    assert {"console", "jsonl", "mlflow", "tensorboard", "wandb"} <= set(rows)
    assert "once" in rows["jsonl"]["guarantee"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(otel_ml: Run, shell: str) -> None:
    status, out, _ = otel_ml("completion", shell)

    assert status == 0
    assert "_OTEL_ML_COMPLETE" in out


def test_the_shell_completes_runs_and_metrics(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=2))

    assert "01abc" in completions(tmp_path, "otel-ml show 01")
    assert "loss" in completions(tmp_path, "otel-ml show 01abc lo")
    assert "exporters" in completions(tmp_path, "otel-ml exp")


def completions(base: Path, line: str) -> str:
    words = line.split()
    env = {**os.environ, "OTEL_ML_DIR": str(base), "_OTEL_ML_COMPLETE": "bash_complete",
           "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}  # fmt: skip
    program = "from otel_ml_service.cli import main; main()"
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout


def test_an_unknown_command_is_a_wrong_use_with_the_nearest_one(otel_ml: Run) -> None:
    status, _, err = otel_ml("sho")

    assert status == 2
    assert "Did you mean 'show'?" in err


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "serve",
        "replay",
        "recover",
        "runs",
        "show",
        "why",
        "diff",
        "mcp",
        "open",
        "top",
        "tail",
        "gc",
        "env",
        "doctor",
        "exporters",
        "completion",
    ],
)
def test_every_command_has_help_with_an_example(otel_ml: Run, command: str) -> None:
    status, out, _ = otel_ml(command, "--help")

    assert status == 0
    assert "Example" in out
    assert f"otel-ml {command}" in " ".join(out.split())


def test_replay_of_a_run_that_is_being_recorded_says_so(
    otel_ml: Run, live_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_ml_service.cli.replay_command._PATIENCE_S", 0.0)  # it would wait for the run to end

    status, _, err = otel_ml("replay", live_run.id, "--to", "jsonl")

    assert status == 1
    assert "A service has run '01live' open" in err
    assert "Replay it when it is over" in err


def test_replay_names_an_unknown_exporter_before_it_waits(otel_ml: Run, live_run: RunFolder) -> None:
    status, _, err = otel_ml("replay", live_run.id, "--to", "jsonll")

    assert status == 1
    assert "Did you mean 'jsonl'?" in err
    assert "still at work" not in err


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
