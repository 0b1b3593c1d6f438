"""The recipes of docs/operations.md, as they stand there, for a real service and a real job.

`/etc/otel-ml`, `/var/lib` and `/var/backups` of the page are folders of the test.
"""

from __future__ import annotations

import configparser
import http.client
import os
import pwd
import re
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_ml
from tests.benchmarks.long_run import write_long_run
from tests.certificates import certificates
from tests.docs.page import blocks_of
from tests.docs.test_blocks import with_commands
from tests.e2e.jobs import ROOT
from tests.integration.conftest import Sender
from tests.integration.worker_process import environment, start
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(300)

PAGE = ROOT / "docs" / "operations.md"
BLOCKS = [block.code for block in blocks_of(PAGE) if block.argument == "tests/integration/test_operations.py"]
CONFIG, SERVE, UNIT, TAKE_BOTH, GIVE_NEW, END_OLD, RENEW, BACK_UP, RESTORE, RETAIN, TASK_PROLOG, EPILOG = BLOCKS

JOB = """
    import otel_ml, sys
    with otel_ml.init("team", id="one", name="first"):
        for step, line in enumerate(sys.stdin):
            otel_ml.log({"loss": float(step)}, step=step)
            print(otel_ml.flush(float(line)), flush=True)
"""


class Host:
    """A host on which the page is followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.context: ssl.SSLContext | None = None
        self.service: subprocess.Popen[str] | None = None
        self.jobs: list[subprocess.Popen[str]] = []
        for name in ("etc", "var", "backups"):
            (folder / name).mkdir()
        self.environ = {
            **with_commands(folder),
            "OTEL_ML_LISTEN_HTTP": f"127.0.0.1:{self.port}",
            "OTEL_ML_LISTEN_GRPC": f"127.0.0.1:{free_port()}",
        }
        (folder / "etc" / "otel-ml.yaml").write_text(self.here(CONFIG))
        self.put("tokens", "old-token\n")
        self.put("token", "old-token\n")

    def here(self, text: str) -> str:
        places = {"/etc/otel-ml": "etc", "/var/lib": "var", "/var/backups": "backups"}
        for place, name in places.items():
            text = text.replace(place, str(self.folder / name))
        return text.replace("service.example:4318", f"127.0.0.1:{self.port}")

    def put(self, name: str, text: str) -> None:
        (self.folder / "etc" / name).write_text(text)

    @property
    def runs(self) -> Path:
        return self.folder / "var" / "otel-ml"

    def bash(self, block: str, **variables: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", self.here(block)],
            env={**self.environ, **variables}, cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def serve(self, command: str = SERVE) -> None:
        line = f"exec {self.here(command)}"
        self.service = subprocess.Popen(["bash", "-c", line], env=self.environ, cwd=self.folder, text=True)
        eventually(self.answers, timeout=60)

    def answers(self) -> bool:
        for token in ("old-token", "new-token"):
            sender = Sender(self.port, token)
            if self.context is not None:
                sender.connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context)
            try:
                if sender.request("GET", "/healthz").status == 200:
                    return True
            except OSError:
                return False
            finally:
                sender.close()
        return False

    def stop(self) -> int:
        assert self.service is not None
        self.service.send_signal(signal.SIGTERM)
        return self.service.wait(timeout=90)

    def job(self, **given: str) -> Job:
        variables = given or {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_ML_TOKEN_FILE": os.fspath(self.folder / "etc" / "token"),
        }
        found = Job(start(JOB, environment(self.folder, variables), self.folder))
        self.jobs.append(found.process)
        return found

    def stored(self) -> list[int]:
        file = self.runs / "team" / "one" / "metrics.jsonl"
        return otel_ml.read(file, "loss").get("loss", ([], []))[0] if file.exists() else []

    def close(self) -> None:
        for process in [*self.jobs, *filter(None, [self.service])]:
            process.kill()
            process.wait()


class Job:
    """A job that records a step when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def step(self, seconds: float) -> bool:
        """Record a step, and return whether it was delivered within `seconds`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip() == "True"

    def end(self) -> None:
        _, errors = self.process.communicate(timeout=90)
        assert self.process.returncode == 0, errors


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.close()


def test_a_token_is_rotated_without_losing_a_step_and_the_old_one_ends(host: Host) -> None:
    host.serve()
    job = host.job()

    delivered = [job.step(30.0)]
    host.bash(TAKE_BOTH)
    delivered.append(job.step(30.0))
    host.bash(GIVE_NEW)
    delivered.append(job.step(30.0))
    host.bash(END_OLD)
    delivered.append(job.step(60.0))
    job.end()

    old = Sender(host.port, "old-token")
    assert old.request("GET", "/healthz").status == 401
    old.close()
    assert delivered == [True] * 4
    eventually(lambda: host.stored() == [0, 1, 2, 3], timeout=60)


def test_a_certificate_is_renewed_without_losing_a_step(host: Host) -> None:
    made = certificates(host.folder)
    files = "{certificate: /etc/otel-ml/service.pem, key: /etc/otel-ml/service.key}"
    host.put("otel-ml.yaml", host.here(f"{CONFIG}listen: {{tls: {files}}}\n"))
    host.put("service.pem", made.server.read_text())
    host.put("service.key", made.server_key.read_text())
    (host.folder / "etc" / "renewed").mkdir()
    host.put("renewed/fullchain.pem", made.client.read_text())
    host.put("renewed/privkey.pem", made.client_key.read_text())
    host.context = ssl.create_default_context(cafile=str(made.authority))
    host.serve()
    job = host.job(
        OTEL_EXPORTER_OTLP_ENDPOINT=f"https://127.0.0.1:{host.port}",
        OTEL_EXPORTER_OTLP_CERTIFICATE=str(made.authority),
        OTEL_ML_TOKEN_FILE=os.fspath(host.folder / "etc" / "token"),
    )

    delivered = [job.step(30.0)]
    host.bash(RENEW)
    eventually(lambda: ssl.get_server_certificate(("127.0.0.1", host.port)) == made.client.read_text(), timeout=60)
    delivered.append(job.step(30.0))
    job.end()

    assert delivered == [True, True]
    eventually(lambda: host.stored() == [0, 1], timeout=60)


def test_what_a_task_of_slurm_left_on_its_node_is_sent_by_the_epilog(host: Host) -> None:
    said = dict(line.removeprefix("export ").split("=", 1) for line in host.bash(TASK_PROLOG).splitlines())
    job = host.job(**said)
    assert [job.step(0.1) for _ in range(3)] == [False] * 3  # the service is down
    job.process.terminate()  # as Slurm does at the time limit, and before it kills
    job.process.communicate(timeout=60)
    host.serve()

    mine = environment(host.folder)
    runtime = {name: mine[name] for name in ("XDG_RUNTIME_DIR", "OTEL_ML_DIR")}
    epilog = EPILOG if os.geteuid() == 0 else EPILOG.replace('runuser -u "$SLURM_JOB_USER" --', "")
    host.bash(epilog, SLURM_JOB_USER=pwd.getpwuid(os.geteuid()).pw_name, **runtime)

    eventually(lambda: host.stored() == [0, 1, 2], timeout=60)


def test_a_service_is_restarted_for_an_upgrade_and_what_was_recorded_meanwhile_arrives(host: Host) -> None:
    host.serve()
    job = host.job()
    assert job.step(30.0)

    ended = host.stop()
    meanwhile = job.step(0.1)
    host.serve()
    afterwards = job.step(100.0)
    job.end()

    assert (ended, meanwhile, afterwards) == (0, False, True)
    eventually(lambda: host.stored() == [0, 1, 2], timeout=60)


def test_a_backup_of_a_run_that_goes_on_is_restored_and_written_into_a_backend(host: Host) -> None:
    host.serve()
    job = host.job()
    assert job.step(30.0)
    assert job.step(30.0)
    eventually(lambda: host.stored()[:1] == [0], timeout=60)

    before = len(host.stored())
    host.bash(BACK_UP)
    job.step(30.0)
    shown = host.bash(RESTORE)
    job.end()

    restored = host.folder / "var" / "otel-ml-restored" / "team" / "one"
    steps, values = otel_ml.read(restored, "loss")["loss"]
    assert steps == list(range(len(steps)))
    assert values == [float(step) for step in steps]
    assert len(steps) >= before
    assert "loss" in shown
    assert list(restored.glob("tensorboard/events.out.tfevents.*"))
    assert host.bash("OTEL_ML_DIR=/var/lib/otel-ml-restored otel-ml runs").splitlines()[1].split()[0] == "first"
    eventually(lambda: host.stored() == [0, 1, 2], timeout=60)


def test_what_is_older_than_a_month_goes_and_the_run_that_is_recorded_stays(host: Host) -> None:
    host.serve()
    job = host.job()
    assert job.step(30.0)
    old = write_long_run(host.runs, 10, run_id="old")
    recent = write_long_run(host.runs, 10, run_id="recent")
    for path in old.path.rglob("*"):
        os.utime(path, (1.0, 1.0))

    host.bash(RETAIN)
    job.end()

    assert not old.path.exists()
    assert recent.path.exists()
    eventually(lambda: host.stored() == [0], timeout=60)


def test_the_unit_starts_the_service_and_stopping_it_ends_it_in_time(host: Host) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT)
    written = host.folder / "otel-ml.service"
    written.write_text(UNIT)

    host.serve(unit["Service"]["ExecStart"])
    job = host.job()
    assert job.step(30.0)
    job.end()

    assert host.stop() == 0
    assert int(unit["Service"]["TimeoutStopSec"]) >= 60
    assert host.stored() == [0]


def test_the_formula_of_the_page_tells_what_a_rank_keeps_while_the_service_is_away(host: Host) -> None:
    [row] = re.findall(r"\| a step of a rank, .*? \| (\d+) \+ v × \(n \+ (\d+)\) \|", PAGE.read_text())
    [span] = re.findall(r"\| a span \| (\d+) \+ n \|", PAGE.read_text())
    values, characters, spans, steps = 10, 30, 3, 300
    job = """
        import otel_ml
        names = [f"{number:030d}" for number in range(10)]
        with otel_ml.init("team", id="one"):
            for step in range(300):
                otel_ml.set_step(step)
                for name in names[:3]:
                    with otel_ml.timed(name):
                        pass
                otel_ml.log(dict.fromkeys(names[3:], 0.5))
    """
    away = environment(host.folder, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{host.port}"})
    process = start(job, away, host.folder)
    process.communicate(timeout=90)

    kept = sum(path.stat().st_size for path in Path(away["XDG_RUNTIME_DIR"]).rglob("*.spool"))
    told = int(row[0]) + values * (characters + 5 + int(row[1])) + spans * (int(span) + characters)
    assert 0.75 < told * steps / kept < 1.35


@pytest.mark.parametrize("steps", [2_000])
def test_the_formula_of_the_page_tells_the_disk_that_a_run_needs(steps: int, tmp_path: Path) -> None:
    [row] = re.findall(r"\| a step of .*? \| (\d+) \+ v × \(2 × \(n \+ (\d+)\) \+ (\d+)\) \|", PAGE.read_text())
    [span] = re.findall(r"\| a span .*? \| (\d+) \|", PAGE.read_text())
    names = ("loss", "accuracy", "lr", "grad_norm", "time/load", "time/forward", "time/backward")

    run = write_long_run(tmp_path, steps)

    needed = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
    values = sum(2 * (len(name) + int(row[1])) + int(row[2]) for name in names)
    told = steps * (int(row[0]) + values + 3 * int(span))
    assert 0.75 < told / needed < 1.35
