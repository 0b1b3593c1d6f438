"""Ask an address whether an otel_ml service is there, without leaving anything in a run, and as a worker would.

The probe is one OTLP point without `ml.experiment.id`: an otel_ml service rejects it by `partial_success` and names
that key (docs/protocol.md §4.2); no other receiver does. It says that it is a probe, so that nobody is alarmed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from otel_ml._internal.transport.link import transport_to
from otel_ml.config import Endpoint
from otel_ml.exceptions import MissingDependencyError
from otel_ml.wire.attributes import EXPERIMENT_ID, PROBE, ROLE

__all__ = ["Answer", "probe", "probes_so_far", "service_version"]

_TIMEOUT_S = 5.0
_ARRIVED = re.compile(r"^otel_ml_(?:probes|rejected)\w*(?:\{[^}]*\})?\s+([0-9.e+]+)", re.MULTILINE)
"""An older service counts a probe as a rejected point."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        accepted: the endpoint took the request.
        is_ours: it is an otel_ml service that answered.
        detail: the error, or the endpoint's sentence.
        obstacle: what is in the way, as a section of the catalogue, or "".
    """

    accepted: bool
    is_ours: bool
    detail: str
    obstacle: str = ""


def probe(endpoint: Endpoint) -> Answer:
    """Send the probe to `endpoint` over its protocol, with its headers and certificates, through its proxy."""
    try:
        # As a worker would send, so that what keeps a job from its receiver keeps this from it, too.
        transport = transport_to(endpoint)
    except MissingDependencyError as error:
        return Answer(accepted=False, is_ours=False, detail=str(error))
    try:
        answer = transport.post("/v1/metrics", _request(), _TIMEOUT_S)
    finally:
        transport.close()
    if answer.outcome != "ok":
        return Answer(accepted=False, is_ours=False, detail=answer.reason, obstacle=answer.obstacle or "")
    return Answer(accepted=True, is_ours=EXPERIMENT_ID in answer.message, detail=answer.message)


def service_version(url: str, endpoint: Endpoint) -> str | None:
    """Return the version of the otel_ml service at a base URL; None where none answers."""
    try:
        found = json.loads(_get(url, "/healthz", endpoint))
    except ValueError:
        return None
    return str(found.get("version")) if isinstance(found, dict) and found.get("service") == "otel_ml" else None


def probes_so_far(url: str, endpoint: Endpoint) -> float:
    """Return a number that grows when a probe arrives at the service at a base URL; 0 where it does not say."""
    return sum(float(value) for value in _ARRIVED.findall(_get(url, "/metrics", endpoint)))


def _get(url: str, path: str, endpoint: Endpoint) -> str:
    """Return what a service says at a path, with the credentials of `endpoint`; nothing where it does not."""
    # Addresses of single signals would win over this one, and of gRPC these paths know nothing.
    transport = transport_to(replace(endpoint, url=url.rstrip("/"), signals={}, protocol="http/protobuf"))
    try:
        return (transport.get(path, _TIMEOUT_S) or b"").decode("utf-8", "replace")
    finally:
        transport.close()


def _request() -> bytes:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    # The role tells a service that this is a probe, which it counts and does not report.
    resource.resource.attributes.add(key=ROLE).value.string_value = PROBE
    metric = resource.scope_metrics.add().metrics.add(name="otel_ml.doctor")
    # Without it there is no point that could be rejected.
    metric.gauge.data_points.add(as_double=1.0)
    return bytes(request.SerializeToString())
