"""Does an otel_ml service answer behind the configured endpoint?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from otel_ml._internal.transport.link import where_of
from otel_ml.config import Config, Endpoint
from otel_ml.env import MODE
from otel_ml.quantities import seconds
from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml_service.cli.checks.check import Check
from otel_ml_service.cli.checks.probe import Answer, probe, probes_so_far, service_version

__all__ = ["endpoint_checks"]

_RELAY_TIMEOUT_S = 15.0
"""A Collector's queue and batch may hold a probe for some seconds."""


def endpoint_checks(service: str | None) -> Iterator[Check]:
    """Yield how telemetry travels from here, and whether it arrives; `service` is an address behind a Collector."""
    config = Config.from_env()
    endpoint = config.endpoint
    # As it was asked for: a job without an endpoint goes on as if nobody had.
    if MODE.read().value == "remote" and not endpoint.shown:
        yield Check("wrong", "OTEL_ML_MODE is remote, and no endpoint is set", "set OTEL_EXPORTER_OTLP_ENDPOINT")
        return
    if not config.is_remote:
        yield _embedded_check()
        return
    where = f"{where_of(endpoint)} over {endpoint.protocol}"
    # Before the probe: what it adds to this number shows that it came through.
    before = probes_so_far(service, endpoint) if service else 0.0
    answer = probe(endpoint)
    if answer.is_ours:
        yield Check("ok", f"an otel_ml service answers at {where}")
    elif answer.obstacle == "receiver-denied":
        yield Check(
            "wrong", f"{where} does not take the credentials of this process: {answer.detail}", _token(endpoint)
        )
    elif not answer.accepted:
        yield Check("wrong", f"{where} does not answer as OTLP does: {answer.detail}", _remedy(answer))
    elif service is None:
        yield Check(
            "note",
            f"{where} takes OTLP, but not as an otel_ml service does; whether it is a Collector in front of one, and "
            "what it takes arrives there, cannot be told from here",
            "name the service behind it, and it is tried: otel-ml doctor --service http://HOST:4318",
        )
    else:
        yield _relay_check(where, service, config, before)


def _remedy(answer: Answer) -> str:
    """Return what to do where something answers otherwise than OTLP does, or nothing."""
    # What was found says already which port or variable it is.
    if answer.obstacle == "other-protocol":
        return "use that port, or set that variable"
    # Before "SSL", which the error of a certificate that cannot be verified has in it, too.
    if "certificate" in answer.detail.lower():
        return (
            "set OTEL_EXPORTER_OTLP_CERTIFICATE to the file of the authority that signed the receiver's certificate, "
            "and use a host that the certificate names"
        )
    if "speaks TLS" in answer.detail:
        return f"begin the endpoint with https:// if the service has listen.tls; else {_START}"
    if "SSL" in answer.detail:
        return "begin the endpoint with http://, unless what answers there shall speak TLS"
    return _START


def _token(endpoint: Endpoint) -> str:
    """Return where the token is to be put right."""
    if endpoint.token_file:
        return f"put the token of the service into {endpoint.token_file} (OTEL_ML_TOKEN_FILE)"
    return "set OTEL_ML_TOKEN to the token of the service, or OTEL_ML_TOKEN_FILE to a file that has it"


_START = "start the service there (otel-ml serve), or unset the variable to have one started on this host"


def _embedded_check() -> Check:
    rendezvous = rendezvous_of("otel-ml-doctor")
    try:
        # As a job would: whether the folder can be made, and is private, is what embedded mode depends on.
        rendezvous.create()
    except OSError as error:
        return Check("wrong", f"embedded mode needs {str(rendezvous.folder.parent)!r}: {error}", "set XDG_RUNTIME_DIR")
    # Removed again, and by `rmdir`: what another doctor has there at the same time is not deleted.
    rendezvous.spool.rmdir()
    rendezvous.folder.rmdir()
    return Check("ok", "no endpoint is set: each job starts a service of its own on this host (embedded mode)")


def _relay_check(where: str, service: str, config: Config, before: float) -> Check:
    # With the credentials of the endpoint: the service behind a Collector may want the same.
    version = service_version(service, config.endpoint)
    if version is None:
        return Check("wrong", f"no otel_ml service answers at {service}", _START)
    deadline = time.monotonic() + _RELAY_TIMEOUT_S
    while time.monotonic() < deadline:
        if probes_so_far(service, config.endpoint) > before:
            return Check("ok", f"what {where} takes arrives at otel_ml {version}, {service}")
        time.sleep(0.2)
    return Check(
        "wrong",
        f"{where} took the probe, and it did not arrive at {service} within {seconds(_RELAY_TIMEOUT_S)}",
        "compare the Collector's exporter with collector-config/gateway.yaml, and see its log",
    )
