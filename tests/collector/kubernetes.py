"""Start what rendered manifests say without Kubernetes: the same commands, environment, files and probes.

What a cluster does is put in its place: names of Services, 0.0.0.0 and the node's address become 127.0.0.1, each port a
free one, each mount a folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from tests.collector.pipeline import CONFIG, OTELCOL
from tests.e2e.jobs import environment, until
from tests.ports import free_port

__all__ = ["Pod", "Pods", "job_environment", "up"]

Resource = Mapping[str, Any]


class Pods:
    """The pods of manifests as processes of this host.

    Args:
        folder: for volumes and logs.
        manifests: as helm renders them.
    """

    def __init__(self, folder: Path, manifests: str) -> None:
        self.folder = folder
        self.resources: list[Resource] = [found for found in yaml.safe_load_all(manifests) if found]
        names = sorted({found["metadata"]["name"] for found in self.resources if found["kind"] == "Service"})
        self._names = "|".join(names)
        self._ports = {port: str(free_port()) for port in re.findall(r"\b(?:1|2)?(?:43|31)\d\d\b", manifests)}
        self.pods = [Pod(self, found) for found in self.resources if found["kind"] in {"StatefulSet", "DaemonSet"}]

    def of(self, kind: str, name: str) -> Resource:
        return next(one for one in self.resources if (one["kind"], one["metadata"]["name"]) == (kind, name))

    def port(self, said: str) -> str:
        """Return the port of this host that stands for one of the manifests."""
        return self._ports[said]

    def here(self, text: str, mounts: Mapping[str, Path]) -> str:
        """Return text of the manifests with the addresses and paths of this host."""
        text = re.sub(rf"(?<![\w.-])(?:{self._names}|0\.0\.0\.0):(?=\d)", "127.0.0.1:", text)
        if mounts:  # one pass: a folder of this host may begin as a mount does
            points = "|".join(sorted(mounts, key=len, reverse=True))
            text = re.sub(rf"(?<![\w./-])({points})(?=[/\s'\"]|$)", lambda match: str(mounts[match[1]]), text)
        return re.sub(r"(?<=:)(\d{4,5})\b", lambda match: self._ports.get(match[1], match[1]), text)


class Pod:
    """One pod of a StatefulSet or DaemonSet; it has one container, and may have one before."""

    def __init__(self, pods: Pods, owner: Resource) -> None:
        self.name: str = owner["metadata"]["name"]
        self._pods = pods
        self._spec = owner["spec"]["template"]["spec"]
        [self.container] = self._spec["containers"]
        claims = owner["spec"].get("volumeClaimTemplates", [])
        self._claims = {claim["metadata"]["name"] for claim in claims}
        self._mounts = {mount["mountPath"]: self._volume(mount["name"]) for mount in self.container["volumeMounts"]}
        if self._is_collector:
            self._mounts["/etc/otel-ml"] = CONFIG
        self.log = pods.folder / f"{self.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Do what comes before, and start the container."""
        for init in self._spec.get("initContainers", []):
            command = [self._here(part).replace("chown 10001:10001", "ls") for part in init["command"]]
            subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)
        for point in self._mounts:
            self._fill(point)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, cwd=self._pods.folder, stdout=log, stderr=subprocess.STDOUT
            )

    def stop(self) -> None:
        """End the container as the kubelet does: SIGTERM, and SIGKILL after the grace period."""
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=self._spec.get("terminationGracePeriodSeconds", 30))
            self.process.kill()
            self.process.wait()

    @property
    def command(self) -> list[str]:
        said = [self._here(part) for part in [*self.container.get("command", []), *self.container.get("args", [])]]
        return [str(OTELCOL), *said] if self._is_collector else [sys.executable, "-m", "otel_ml_service", *said[1:]]

    @property
    def environment(self) -> dict[str, str]:
        resolved = values_of(self.container["env"], self._pods.resources)
        return environment(**{name: self._here(value) for name, value in resolved.items()})

    def passes(self, probe: str) -> bool:
        """Ask one of its probes, as the kubelet does."""
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} ended by itself:\n{self.log.read_text()}"
        said = self.container[probe]
        if "exec" in said:
            command = [self._here(part) for part in said["exec"]["command"]]
            command[0] = sys.executable
            return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
        [port] = [one["containerPort"] for one in self.container["ports"] if one["name"] == said["httpGet"]["port"]]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._pods.port(str(port))}{said['httpGet']['path']}"):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    @property
    def _is_collector(self) -> bool:
        return "command" not in self.container

    def _here(self, text: str) -> str:
        return self._pods.here(text, self._mounts)

    def _volume(self, name: str) -> Path:
        """Return the folder of a volume: one for the node, of the pod's own otherwise."""
        folder = self._pods.folder / (self.name if name in self._claims or name != "node" else "") / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _fill(self, point: str) -> None:
        """Write the files of a ConfigMap or a Secret that is mounted."""
        [name] = [one["name"] for one in self.container["volumeMounts"] if one["mountPath"] == point] or [""]
        volume = next((one for one in self._spec.get("volumes", []) if one["name"] == name), {})
        files: Mapping[str, str] = {}
        if "configMap" in volume:
            files = self._pods.of("ConfigMap", volume["configMap"]["name"])["data"]
        elif "secret" in volume:
            files = self._pods.of("Secret", volume["secret"]["secretName"])["stringData"]
        for file, text in files.items():
            (self._mounts[point] / file).write_text(self._here(text))


def values_of(said: Sequence[Resource], resources: Sequence[Resource], **fields: str) -> dict[str, str]:
    """Return an environment as a kubelet makes it.

    Args:
        said: `env` of a container.
        resources: among which its Secrets are.
        fields: what a label, an annotation or a field of the pod says, by the last part of its path.
    """
    values: dict[str, str] = {}
    for one in said:
        source = one.get("valueFrom", {})
        if "secretKeyRef" in source:
            key = source["secretKeyRef"]
            secrets = [found for found in resources if found["kind"] == "Secret"]
            text = next(found for found in secrets if found["metadata"]["name"] == key["name"])["stringData"][
                key["key"]
            ]
        elif "fieldRef" in source:
            text = fields[re.split(r"[./]", source["fieldRef"]["fieldPath"].rstrip("']"))[-1]]
        else:
            text = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], one["value"])
        values[one["name"]] = text
    return values


def job_environment(pods: Pods, container: Resource, **fields: str) -> dict[str, str]:
    """Return what a container of a job gets, with the addresses of this host."""
    values = values_of(container["env"], pods.resources, hostIP="127.0.0.1", **fields)
    return {name: pods.here(value, {}) for name, value in values.items()}


@contextmanager
def up(folder: Path, manifests: str) -> Iterator[Pods]:
    """Start all pods at once, as a cluster does, and wait until they are ready."""
    pods = Pods(folder, manifests)
    try:
        for pod in pods.pods:
            pod.start()
        for pod in pods.pods:
            until(lambda pod=pod: pod.passes("readinessProbe") and pod.passes("livenessProbe"), seconds=120)
        yield pods
    finally:
        for pod in reversed(pods.pods):
            pod.stop()
