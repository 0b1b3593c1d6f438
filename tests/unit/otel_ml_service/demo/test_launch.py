"""When the demo's job is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otel_ml_service.demo import launch
from otel_ml_service.demo.launch import DemoFailedError, Launch, wait_for_service
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run


def test_a_run_is_waited_for_though_its_service_is_found_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # where nobody has announced a service
    run = write_run(tmp_path, "01abc", digits_records(steps=5))
    held = [Outbox(run.database)]
    looks = []

    def on_progress() -> None:
        looks.append(bool(held))
        if len(looks) == 3:
            held.pop().close()

    wait_for_service(Launch(run, (), 5, on_progress=on_progress, on_event=print))

    assert looks == [True, True, True]


def test_a_process_gets_its_rank_and_the_run_and_nothing_that_is_meant_for_other_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ML_ENDPOINT", "http://elsewhere:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://elsewhere:4318")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("WANDB_MODE", "online")
    job = Launch(RunFolder(tmp_path / "digits" / "one"), ("jsonl", "mlflow"), 5, on_progress=list, on_event=print)

    environ = dict(job.environment(3, 4))

    assert environ["OTEL_SERVICE_NAME"] == "mine"
    assert {name: value for name, value in environ.items() if name not in os.environ or value != os.environ[name]} == {
        "RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "4", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "OTEL_ML_EXPERIMENT_ID": "one", "OTEL_ML_MODE": "embedded", "OTEL_ML_DIR": str(tmp_path),
        "OTEL_ML_EXPORTERS": "jsonl,mlflow", "OTEL_ML_FLUSH_INTERVAL": "200", "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": "",
    }  # fmt: skip
    assert "OTEL_ML_ENDPOINT" not in environ
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in environ


def test_the_newest_checkpoint_that_was_evaluated_says_how_far_the_evaluator_is(tmp_path: Path) -> None:
    assert launch._evaluated(tmp_path) == -1
    for name in ("step-00019.done", "step-00119.done", "step-00139.npz"):
        (tmp_path / name).touch()

    assert launch._evaluated(tmp_path) == 119


def test_what_otel_ml_said_on_any_terminal_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "evaluator-0.log").write_text("otel_ml: a\nmine\notel_ml: b\n")
    (tmp_path / "trainer-0.log").write_text("otel_ml: b\nsays otel_ml: d\notel_ml: c\notel_ml: a\n")

    assert list(launch._own_lines(tmp_path)) == ["otel_ml: a", "otel_ml: b", "otel_ml: c"]


def test_a_process_that_fails_ends_the_demo_with_its_last_20_lines(tmp_path: Path) -> None:
    (tmp_path / "trainer-2.log").write_text("".join(f"line {number}\n" for number in range(30)))
    looks: list[int] = []
    job = Launch(RunFolder(tmp_path), (), 5, on_progress=lambda: looks.append(1), on_event=print)
    good, bad = (subprocess.Popen([sys.executable, "-S", "-c", f"raise SystemExit({code})"]) for code in (0, 3))
    good.wait()
    bad.wait()

    launch._until(job, tmp_path, {"trainer-1": good}, lambda: len(looks) == 2)
    with pytest.raises(DemoFailedError) as error:
        launch._until(job, tmp_path, {"trainer-1": good, "trainer-2": bad}, lambda: False)

    lines = "\n".join(f"line {number}" for number in range(10, 30))
    assert str(error.value) == f"The demo's trainer-2 failed (status 3). (otel-ml explain demo-failed)\n{lines}"
    assert len(looks) == 2


def test_what_still_runs_when_a_demo_ends_is_ended_and_asked_before(tmp_path: Path) -> None:
    began = time.monotonic()
    with launch._processes() as processes:
        asleep = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
        over = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(5)"])
        over.wait()
        processes.update({"asleep": asleep, "over": over})

    assert (asleep.returncode, over.returncode) == (-signal.SIGTERM, 5)
    assert time.monotonic() - began < 10


def test_who_is_killed_is_waited_for() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])

    launch._kill(process)

    assert process.returncode == -signal.SIGKILL


STAND_IN = """
import os, pathlib, sys, time
program, folder = sys.argv[1].rpartition(".")[2], pathlib.Path(sys.argv[2])
with open(os.environ["CALLS"], "a") as calls:
    calls.write(f"{program} {os.environ['RANK']} {os.environ['WORLD_SIZE']} {sys.argv[3]}\\n")
print(f"otel_ml: {program} {os.environ['RANK']} speaks")
if program == "trainer":
    for step in range(19, 240, 20) if os.environ["RANK"] == "0" else ():
        (folder / f"step-{step:05}.npz").touch()
else:
    while not ((folder / "finished").exists() and not list(folder.glob("step-*.npz"))):
        for left in sorted(folder.glob("step-*.npz")):
            left.rename(left.with_suffix(".done"))
        time.sleep(0.005)  # between two looks
"""


def test_a_job_is_four_trainers_and_an_evaluator_that_is_killed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs are others that do as quickly what the demo's leave in the folder."""
    program, calls = tmp_path / "stand_in.py", tmp_path / "calls"
    program.write_text(STAND_IN)
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(launch, "python_command", lambda *words: [sys.executable, "-S", str(program), *words])
    looks: list[int] = []
    said: list[str] = []
    run = RunFolder(tmp_path / "digits" / "one")

    launch.launch(Launch(run, ("jsonl",), 240, on_progress=lambda: looks.append(1), on_event=said.append))

    assert sorted(calls.read_text().splitlines()) == [
        "evaluator 0 1 240", "evaluator 0 1 240", *(f"trainer {rank} 4 240" for rank in range(4)),
    ]  # fmt: skip
    assert said[0] == "killed the evaluator (SIGKILL), and started it again"
    assert set(said[1:]) == {"otel_ml: evaluator 0 speaks", *(f"otel_ml: trainer {rank} speaks" for rank in range(4))}
    assert looks
