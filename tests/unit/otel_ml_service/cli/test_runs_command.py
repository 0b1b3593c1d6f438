from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, StepRecord, Text
from otel_ml_service.delivery.exporter_progress import PipelineStatus
from otel_ml_service.live_runs.delivery_file import DeliveryFile
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.outbox import Commit, Outbox
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import Run, environment


def test_runs_lists_what_is_there_newest_first(otel_ml: Run, tmp_path: Path) -> None:
    old = write_run(tmp_path, "01old", digits_records(steps=5))
    write_run(tmp_path, "02new", digits_records(steps=7))
    for path in (old.database, old.jsonl):
        os.utime(path, (1, 1))

    status, out, _ = otel_ml("runs")

    assert status == 0
    assert out.index("02new") < out.index("01old")
    assert "finished" in out


@pytest.mark.parametrize(("command", "of_an_empty_one"), [("runs", 0), ("show", 1)])
def test_a_folder_that_is_not_there_is_told_from_one_without_runs(
    otel_ml: Run, tmp_path: Path, command: str, of_an_empty_one: int
) -> None:
    (tmp_path / "empty").mkdir()

    empty, misspelled = (otel_ml(command, "--dir", str(tmp_path / name)) for name in ("empty", "misspelled"))

    assert (empty[0], misspelled[0]) == (of_an_empty_one, 1)
    assert "misspelled': the folder does not exist. Set OTEL_ML_DIR" in misspelled[2]
    assert "empty'. Set OTEL_ML_DIR" in empty[2]


def test_runs_are_listed_without_the_packages_that_compute(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=5))
    program = "import sys; from otel_ml_service.cli import main; main(['runs']); sys.exit('numpy' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, text=True, check=False
    )

    assert "01abc" in done.stdout
    assert done.returncode == 0, "they take as long to import as all else takes"


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
        outbox.set_mark("wandb", Mark(5, {"a key": 1}))
        outbox.set_mark("jsonl", Mark(5, {}))
        outbox.commit(Commit())

    _, shown, _ = otel_ml("runs", "--json")
    _, listed, _ = otel_ml("runs")
    otel_ml("report", "01abc", "-o", str(page))

    assert json.loads(shown)["not_taken"] == {"mlflow": 4, "wandb": 1}
    assert "4 values not in mlflow, 1 value not in wandb" in listed
    assert '<span>values not in mlflow</span><b class="failed">4</b>' in page.read_text()


def test_runs_says_what_to_try_where_there_is_none(otel_ml: Run) -> None:
    status, out, err = otel_ml("runs")

    assert (status, out) == (0, "")
    assert "otel-ml demo" in err


def test_runs_says_where_runs_are_that_an_endpoint_has(otel_ml: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://service.example:4318")
    status, out, err = otel_ml("runs")

    assert (status, out) == (0, "")
    assert "http://service.example:4318 (OTEL_EXPORTER_OTLP_ENDPOINT)" in err
    assert "--dir" in err
    assert "otel-ml demo" not in err


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


def test_an_ambiguous_run_is_an_error_that_names_the_candidates(otel_ml: Run, tmp_path: Path) -> None:
    for run_id in ("01a", "01b"):
        write_run(tmp_path, run_id, digits_records(steps=1), experiment=run_id)

    status, _, err = otel_ml("show", "01")

    assert status == 1
    assert "01a" in err
    assert "01b" in err
