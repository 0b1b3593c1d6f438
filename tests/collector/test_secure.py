"""TLS and a bearer token between every pair of hops; whoever has the wrong ones is refused, and told so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.collector.certificates import Authority, Certificate
from tests.collector.everything_once import assert_everything_is_there_once
from tests.collector.pipeline import Collector, Service, experiment_of, ranks
from tests.e2e.jobs import all_finished, environment, processes, until

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
        with processes(commands, tmp_path) as started:
            all_finished(started)
        service.wait_for_the_end_of(experiment)
        service.stop()

    assert_everything_is_there_once(tmp_path, service.run_of(experiment), ["jsonl"])


def no_token(env: dict[str, object], _hops: Hops) -> None:
    env["OTEL_EXPORTER_OTLP_HEADERS"] = "authorization=Bearer%20wrong"


def no_authority(env: dict[str, object], hops: Hops) -> None:
    env["OTEL_EXPORTER_OTLP_CERTIFICATE"] = Authority(hops.authority.file.parent / "other", "stranger").file


def plain_text(env: dict[str, object], _hops: Hops) -> None:
    env["OTEL_EXPORTER_OTLP_ENDPOINT"] = str(env["OTEL_EXPORTER_OTLP_ENDPOINT"]).replace("https", "http")


def expired(_env: dict[str, object], hops: Hops) -> None:
    hops.gateway = hops.authority.certificate("expired", days=-1)


Spoil = Callable[[dict[str, object], Hops], None]

WRONG: dict[str, tuple[Spoil, str, str]] = {
    "a wrong token": (no_token, "401", ""),
    "an authority nobody knows": (no_authority, "certificate", "TLS handshake error"),
    "plain text to a TLS port": (plain_text, "https://", "TLS handshake error"),
    "an expired certificate": (expired, "certificate", "TLS handshake error"),
}


@pytest.mark.parametrize(("spoil", "at_the_rank", "at_the_collector"), WRONG.values(), ids=WRONG)
def test_a_rank_with_something_wrong_is_told_what(
    hops: Hops,
    tmp_path: Path,
    spoil: Callable[[dict[str, object], Hops], None],
    at_the_rank: str,
    at_the_collector: str,
) -> None:
    env: dict[str, object] = {
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{TOKEN}",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": hops.authority.file,
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://placeholder",
    }
    spoil(env, hops)
    with collector_of(hops, tmp_path, "gateway", hops.gateway, OTEL_ML_SERVICE="127.0.0.1:1") as gateway:
        scheme = str(env["OTEL_EXPORTER_OTLP_ENDPOINT"]).partition("://")[0]
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"{scheme}://{gateway.http}"
        command = [sys.executable, "-m", "tests.e2e.loop", 40, 0.05]
        with processes([(command, environment(OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path), **env))], tmp_path) as [
            one
        ]:
            _, said = one.communicate(timeout=60)

    assert one.returncode == 0
    assert at_the_rank in said
    assert at_the_collector in gateway.said


def test_a_collector_with_a_wrong_token_for_the_service_says_so(hops: Hops, tmp_path: Path) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(service_of(hops, tmp_path))
        hops.token = "another"
        gateway = stack.enter_context(
            collector_of(hops, tmp_path, "gateway", hops.gateway, OTEL_ML_SERVICE=service.grpc)
        )
        [command] = ranks(
            tmp_path, gateway.endpoint, seed=1, roles={"trainer": 1}, steps=5, pause=0.02,
            OTEL_ML_EXPERIMENT_ID=experiment_of(tmp_path), OTEL_EXPORTER_OTLP_CERTIFICATE=hops.authority.file,
            OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20another",
        )  # fmt: skip
        with processes([command], tmp_path) as started:
            all_finished(started)
        until(lambda: "The bearer token is missing or wrong" in gateway.said, seconds=30)

    assert "Unauthenticated" in gateway.said


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
