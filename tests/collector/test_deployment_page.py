"""The commands of docs/deployment.md bring every step of a job to the backends: on one node, on a cluster, with SLURM.

Hosts of the page are this one, its ports free ones, `/etc/otel-ml` and `/var/lib/otel-ml` folders of the test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import otel_ml
from tests.collector.pipeline import CONFIG, OTELCOL, answers
from tests.collector.test_secure import listens
from tests.docs.page import blocks_of
from tests.docs.test_blocks import with_commands
from tests.e2e.jobs import ROOT, finished, until
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "deployment.md"
BLOCKS = list(blocks_of(PAGE))
HERE = Path(__file__).relative_to(ROOT).as_posix()
RUN_HERE = [block.code for block in BLOCKS if block.argument == HERE and block.language == "bash"]
SERVE, GATEWAY, TRAIN, CERTIFICATES, SECURE_SERVE, SECURE_GATEWAY, SECURE_AGENT, SECURE_TRAIN, SBATCH = RUN_HERE

PORTS = ("4317", "4318", "14317", "14318", "24317", "24318", "13133", "13134")

SRUN = """#!/usr/bin/env bash
# A stand-in for SLURM's, for one node: starts one process, or as many as --ntasks-per-node says in the script.
export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_NODEID=0
case "$*" in
  --overlap*) while [[ $1 == --* ]]; do shift; done; exec "$@" ;;
esac
for rank in 0 1; do SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" & tasks="${tasks:-} $!"; done
for task in $tasks; do wait "$task" || exit 1; done
"""


class Page:
    """The page's commands on this host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in PORTS}
        (folder / "collector-config").symlink_to(CONFIG)
        (folder / "runtime").mkdir(mode=0o700)
        (folder / "etc").mkdir()
        finished(["bash", "-euc", CERTIFICATES], os.environ, folder / "etc")
        env = with_commands(folder)
        listening = {
            "OTEL_ML_LISTEN_GRPC": "127.0.0.1:4317", "OTEL_ML_LISTEN_HTTP": "127.0.0.1:4318",
            "OTEL_ML_SERVICE": "127.0.0.1:4317",
            "OTEL_ML_GATEWAY_GRPC": "127.0.0.1:14317", "OTEL_ML_GATEWAY_HTTP": "127.0.0.1:14318",
            "OTEL_ML_GATEWAY_HEALTH": "127.0.0.1:13133", "OTEL_ML_AGENT_HEALTH": "127.0.0.1:13134",
            "OTEL_ML_AGENT_GRPC": "127.0.0.1:24317", "OTEL_ML_AGENT_HTTP": "127.0.0.1:24318",
        }  # fmt: skip
        env |= {name: self.here(address) for name, address in listening.items()}
        self.env = {**env, "OTELCOL": str(OTELCOL), "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "runtime")}
        self.env["OTEL_ML_DIR"] = str(folder / "runs")
        for block in BLOCKS:
            if block.marker == "file":
                (folder / str(block.argument)).write_text(self.here(block.code))

    def here(self, code: str) -> str:
        """Return a block with the addresses and folders of this test."""
        code = re.sub(r"(service|gateway)\.example", "127.0.0.1", code).replace("0.0.0.0", "127.0.0.1")
        code = code.replace("/etc/otel-ml", str(self.folder / "etc")).replace(
            "/var/lib/otel-ml", str(self.folder / "var")
        )
        return re.sub(r"(?<=:)(\d{4,5})\b", lambda found: self.ports.get(found[1], found[1]), code)

    @contextmanager
    def running(self, code: str, port: str, env: Mapping[str, str] | None = None) -> Iterator[None]:
        """Run a block beside the others, from when it listens on a port of the page to the end."""
        name = f"{port}.log"
        with (self.folder / name).open("wb") as log:
            shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", self.here(code)],
                cwd=self.folder, env={**self.env, **(env or {})}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            until(lambda: self.listens(shell, port), seconds=120)
            yield
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
            shell.wait(timeout=60)
            print(f"--- {name}\n{(self.folder / name).read_text()[-3000:]}")

    def listens(self, shell: subprocess.Popen[bytes], port: str) -> bool:
        assert shell.poll() is None, f"It ended by itself:\n{(self.folder / f'{port}.log').read_text()}"
        health = {"14318": "13133", "24318": "13134"}.get(port)
        if health:
            return answers(f"http://127.0.0.1:{self.ports[health]}/")
        return listens(f"127.0.0.1:{self.ports[port]}")

    def run(self, code: str, **env: str) -> None:
        """Run a block to its end."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(code)],
            cwd=self.folder, env={**self.env, **env}, capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def shows_everything(self) -> bool:
        runs = list(self.folder.glob("runs/digits/*/metrics.jsonl"))
        return len(runs) == 1 and otel_ml.read(runs[0].parent).get("loss", ((), ()))[0] == list(range(20))


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


def test_the_commands_for_one_node(page: Page) -> None:
    with ExitStack() as stack:
        stack.enter_context(page.running(SERVE, "4318"))
        stack.enter_context(page.running(GATEWAY, "14318"))
        page.run(TRAIN)
        until(page.shows_everything, seconds=120)


def test_the_commands_for_a_cluster(page: Page) -> None:
    with ExitStack() as stack:
        stack.enter_context(page.running(SECURE_SERVE, "4318"))
        stack.enter_context(page.running(SECURE_GATEWAY, "14318"))
        stack.enter_context(page.running(SECURE_AGENT, "24318"))
        page.run(SECURE_TRAIN)
        until(page.shows_everything, seconds=120)


def test_the_batch_script_for_slurm(page: Page) -> None:
    (page.folder / "var" / "engines").mkdir(parents=True)  # each node has it
    srun = page.folder / ".bin" / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    with ExitStack() as stack:
        stack.enter_context(page.running(SECURE_SERVE, "4318"))
        stack.enter_context(page.running(SECURE_GATEWAY, "14318"))
        # The script ends with its ranks; SLURM then ends the agent, here the test does. Ranks so short may have ended
        # before their agent had started: then they say that this brings what they have left.
        job = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "2", "SLURM_NNODES": "1"}
        stack.enter_context(page.running(f"{SBATCH}\notel-ml recover --timeout 60\nwait", "24318", job))
        until(page.shows_everything, seconds=120)
