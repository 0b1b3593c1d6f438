"""How hosts of one job find each other's service; whole jobs of several hosts are in `tests/e2e`."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml._internal.transport import multi_host
from otel_ml._internal.transport.multi_host import FirstHostLink, OtherHostLink, meeting_file, reachable_address
from otel_ml.config import Config
from otel_ml.wire.rendezvous import Service, publish, rendezvous_of
from tests.otlp_server import OtlpServer, otlp_server


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    return Config.from_env({"OTEL_ML_DIR": str(tmp_path / "shared")})


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with otlp_server() as found:
        found.pages = {"/healthz": {}}
        yield found


class Said:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def __call__(self, slug: str, sentence: str, *_: object, **__: object) -> None:
        self.said.append((slug, sentence))


def service_at(url: str) -> Service:
    return Service(url, "secret", os.getpid(), "/runs/digits/run-1", ("jsonl", "wandb"), "http://127.0.0.1:1/page")


def announce(config: Config, service: Service) -> None:
    path = meeting_file(config, "run-1")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    publish(path, service)


class TestMeetingFile:
    def test_it_is_one_file_of_the_shared_folder_for_each_run(self, config: Config) -> None:
        one, other = meeting_file(config, "run-1"), meeting_file(config, "run-2")

        assert one.parent == other.parent == config.dir / ".meeting"
        assert one != other
        assert one == meeting_file(config, "run-1")
        assert (len(one.stem), one.suffix) == (32, ".json")


class TestReachableAddress:
    @pytest.mark.parametrize("master", ["localhost", "127.0.0.1", " 127.0.0.1 "])
    def test_a_job_of_this_host_alone_meets_at_its_loopback(self, master: str) -> None:
        assert reachable_address({"MASTER_ADDR": master}) == "127.0.0.1"

    @pytest.mark.parametrize("environ", [{}, {"MASTER_ADDR": ""}, {"MASTER_ADDR": "no.such.host.invalid"}])
    def test_without_a_master_that_can_be_found_it_is_never_the_loopback(self, environ: dict[str, str]) -> None:
        found = reachable_address(environ)

        assert found
        assert not found.startswith("127.")

    def test_a_name_that_leads_to_the_loopback_is_no_way_for_other_hosts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connected: list[str] = []

        class Probe(socket.socket):
            def connect(self, address: tuple[str, int]) -> None:  # type: ignore[override]
                connected.append(address[0])

            def getsockname(self) -> tuple[str, int]:
                return ("127.0.1.1" if connected[-1] == "gpu-1" else "10.1.2.3", 0)

        monkeypatch.setattr(multi_host.socket, "socket", Probe)

        assert reachable_address({"MASTER_ADDR": "gpu-1"}) == "10.1.2.3"
        assert connected == ["gpu-1", "10.255.255.255"]
        monkeypatch.setattr(Probe, "getsockname", lambda self: ("127.0.1.1", 0))
        assert reachable_address({"MASTER_ADDR": "gpu-1"}) == socket.gethostname()


class TestFirstHost:
    def test_its_service_is_announced_to_the_other_hosts_without_its_page(self, config: Config) -> None:
        link, said = FirstHostLink(config, "run-1", say=(say := Said())), say.said
        service = service_at("http://10.0.0.7:4318")

        link._announce(service)

        file = meeting_file(config, "run-1")
        assert Service.from_json(file.read_text()) == replace(service, page="")
        assert file.parent.stat().st_mode & 0o777 == 0o700
        assert said == []

    def test_a_folder_that_cannot_be_written_is_said(self, config: Config) -> None:
        config.dir.mkdir()
        (config.dir / ".meeting").write_text("a file")
        link, said = FirstHostLink(config, "run-1", say=(say := Said())), say.said

        link._announce(service_at("http://10.0.0.7:4318"))

        ((slug, sentence),) = said
        assert slug == "several-hosts"
        assert sentence.startswith(f"{meeting_file(config, 'run-1')} cannot be written (")
        assert sentence.endswith("; the other hosts of the job will not find this one.")

    def test_its_service_listens_where_other_hosts_get_to(
        self, config: Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")

        assert FirstHostLink(config, "run-1", say=Said())._listen == "127.0.0.1:0"


class TestOtherHost:
    def test_it_joins_the_service_that_the_first_host_announces(self, config: Config, server: OtlpServer) -> None:
        link = OtherHostLink(config, "run-1", say=(say := Said()))
        before = link.reach(0.0, failing_s=0.0), link.is_starting, link.is_served
        announce(config, service_at(server.url))

        reached = link.reach(1.0, failing_s=0.0)

        assert before == (None, True, False)
        assert reached is not None
        assert reached.where == f"/runs/digits/run-1 at {server.url}"
        assert reached.exporters == ("jsonl", "wandb")
        assert (link.is_starting, link.is_served, link.serves_here) == (False, True, False)
        assert link.reach(2.0, failing_s=1.0) is None  # the same again is no news
        assert say.said == []

    def test_who_has_joined_waits_for_the_service_of_the_first_host_however_long(
        self, config: Config, server: OtlpServer
    ) -> None:
        link = OtherHostLink(config, "run-1", say=(say := Said()))
        announce(config, service_at(server.url))
        link.reach(0.0, failing_s=0.0)

        assert link.reach(10_000.0, failing_s=9_999.0) is None
        assert (link.is_starting, say.said) == (False, [])

    def test_a_service_that_answers_nobody_is_not_joined(self, config: Config) -> None:
        link = OtherHostLink(config, "run-1", say=Said())
        announce(config, service_at("http://127.0.0.1:1"))

        assert link.reach(0.0, failing_s=0.0) is None
        assert link.is_starting

    def test_a_service_that_has_gone_is_not_served_any_more(self, config: Config) -> None:
        link = OtherHostLink(config, "run-1", say=Said())
        with otlp_server() as server:
            server.pages = {"/healthz": {}}
            announce(config, service_at(server.url))
            link.reach(0.0, failing_s=0.0)
            there = link.is_served

        assert (there, link.is_served) == (True, False)

    def test_after_half_a_minute_alone_it_keeps_a_run_of_its_own_and_says_how_to_have_one(
        self, config: Config, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MASTER_ADDR", "gpu-1")
        link = OtherHostLink(config, "run-1", say=(say := Said()))
        for now in (100.0, 129.9):
            assert link.reach(now, failing_s=0.0) is None
        waiting = list(say.said)
        link.reach(130.0, failing_s=0.0)

        own = f"run-1-{socket.gethostname()}"
        assert waiting == []
        assert say.said == [
            (
                "several-hosts",
                f"The job spans hosts that do not share {config.dir}: each keeps a run of its own, here {own}. For one "
                "run, start on gpu-1: OTEL_ML_TOKEN=<secret> OTEL_ML_LISTEN_HTTP=0.0.0.0:4318 otel-ml serve; and set "
                "for all ranks: OTEL_ML_TOKEN=<secret> OTEL_EXPORTER_OTLP_ENDPOINT=http://gpu-1:4318",
            )
        ]
        assert (link.is_starting, link.is_served, link.serves_here) == (False, False, False)

    def test_what_starts_the_service_of_its_own_run_is_let_go(self, config: Config) -> None:
        link = OtherHostLink(config, "run-1", say=Said())
        link.close()  # before there is one
        for now in (0.0, 30.0):
            link.reach(now, failing_s=0.0)
        own = rendezvous_of(f"run-1-{socket.gethostname()}")
        assert link._own is not None
        assert link._own._has_lock(31.0)  # type: ignore[attr-defined]
        taken = own.acquire()
        link.close()
        handle = own.acquire()

        assert taken is None
        assert handle is not None
        os.close(handle)

    def test_the_service_of_its_own_run_is_then_found_as_on_one_host(self, config: Config, server: OtlpServer) -> None:
        link = OtherHostLink(config, "run-1", say=Said())
        for now in (0.0, 30.0):
            link.reach(now, failing_s=0.0)
        own = rendezvous_of(f"run-1-{socket.gethostname()}")
        own.create()
        handle = own.publish(service_at(server.url))

        reached = link.reach(31.0, failing_s=0.0)

        assert reached is not None
        assert reached.run_id == f"run-1-{socket.gethostname()}"
        assert (link.is_starting, link.is_served, link.serves_here) == (False, True, True)
        os.close(handle)
        link.close()
