"""TLS and a bearer token between every pair of hops; whoever has the wrong ones is refused, and told so."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.collector.certificates import Authority, Certificate
from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.pipeline import Collector, Service, experiment_of, ranks, training
from tests.e2e.jobs import all_finished, environment, finished, processes, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TOKEN = "the-token-of-this-test"


@dataclass
class Hops:
    """Who has which credentials; a test makes one of them wrong."""

    authority: Authority
    service: Certificate
    gateway: Certificate
    agent: Certificate
    token: str = TOKEN


@pytest.fixture
def hops(tmp_path: Path) -> Hops:
    authority = Authority(tmp_path / "tls")
    return Hops(authority, *(authority.certificate(name) for name in ("service", "gateway", "agent")))


def service_of(hops: Hops, folder: Path) -> Service:
    file = folder / "otel-ml.yaml"
    file.write_text(f"listen:\n  tls:\n    certificate: {hops.service.certificate}\n    key: {hops.service.key}\n")
    return Service(folder, options=["--config", file], OTEL_ML_TOKEN=TOKEN, authority=hops.authority.file)


def collector_of(hops: Hops, folder: Path, kind: str, certificate: Certificate, **variables: object) -> Collector:
    return Collector(
        folder, kind, "secure", name=kind, authority=hops.authority.file, OTEL_ML_TOKEN=hops.token,
        OTEL_ML_TLS_CA=hops.authority.file, OTEL_ML_TLS_CERTIFICATE=certificate.certificate,
        OTEL_ML_TLS_KEY=certificate.key, **variables,
    )  # fmt: skip


def test_a_job_goes_through_agent_and_gateway_with_tls_and_token_on_every_hop(hops: Hops, tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path)
    (tmp_path / "targets").mkdir()
    with ExitStack() as stack:
        service = stack.enter_context(service_of(hops, tmp_path))
        gateway = stack.enter_context(
            collector_of(hops, tmp_path, "gateway", hops.gateway, OTEL_ML_SERVICE=service.grpc)
        )
        agent = stack.enter_context(
            collector_of(
                hops, tmp_path, "agent", hops.agent, OTEL_ML_GATEWAY=gateway.grpc,
                OTEL_ML_SCRAPE=tmp_path / "targets", OTEL_ML_EXPERIMENT_ID=f"{experiment}-node",
            )
        )  # fmt: skip
        commands = ranks(
            tmp_path, agent.endpoint, seed=1, roles={"trainer": 2}, steps=20, pause=0.02,
            OTEL_ML_EXPERIMENT_ID=experiment, OTEL_EXPORTER_OTLP_CERTIFICATE=hops.authority.file,
            OTEL_EXPORTER_OTLP_HEADERS=f"authorization=Bearer%20{TOKEN}",
        )  # fmt: skip
        with training(commands, tmp_path):
            pass
        service.wait_for_the_end_of(experiment)
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment), ["jsonl"])


def wrong_token(env: dict[str, object], _hops: Hops) -> None:
    env["OTEL_ML_TOKEN"] = "wrong"


def unknown_authority(env: dict[str, object], hops: Hops) -> None:
    env["OTEL_EXPORTER_OTLP_CERTIFICATE"] = Authority(hops.authority.file.parent / "other", "stranger").file


def plain_text(env: dict[str, object], _hops: Hops) -> None:
    env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://{}"


def expired_certificate(_env: dict[str, object], hops: Hops) -> None:
    hops.gateway = hops.service = hops.authority.certificate("expired", days=-1)


class Said(NamedTuple):
    """What each side has to say about it."""

    rank: str
    collector: str
    service: str


WRONG: dict[str, tuple[Callable[[dict[str, object], Hops], None], Said]] = {
    # The Collector 0.159 answers 401 and writes nothing (confighttp, configgrpc): the sender's line has to do.
    "a wrong token": (wrong_token, Said("401", "", "Refused 127.0.0.1: its bearer token is missing or wrong")),
    "an authority nobody knows": (
        unknown_authority, Said("certificate", "TLS handshake error", "Refused a sender: the TLS handshake failed"),
    ),
    "plain text to a TLS port": (
        plain_text, Said("https://", "TLS handshake error", "Refused a sender: it does not speak TLS"),
    ),
    "an expired certificate": (
        expired_certificate, Said("certificate", "TLS handshake error", "Refused a sender: the TLS handshake failed"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("receiver", ["collector", "service"])
@pytest.mark.parametrize(("spoil", "said"), WRONG.values(), ids=WRONG)
def test_a_rank_with_something_wrong_is_refused_and_both_sides_say_why(
    hops: Hops, tmp_path: Path, receiver: str, spoil: Callable[[dict[str, object], Hops], None], said: Said
) -> None:
    env: dict[str, object] = {
        "OTEL_ML_TOKEN": TOKEN,
        "OTEL_EXPORTER_OTLP_CERTIFICATE": hops.authority.file,
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://{}",
    }
    spoil(env, hops)
    program: Collector | Service
    if receiver == "collector":
        program = collector_of(hops, tmp_path, "gateway", hops.gateway, OTEL_ML_SERVICE="127.0.0.1:1")
    else:
        program = service_of(hops, tmp_path)
    program.launch()
    try:
        until(lambda: listens(program.http), seconds=60)
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = str(env["OTEL_EXPORTER_OTLP_ENDPOINT"]).format(program.http)
        command = [sys.executable, "-m", "tests.e2e.loop", 40, 0.05]
        rank = environment(OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path), XDG_RUNTIME_DIR=tmp_path, **env)
        line = finished(command, rank, tmp_path)
        # A handshake that a sender breaks off is over for it before the receiver has noticed.
        until(lambda: getattr(said, receiver) in program.said)
    finally:
        program.kill()

    assert said.rank in line


def test_a_service_that_hangs_when_a_rank_leaves_does_not_hide_that_it_was_not_trusted(
    hops: Hops, tmp_path: Path
) -> None:
    expired_certificate({}, hops)
    service = service_of(hops, tmp_path)
    service.launch()
    try:
        until(lambda: listens(service.http), seconds=60)
        rank = environment(
            OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path), XDG_RUNTIME_DIR=tmp_path, OTEL_ML_TOKEN=TOKEN,
            OTEL_EXPORTER_OTLP_CERTIFICATE=hops.authority.file, OTEL_EXPORTER_OTLP_ENDPOINT=f"https://{service.http}",
        )  # fmt: skip
        with processes([([sys.executable, "-m", "tests.e2e.loop", 100, 0.05], rank)], tmp_path) as started:
            until(lambda: "Refused a sender: the TLS handshake failed" in service.said, seconds=60)
            assert service.process is not None
            service.process.send_signal(signal.SIGSTOP)
            [line] = all_finished(started)
    finally:
        service.kill()

    assert "certificate verify failed" in line


def listens(address: str) -> bool:
    """Whether somebody takes connections; a health check would have to trust the certificate."""
    host, _, port = address.rpartition(":")
    with closing(socket.socket()) as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_collector_with_a_wrong_token_for_the_service_is_refused_and_both_say_so(hops: Hops, tmp_path: Path) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(service_of(hops, tmp_path))
        hops.token = "another"
        gateway = stack.enter_context(
            collector_of(hops, tmp_path, "gateway", hops.gateway, OTEL_ML_SERVICE=service.grpc)
        )
        send_something(hops, tmp_path, gateway)
        until(lambda: "The bearer token is missing or wrong" in gateway.said, seconds=60)
        until(lambda: "Refused 127.0.0.1: its bearer token is missing or wrong" in service.said, seconds=60)

    assert "Unauthenticated" in gateway.said


def trusting(hops: Hops, folder: Path, address: str) -> Collector:
    return collector_of(hops, folder, "gateway", hops.gateway, OTEL_ML_SERVICE=address)


def trusting_another_authority(hops: Hops, folder: Path, address: str) -> Collector:
    gateway = trusting(hops, folder, address)
    gateway.env["OTEL_ML_TLS_CA"] = str(Authority(folder / "other", "stranger").file)
    return gateway


def without_tls(_hops: Hops, folder: Path, address: str) -> Collector:
    return Collector(folder, "gateway", OTEL_ML_SERVICE=address)


NO_AGREEMENT: dict[str, tuple[int, Callable[[Hops, Path, str], Collector], str]] = {
    "an authority nobody knows": (1, trusting_another_authority, "certificate signed by unknown authority"),
    "an expired certificate": (-1, trusting, "certificate has expired"),
    "plain text to a TLS port": (1, without_tls, "Unavailable"),
}


@pytest.mark.parametrize(("days", "gateway_to", "at_the_collector"), NO_AGREEMENT.values(), ids=NO_AGREEMENT)
def test_a_collector_that_cannot_agree_on_tls_with_the_service_keeps_the_data_and_both_say_so(
    hops: Hops, tmp_path: Path, days: int, gateway_to: Callable[[Hops, Path, str], Collector], at_the_collector: str
) -> None:
    hops.service = hops.authority.certificate("service", days=days)
    service = service_of(hops, tmp_path)
    service.launch()
    try:
        until(lambda: listens(service.http), seconds=60)
        with gateway_to(hops, tmp_path, service.grpc) as gateway:
            send_something(hops, tmp_path, gateway)
            until(lambda: at_the_collector in gateway.said, seconds=60)
            until(lambda: "handshake" in service.said.lower(), seconds=60)
    finally:
        service.kill()

    assert "Dropping data" not in gateway.said


def send_something(hops: Hops, folder: Path, gateway: Collector) -> None:
    commands = ranks(
        folder, gateway.endpoint, seed=1, roles={"trainer": 1}, steps=5, pause=0.02,
        OTEL_ML_EXPERIMENT_ID=experiment_of(folder), OTEL_EXPORTER_OTLP_CERTIFICATE=hops.authority.file,
        OTEL_ML_TOKEN=hops.token,
    )  # fmt: skip
    with training(commands, folder):
        pass


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with Collector(tmp_path, "gateway", name="first") as first:
        second = Collector(tmp_path, "gateway", name="second")
        second.env["OTEL_ML_GATEWAY_GRPC"] = first.grpc
        second.launch()
        assert second.process is not None
        code = second.process.wait(timeout=30)

    assert code != 0
    assert first.grpc in second.said
    assert "address already in use" in second.said
