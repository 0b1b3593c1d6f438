"""The actor that hosts the service, where Ray's store fails; what it does in a cluster is in `tests/e2e`."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray.experimental import internal_kv

from otel_ml.integrations.ray_service import ServiceHost
from otel_ml.wire.rendezvous import Service, rendezvous_of
from tests.otlp_server import otlp_server
from tests.waiting import eventually

RUN = "hosted-run"


class Cluster:
    """What the actor asks of Ray: a store that is away for a moment, and an end."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.is_asked_in_vain = False
        self.killed: list[object] = []

    def put(self, name: bytes, value: bytes, **_: object) -> bool:
        self.kept[name] = value
        return False

    def delete(self, name: bytes, **_: object) -> None:
        if not self.is_asked_in_vain:
            self.is_asked_in_vain = True
            raise ConnectionError("the head node does not answer")
        del self.kept[name]


def test_an_actor_whose_run_has_ended_leaves_once_rays_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    monkeypatch.setattr(internal_kv, "_internal_kv_put", cluster.put)  # Ray's own: there is no cluster
    monkeypatch.setattr(internal_kv, "_internal_kv_del", cluster.delete)  # the same
    monkeypatch.setattr(ray, "kill", cluster.killed.append)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(current_actor="actor"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    rendezvous = rendezvous_of(RUN)
    rendezvous.create()
    with otlp_server() as server:
        server.pages = {"/healthz": {}}
        announced = rendezvous.publish(Service(server.url, "token", os.getpid(), "/runs/run"))
        monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", RUN)  # which the actor sets, and the test takes back
        ServiceHost({"OTEL_ML_EXPERIMENT_ID": RUN})
        eventually(lambda: cluster.kept)
        os.close(announced)
        rendezvous.service_file.unlink()  # as a service does that has ended
        eventually(lambda: cluster.killed)

    assert (cluster.killed, cluster.kept, cluster.is_asked_in_vain) == (["actor"], {}, True)
