"""What a run was started from, captured in a real repository, without its secrets."""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.worker_process import environment
from tests.otlp_server import Event, OtlpServer, eventually

PROGRAM = "import otel_ml\nwith otel_ml.init('exp'):\n    otel_ml.log({'x': 1}, step=0)\n    input()\n"
OF_MULTIPROCESSING = """
import multiprocessing, sys
import otel_ml

def work(may_end):
    with otel_ml.init("exp"):
        otel_ml.log({"x": 1}, step=0)
        may_end.wait()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    may_end = context.Event()
    process = context.Process(target=work, args=(may_end,))
    process.start()
    input()
    may_end.set()
    process.join()
"""
SECRET = "hf_abcdefghijklmnop"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, a remote with a password, and a change that is not committed."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "settings.py").write_text("LEARNING_RATE = 0.1\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "-m", "first")
    git(folder, "remote", "add", "origin", "https://user:pa55word@example.com/repo.git")
    (folder / "settings.py").write_text(f"LEARNING_RATE = 0.2\nAPI_KEY = '{SECRET}'\n")
    return folder


def git(folder: Path, *arguments: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def train(server: OtlpServer, folder: Path, tmp_path: Path, variables: Mapping[str, str], *arguments: str) -> None:
    """Train until the packages have arrived, which are looked up last, and end."""
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_ML_CAPTURE": "auto", **variables})
    command = [sys.executable, "train.py", *arguments]
    with subprocess.Popen(command, cwd=folder, env=environ, stdin=subprocess.PIPE) as process:
        eventually(lambda: "packages.txt" in artifacts(server) or (environ["OTEL_ML_CAPTURE"] == "off"))
        process.communicate(b"go\n", timeout=60)
    assert process.returncode == 0


def artifacts(server: OtlpServer) -> dict[str, Event]:
    return {event.attributes["ml.artifact.path_in"]: event for event in server.events("ml.artifact")}


@pytest.mark.feature("N24", "better", "in every backend, and without secrets")
def test_commit_branch_diff_packages_and_command_are_captured_without_secrets(
    server: OtlpServer, repository: Path, tmp_path: Path
) -> None:
    train(server, repository, tmp_path, {}, "--lr", "0.1", "--wandb-token", "s3cret", f"--hub={SECRET}")

    (params,) = server.events("ml.params")
    facts = params.body["otel_ml"]
    assert facts["git"] == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "main",
        "remote": "https://***@example.com/repo.git",
    }
    assert facts["command"].endswith("train.py --lr 0.1 --wandb-token *** --hub=***")
    assert facts["arguments"] == ["--lr", "0.1", "--wandb-token", "***", "--hub=***"]
    assert (facts["host"], facts["user"]) == (socket.gethostname(), getpass.getuser())
    assert facts["working_directory"] == str(repository)
    assert facts["python"] == sys.version.split()[0]
    found = artifacts(server)
    diff = found["git-diff.patch"].body.decode()
    assert "-LEARNING_RATE = 0.1\n+LEARNING_RATE = 0.2\n+API_KEY = '***'" in diff
    assert hashlib.sha256(diff.encode()).hexdigest() == found["git-diff.patch"].attributes["ml.artifact.sha256"]
    assert any(line.startswith("numpy==") for line in found["packages.txt"].body.decode().splitlines())
    sent = b"".join(message.SerializeToString() for _, _, message in server.requests)
    for secret in (SECRET, "s3cret", "pa55word"):
        assert secret.encode() not in sent


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_the_command_of_a_process_of_multiprocessing_is_that_of_its_program(
    server: OtlpServer, repository: Path, tmp_path: Path, method: str
) -> None:
    (repository / "train.py").write_text(OF_MULTIPROCESSING)

    train(server, repository, tmp_path, {}, method, "--wandb-token", "s3cret")

    (params,) = server.events("ml.params")
    assert params.body["otel_ml"]["command"] == f"{sys.executable} train.py {method} --wandb-token ***"


def test_a_clean_repository_has_no_diff(server: OtlpServer, repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "--", "settings.py")

    train(server, repository, tmp_path, {})

    assert set(artifacts(server)) == {"packages.txt"}


def test_outside_of_a_repository_the_rest_is_captured(server: OtlpServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)

    train(server, tmp_path, tmp_path, {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})

    (params,) = server.events("ml.params")
    program, place = {"command", "program", "arguments", "executable", "python"}, {"os", "host", "user"}
    assert set(params.body["otel_ml"]) == program | place | {"working_directory"}


def test_capture_can_be_switched_off(server: OtlpServer, repository: Path, tmp_path: Path) -> None:
    train(server, repository, tmp_path, {"OTEL_ML_CAPTURE": "off"})

    assert server.events("ml.params") + server.events("ml.artifact") == []
    assert len(server.points("x")) == 1
