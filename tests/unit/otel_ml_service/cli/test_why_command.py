"""`otel-ml why`, as a process of its own, on stored runs: for people at 80 columns, and for programs."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_service.storage.outbox import Outbox
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import otel_ml
from tests.unit.otel_ml_service.why.jobs import event, finding, job, numbered

SLOW = job(slow=range(80, 120), extra_s=0.015, findings=[finding(since=80, until=119, extra_s=0.0149)])


def test_three_sentences_come_first_then_account_evidence_and_steps(tmp_path: Path) -> None:
    write_run(tmp_path, "01slow", SLOW)

    done = otel_ml(tmp_path, "why", "01slow")

    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith(
        "Steps 80-119 took 27 ms each instead of 12 ms: +15 ms a step, 600 ms in all. Caused: rank 2"
    )
    parts = ["Without it these steps are", "Where the time goes (adds up", "Evidence", "Look at - step 85: span ab12"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("asked", [[], ["100"], ["80-119"], ["--metric", "time/forward"]])
def test_json_is_one_object_with_one_of_three_verdicts(tmp_path: Path, asked: list[str]) -> None:
    write_run(tmp_path, "01slow", SLOW)

    done = otel_ml(tmp_path, "why", "latest", *asked, "--json")

    answer = json.loads(done.stdout)
    assert answer["verdict"] in {"caused", "coincided", "cannot tell"}
    assert len(answer["sentences"]) == 3
    assert answer["first"] == (100 if asked == ["100"] else 80)


def test_a_run_that_goes_on_is_answered_as_of_its_newest_step(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01live", SLOW[:-1])

    with closing(Outbox(run.database)):  # as the service has it
        done = otel_ml(tmp_path, "why", "01live")

    assert "Caused: rank 2 was slow in forward" in " ".join(done.stdout.split())
    assert "the run goes on: this is as of step 159" in done.stdout


def test_a_run_that_was_cut_off_is_answered_and_said_to_have_no_end(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01cut", SLOW[:-1])
    run.database.unlink()
    with run.jsonl.open("rb+") as file:
        file.truncate(run.jsonl.stat().st_size - 20)  # the last line, with the findings, is torn

    done = otel_ml(tmp_path, "why", "01cut", "80-119")

    assert done.returncode == 0, done.stderr
    assert "Cannot tell: +15 ms of it is in forward" in " ".join(done.stdout.split())
    assert "the run has no end: its state is 'running'" in done.stdout


def test_what_names_hold_reaches_no_terminal(tmp_path: Path) -> None:
    hostile = event("moved\x1b[31m", 80, "\x1b]0;title\x07 and \r gone")
    write_run(tmp_path, "01odd", job(slow=range(80, 120), extra_s=0.015, more=[hostile]))

    done = otel_ml(tmp_path, "why", "01odd", FORCE_COLOR="1")

    assert "Coincided" in done.stdout
    assert not {"\x1b", "\x07", "\r"} & set(otel_ml(tmp_path, "why", "01odd", NO_COLOR="1").stdout)
    assert "]0;title\x07" not in done.stdout


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["four"], "Expected one, as in 5, or the first and the last, as in 48-52"),
        (["9-3"], "Write 3-9"),
        (["--metric", "lost"], "otel-ml explain unknown-metric"),
    ],
)
def test_what_cannot_be_meant_is_answered_with_what_to_type(tmp_path: Path, asked: list[str], said: str) -> None:
    write_run(tmp_path, "01slow", SLOW)

    done = otel_ml(tmp_path, "why", "01slow", *asked)

    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert os.linesep + "Traceback" not in done.stderr


def test_of_a_run_that_failed_the_end_of_the_traceback_comes_first(tmp_path: Path) -> None:
    trace = "\n".join(f"    line {number}" for number in range(40))
    text = f"ValueError: no\n\n    Traceback (most recent call last):\n{trace}"
    write_run(tmp_path, "01failed", numbered([*SLOW[:-1], event("otel_ml/failure/rank_3", 119, text)]))

    shown = otel_ml(tmp_path, "why", "01failed").stdout.splitlines()

    first = shown.index("line 32")
    assert shown[first : first + 9] == [*(f"line {number}" for number in range(32, 40)), ""]
    assert "Traceback (most recent call last):" not in shown
