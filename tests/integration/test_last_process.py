"""Where the service ends with the job, the last process waits for delivery: the main process of a container."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import mlflow
import pytest

import otel_ml
from tests.integration.worker_process import SOURCES, environment
from tests.plugin_package import install

CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork"]
"""When the first process of a PID namespace ends, the kernel ends all others."""

PROGRAM = """
    import otel_ml, os

    assert os.getpid() == 1
    with otel_ml.init("exp", id="one", exporters="jsonl,mlflow"):
        for step in otel_ml.steps(range(20)):
            otel_ml.log({"loss": float(step)})
    {then}
"""


def in_container(folder: Path, program: str, **variables: str) -> str:
    source = folder / "program.py"
    source.write_text(textwrap.dedent(program))
    environ = environment(folder, variables)
    command = [*CONTAINER, sys.executable, str(source)]
    done = subprocess.run(command, env=environ, cwd=folder, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def mlflow_run(folder: Path) -> Any:
    client = mlflow.MlflowClient(f"sqlite:///{folder}/runs/mlflow.db")
    experiment = client.get_experiment_by_name("exp")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    return client, run


def test_the_main_process_of_a_container_leaves_when_every_backend_has_everything(tmp_path: Path) -> None:
    said = in_container(tmp_path, PROGRAM.replace("{then}", ""))

    assert otel_ml.read(tmp_path / "runs" / "exp" / "one")["loss"][0] == list(range(20))
    client, run = mlflow_run(tmp_path)
    assert run.info.status == "FINISHED"
    assert len(client.get_metric_history(run.info.run_id, "loss")) == 20
    assert "finished. 1 process, 60 values recorded, 60 delivered, 0 lost." in said


OUTAGE = """
import pathlib, subprocess, sys
pathlib.Path("store").touch()  # a file where a folder has to be: the backend is down
ends = "import time, pathlib; time.sleep(6); store = pathlib.Path('store'); store.unlink(); store.mkdir()"  # an outage
subprocess.Popen([sys.executable, "-c", ends])
"""


def test_the_main_process_of_a_container_says_for_what_it_waits(tmp_path: Path) -> None:
    program = OUTAGE + textwrap.dedent(PROGRAM).replace("{then}", "")

    said = in_container(tmp_path, program, MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/store/mlflow.db")

    assert re.search("waiting for.*60 delivered, 0 lost[.]", said, re.DOTALL), said


SLOW_TO_OPEN = """
import time
from otel_ml_exporters import RetryableExportError
from otel_ml_exporters.testing import RecordingExporter

class SlowToOpen(RecordingExporter):
    starts = 0

    def start(self, run):
        SlowToOpen.starts += 1
        if SlowToOpen.starts == 1:
            raise RetryableExportError("down")
        time.sleep(12)  # longer than a backend that does not answer is waited for
        super().start(run)
"""


def test_the_main_process_of_a_container_waits_for_a_backend_that_opens_slowly_after_an_outage(tmp_path: Path) -> None:
    install(tmp_path, {"slow": SLOW_TO_OPEN}, "slow = slow:SlowToOpen")  # beside the program
    program = PROGRAM.replace("{then}", "").replace("mlflow", "slow")

    said = in_container(tmp_path, program, PYTHONPATH=os.pathsep.join([str(tmp_path), SOURCES]))

    assert "finished. 1 process, 60 values recorded, 60 delivered, 0 lost." in said, said


HOLDS_THE_INTERPRETER = """
import pathlib, re, time
from otel_ml_exporters.testing import RecordingExporter

class HoldsTheInterpreter(RecordingExporter):
    def start(self, run):
        pathlib.Path("opens").touch()
        ends = time.monotonic() + 14  # longer than a service that does not answer is waited for
        while time.monotonic() < ends:
            re.match("(a+)+b", "a" * 26)  # for seconds nothing else runs in this process, as in a large import
        super().start(run)
"""


RECORDS_MEANWHILE = """
import pathlib, time
while not pathlib.Path("opens").exists():
    time.sleep(0.01)  # between two looks
for step in range(20, 40):
    otel_ml.log({"loss": float(step)}, step=step)
"""


@pytest.mark.parametrize(("further", "values"), [("", 60), (RECORDS_MEANWHILE, 80)], ids=["before", "meanwhile"])
def test_the_main_process_of_a_container_waits_for_a_service_that_cannot_answer_while_a_backend_opens(
    tmp_path: Path, further: str, values: int
) -> None:
    install(tmp_path, {"holds": HOLDS_THE_INTERPRETER}, "holds = holds:HoldsTheInterpreter")
    within = textwrap.indent(further, "    ")
    program = textwrap.dedent(PROGRAM).replace("mlflow", "holds").replace("{then}", within)

    said = in_container(tmp_path, program, PYTHONPATH=os.pathsep.join([str(tmp_path), SOURCES]))

    assert f"finished. 1 process, {values} values recorded, {values} delivered, 0 lost." in said, said
    assert said.count("waiting for the service, which is alive and does not get on") == 1, said


def test_a_job_below_shells_of_a_container_is_delivered_by_its_own_account_and_recover_finds_nothing_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(
        "import otel_ml\notel_ml.init('exp', id='one', exporters='jsonl')\notel_ml.log({'loss': 1.0}, step=0)\n"
    )
    environ = environment(tmp_path)

    def ran(*command: str) -> str:
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    ran(*CONTAINER, "sh", "-c", f"sh -c '{sys.executable} program.py; true'; exit")
    shown = ran(sys.executable, "-m", "otel_ml_service", "show", "one")
    recovered = ran(sys.executable, "-m", "otel_ml_service", "recover")

    assert re.search(r"^jsonl +delivered$", shown, re.MULTILINE), shown
    assert "one: nothing was missing: 1 value delivered to jsonl before, 0 lost" in recovered


def test_who_may_not_wait_says_what_is_pending_and_does_not_call_it_finished(tmp_path: Path) -> None:
    said = in_container(tmp_path, PROGRAM.replace("{then}", ""), OTEL_ML_EXIT_WAIT="1")

    assert "finished." not in said
    assert "not closed" in said or "delivered to" in said or "on their way" in said or "not acknowledged" in said
    assert "The service on this host" not in said  # it ends with this process


def test_a_signal_does_not_end_the_recording_of_a_main_process_that_it_does_not_end(tmp_path: Path) -> None:
    program = """
        import otel_ml, os, signal

        with otel_ml.init("exp", id="one", exporters="jsonl"):
            for step in otel_ml.steps(range(20)):
                otel_ml.log({"loss": float(step)})
                if step == 10:
                    os.kill(1, signal.SIGTERM)
    """

    said = in_container(tmp_path, program)

    assert otel_ml.read(tmp_path / "runs" / "exp" / "one")["loss"][0] == list(range(20))
    assert "finished. 1 process" in said
