"""Start what docker-compose.yml says without Docker: the same commands, environment, files, start order, health checks.

What a container network and volumes do is put in their place: names of services and 0.0.0.0 become 127.0.0.1, each port
a free one, each mount point a folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from tests.collector.pipeline import CONFIG, OTELCOL
from tests.e2e.jobs import ROOT, environment, until
from tests.ports import free_port

COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "Dockerfile"


def content() -> dict[str, Any]:
    """Return what the compose file says."""
    return dict(yaml.safe_load(COMPOSE.read_text()))


class Native:
    """The services of the compose file as processes of this host.

    Args:
        folder: for volumes and logs.
        variables: what `.env` would set.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.services: dict[str, dict[str, Any]] = content()["services"]
        self._variables = variables
        ports = set(re.findall(r":(\d{4,5})\b", COMPOSE.read_text())) | {"5000", "6006"}
        self.ports = {port: str(free_port()) for port in ports}
        self.mounts = {"/etc/otel-ml": str(CONFIG)}
        for service in self.services.values():
            for volume in service.get("volumes", []):
                name, point, *_ = volume.split(":")
                self.mounts[point] = str(folder / name)
                (folder / name).mkdir(exist_ok=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def here(self, text: str) -> str:
        """Return text of the compose file with the addresses and paths of this host."""
        text = re.sub(r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda m: self._variables.get(m[1], m[2] or ""), text)
        names = "|".join(self.services)
        text = re.sub(rf"(?<![\w/.-])(?:{names}|0\.0\.0\.0):(\d+)", r"127.0.0.1:\1", text)
        text = re.sub(rf"//(?:{names}):", "//127.0.0.1:", text)
        text = text.replace("0.0.0.0", "127.0.0.1")
        for point, folder in self.mounts.items():
            text = re.sub(rf"(?<![\w.-])(/*){point}(?=[/\s]|$)", rf"\g<1>{folder}", text)
        return re.sub(r"(?<=[:=])(\d{4,5})\b", lambda m: self.ports.get(m[1], m[1]), text)

    def environment(self, service: str) -> dict[str, str]:
        said = {name: self.here(str(value)) for name, value in self.services[service].get("environment", {}).items()}
        return environment(**said)

    def command(self, service: str) -> list[str]:
        """Return the command; the image's entry point comes from the Dockerfile."""
        command = [self.here(part) for part in self.services[service]["command"]]
        target = self.services[service]["build"]["target"]
        stage = DOCKERFILE.read_text().partition(f" AS {target}\n")[2].partition("\nFROM ")[0]
        entry = re.search(r'^ENTRYPOINT \["(\w+)"\]', stage, re.MULTILINE)
        whole = [*([entry[1]] if entry else []), *command]
        programs = {
            "otelcol": [str(OTELCOL)],
            "otel-ml": [sys.executable, "-m", "otel_ml_service"],
            "mlflow": [sys.executable, "-m", "mlflow"],
            "tensorboard": [sys.executable, "-m", "tensorboard.main"],
        }
        return [*programs[whole[0]], *whole[1:]]

    def is_healthy(self, service: str) -> bool:
        """Run the service's own health check."""
        process = self.processes[service]
        log = self.folder / f"{service}.log"
        assert process.poll() is None, f"{service} ended by itself:\n{log.read_text()}"
        how, *test = self.services[service]["healthcheck"]["test"]
        assert how == "CMD"
        test = [sys.executable if test[0] == "python" else test[0], *map(self.here, test[1:])]
        return subprocess.run(test, env=self.environment(service), capture_output=True, check=False).returncode == 0

    def start(self, service: str) -> None:
        """Start a service after those it depends on are healthy."""
        if service in self.processes:
            return
        for other, condition in self.services[service].get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            self.start(other)
            until(lambda name=other: self.is_healthy(name), seconds=120)
        with (self.folder / f"{service}.log").open("ab") as log:
            self.processes[service] = subprocess.Popen(
                self.command(service), env=self.environment(service), cwd=self.folder,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def stop(self, service: str) -> None:
        """End a service as `docker compose stop` does: SIGTERM, and SIGKILL after its grace period."""
        process = self.processes[service]
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
        process.kill()


@contextmanager
def up(folder: Path, **variables: str) -> Iterator[Native]:
    """Do what `docker compose up` does, and wait until everything is healthy."""
    native = Native(folder, variables)
    try:
        for service in native.services:
            native.start(service)
        for service in native.services:
            until(lambda name=service: native.is_healthy(name), seconds=120)
        yield native
    finally:
        for service in reversed(list(native.processes)):
            native.stop(service)
