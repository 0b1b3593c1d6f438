"""The actor that hosts the service, where Ray's store fails; what it does in a cluster is in `tests/e2e`."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from opentelemetry import trace
from ray.experimental import internal_kv

from otel_ml._internal.identity.ranks import JobPlace
from otel_ml._internal.identity.run_identity import Identity
from otel_ml.config import Config
from otel_ml.integrations import ray_service
from otel_ml.integrations.ray_service import ActorLink, ServiceHost
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


class Asked:
    """A cluster in which an actor is asked for; it never comes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.asked: list[dict[str, object]] = []
        self.environ: list[dict[str, str]] = []
        self.is_sampled: list[bool] = []
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray, "remote", lambda _: self)
        monkeypatch.setattr(internal_kv, "_internal_kv_get", self.get)  # Ray's own
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_ML_TOKEN"):
            monkeypatch.setenv(name, "")  # what a link writes is put back at the end
            monkeypatch.delenv(name)

    def get(self, name: bytes, **_: object) -> bytes | None:
        return self.kept.get(name)

    def options(self, **options: object) -> Asked:
        self.asked.append(options)
        return self

    def remote(self, environ: dict[str, str]) -> None:
        self.is_sampled.append(trace.get_current_span().get_span_context().trace_flags.sampled)
        self.environ.append(environ)


def link(said: list[tuple[str, str]]) -> ActorLink:
    config, identity = Config.from_env({}), Identity(RUN, "an-instance", JobPlace())
    return ActorLink(config, identity, say=lambda slug, sentence, **_: said.append((slug, sentence)))


def test_an_actor_is_asked_for_at_most_every_five_seconds_and_outside_of_the_users_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, said = Asked(monkeypatch), []
    found = link(said)

    counted = []
    for now in (0.0, 4.9, 5.0, 9.9, 10.0):
        assert found.reach(now, failing_s=0.0) is None
        counted.append(len(cluster.environ))

    assert counted == [1, 1, 2, 2, 3]
    assert cluster.environ[0]["OTEL_ML_EXPERIMENT_ID"] == RUN
    assert cluster.is_sampled == [False] * 3
    assert {(one["name"], one["namespace"], one["lifetime"]) for one in cluster.asked} == {
        (f"otel_ml-{RUN}", "otel_ml", "detached")
    }
    assert all(one["get_if_exists"] and one["num_cpus"] == 0 for one in cluster.asked)
    assert (found.is_starting, found.is_served, found.serves_here, said) == (True, False, False, [])


def test_a_service_that_is_announced_is_reached_and_told_to_children(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = Asked(monkeypatch), []
    monkeypatch.setattr(ray_service, "_known", {})  # of the test before
    with otlp_server() as server:
        server.pages = {"/healthz": {}}
        service = Service(server.url, "secret", 1, "/runs/run", ("jsonl",))
        cluster.kept[f"service/{RUN}".encode()] = service.to_json().encode()
        found = link(said)
        reached = found.reach(0.0, failing_s=0.0)
        again = found.reach(1.0, failing_s=1.0)
        told = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], os.environ["OTEL_ML_TOKEN"]
        found.close()

    assert reached is not None
    assert (reached.where, reached.exporters) == (f"/runs/run at {server.url}", ("jsonl",))
    assert (again, found.is_starting, told) == (None, False, (server.url, "secret"))
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ
    assert "OTEL_ML_TOKEN" not in os.environ


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Asked(monkeypatch)
    monkeypatch.setattr(ray_service, "_known", {})  # of the test before
    monkeypatch.setenv("OTEL_ML_TOKEN", "mine")
    with otlp_server() as server:
        server.pages = {"/healthz": {}}
        service = Service(server.url, "secret", 1, "/runs/run")
        cluster.kept[f"service/{RUN}".encode()] = service.to_json().encode()
        found = link([])
        found.reach(0.0, failing_s=0.0)
        found.close()

    assert os.environ["OTEL_ML_TOKEN"] == "mine"
