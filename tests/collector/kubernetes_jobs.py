"""Start the pods of a JobSet or a TrainJob without Kubernetes: the same commands with what the controllers would set.

What a cluster does is put in its place: the image is a folder with `torchrun` and a program, the names of the job's
pods become 127.0.0.1, and the port on which the pods meet a free one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.collector.kubernetes import Pods, values_of
from tests.integration.worker_process import environment
from tests.ports import free_port

__all__ = ["Job", "image_with", "job_set", "train_job"]

Resource = Mapping[str, Any]

_COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclass(frozen=True)
class Job:
    """The pods of one job, which differ by their completion index.

    Attributes:
        container: as the controller makes it.
        size: how many pods.
        names: under which the headless Service of the JobSet knows them.
        grace: seconds between SIGTERM and SIGKILL.
        port: on which the pods meet here.
    """

    container: Resource
    size: int
    names: Sequence[str]
    grace: int
    port: str = field(default_factory=lambda: str(free_port()))

    @contextmanager
    def started(self, image: Path, pods: Pods, uid: str, **more: str) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Start all pods at once, yield them by their index, and end those that are left as the kubelet does.

        Args:
            image: folder with the program.
            pods: what else runs in the namespace.
            uid: of the JobSet.
            more: environment that takes the place of the container's.
        """
        running = []
        for index in range(self.size):
            folder = pods.folder / f"job-{index}"
            folder.mkdir(exist_ok=True)
            env = self._environment(pods, {"jobset-uid": uid, "job-completion-index": str(index)})
            said = environment(folder, {**env, **more})
            command = [self._here(_filled(part, env)) for part in self.container["command"]]
            command[0] = str(image / command[0]) if (image / command[0]).exists() else command[0]
            with (folder / "log").open("ab") as log:
                running.append(subprocess.Popen(command, env=said, cwd=image, stdout=log, stderr=log))
        try:
            yield running
        finally:
            for pod in running:
                pod.terminate()
            for pod in running:
                try:
                    pod.wait(timeout=self.grace)
                except subprocess.TimeoutExpired:
                    pod.kill()
                    pod.wait()

    def _environment(self, pods: Pods, fields: Mapping[str, str]) -> dict[str, str]:
        values = values_of(self.container["env"], pods.resources, hostIP="127.0.0.1", **fields)
        return {name: self._here(pods.here(value, {})) for name, value in values.items()}

    def _here(self, text: str) -> str:
        """Return what the pods say to each other with the addresses of this host."""
        for name in self.names:
            text = text.replace(name, "127.0.0.1")
        return re.sub(r"\b29500\b", self.port, text)


def image_with(folder: Path, program: str) -> Path:
    """Make what an image of a job has: `torchrun`, and its `train.py`."""
    folder.mkdir()
    (folder / "train.py").write_text(program)
    torchrun = folder / "torchrun"
    torchrun.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    return folder


def job_set(resource: Resource) -> Job:
    """Return the pods that JobSet and Job make of a resource with one replicated job."""
    name = resource["metadata"]["name"]
    [replicated] = resource["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (job["completionMode"], job["parallelism"]) == ("Indexed", job["completions"])
    pod = job["template"]["spec"]
    [container] = pod["containers"]
    return Job(
        container,
        job["completions"],
        [f"{name}-{replicated['name']}-0-{index}.{name}" for index in range(job["completions"])],
        pod.get("terminationGracePeriodSeconds", 30),
    )


def train_job(resource: Resource, processes: int) -> Job:
    """Return the pods of a TrainJob with the runtime `torch-distributed`, on nodes of so many GPUs.

    Kubeflow Trainer adds the variables of torchrun to the environment (its plugin `torch`).
    """
    name, trainer = resource["metadata"]["name"], resource["spec"]["trainer"]
    assert resource["spec"]["runtimeRef"]["name"] == "torch-distributed"
    names = [f"{name}-node-0-{index}.{name}" for index in range(trainer["numNodes"])]
    meeting = {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer.get("numProcPerNode", processes)),
        "PET_MASTER_ADDR": names[0],
        "PET_MASTER_PORT": "29500",
    }
    added = [
        *({"name": variable, "value": value} for variable, value in meeting.items()),
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _COMPLETION_INDEX}}},
    ]
    return Job({**trainer, "env": [*trainer["env"], *added]}, trainer["numNodes"], names, 30)


def _filled(text: str, env: Mapping[str, str]) -> str:
    """Return a part of a command as the kubelet fills it."""
    return re.sub(r"\$\((\w+)\)", lambda match: env.get(match[1], match[0]), text)
