from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import PROGRAM, Run


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


@pytest.mark.parametrize("command", ["top", "open", "diff"])
def test_a_name_with_spaces_that_stands_without_quotes_is_a_wrong_use_that_says_how_it_is_written(
    otel_ml: Run, command: str
) -> None:
    status, _, err = otel_ml(command, "my", "first", "run")

    assert status == 2
    assert "unexpected extra argument" in err
    assert "A name with spaces is written in quotes: 'my run'." in " ".join(err.split())


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
    monkeypatch.setattr("otel_ml_service.cli.replay_command._TIMEOUT_S", 0.0)  # it would wait for the run to end

    status, _, err = otel_ml("replay", live_run.id, "--to", "jsonl")

    assert status == 1
    assert "A service has run '01live' open" in err
    assert "Replay it when it is over" in err


def test_replay_names_an_unknown_exporter_before_it_waits(otel_ml: Run, live_run: RunFolder) -> None:
    status, _, err = otel_ml("replay", live_run.id, "--to", "jsonll")

    assert status == 1
    assert "Did you mean 'jsonl'?" in err
    assert "still at work" not in err


def test_a_person_who_starts_mcp_is_told_that_an_agent_does() -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [*PROGRAM, "mcp"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(theirs)
        os.write(ours, b"\x04")  # the end of what is typed
        said, told = process.communicate(timeout=60)
    os.close(ours)

    assert said == ""
    assert "An agent starts this command itself" in told
