"""Ask an address whether an otel_ml service is there, without leaving anything in a run.

The probe is one OTLP point without `ml.experiment.id`: an otel_ml service rejects it by `partial_success` and names
that key (CONTRACT §4); no other receiver does.
"""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from otel_ml.config import Endpoint
from otel_ml.wire.attributes import EXPERIMENT_ID

__all__ = ["Answer", "probe", "rejected_so_far", "service_version"]

_TIMEOUT_S = 5.0
_REJECTED = re.compile(r"^otel_ml_rejected\w*(?:\{[^}]*\})?\s+([0-9.e+]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        accepted: the endpoint took the request.
        is_ours: it is an otel_ml service that answered.
        detail: the error, or the endpoint's sentence.
    """

    accepted: bool
    is_ours: bool
    detail: str


def probe(endpoint: Endpoint) -> Answer:
    """Send the probe to `endpoint` over its protocol, with its headers and certificates."""
    return _over_grpc(endpoint) if endpoint.protocol == "grpc" else _over_http(endpoint)


def service_version(url: str, endpoint: Endpoint | None = None) -> str | None:
    """Return the version of the otel_ml service at a base URL; None where none answers."""
    try:
        found = json.loads(_get(f"{url.rstrip('/')}/healthz", endpoint))
    except (OSError, HTTPException, ValueError):
        return None
    return str(found.get("version")) if isinstance(found, dict) and found.get("service") == "otel_ml" else None


def rejected_so_far(url: str, endpoint: Endpoint | None = None) -> float:
    """Return how many points the service at a base URL has rejected; 0 where it does not say."""
    try:
        text = _get(f"{url.rstrip('/')}/metrics", endpoint)
    except (OSError, HTTPException):
        return 0.0
    return sum(float(value) for value in _REJECTED.findall(text))


def _request() -> bytes:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="otel_ml.doctor")
    metric.gauge.data_points.add(as_double=1.0)
    return bytes(request.SerializeToString())


def _answered(content: bytes) -> Answer:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

    response = ExportMetricsServiceResponse()
    try:
        response.ParseFromString(content)
    except ValueError:
        return Answer(accepted=False, is_ours=False, detail="the answer is not OTLP")
    said = response.partial_success.error_message
    return Answer(accepted=True, is_ours=EXPERIMENT_ID in said, detail=said)


def _over_http(endpoint: Endpoint) -> Answer:
    url = endpoint.signals.get("/v1/metrics") or f"{endpoint.url.rstrip('/')}/v1/metrics"
    headers = {**endpoint.headers, "Content-Type": "application/x-protobuf"}
    request = urllib.request.Request(url, data=_request(), headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=_tls(endpoint)) as response:
            return _answered(response.read())
    except urllib.error.HTTPError as error:
        return Answer(accepted=False, is_ours=False, detail=f"HTTP {error.code} {error.reason}")
    except (OSError, HTTPException, ValueError) as error:
        return Answer(accepted=False, is_ours=False, detail=str(getattr(error, "reason", error)))


def _over_grpc(endpoint: Endpoint) -> Answer:
    try:
        import grpc
    except ImportError:
        return Answer(accepted=False, is_ours=False, detail="grpcio is missing: pip install 'otel-ml[grpc]'")
    url = endpoint.signals.get("/v1/metrics") or endpoint.url
    target = url.rpartition("://")[2].rstrip("/")
    plain = endpoint.insecure or url.startswith("http://")
    channel = grpc.insecure_channel(target) if plain else grpc.secure_channel(target, _grpc_credentials(endpoint))
    call = channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
    metadata = [(name.lower(), value) for name, value in endpoint.headers.items()]
    try:
        return _answered(call(_request(), timeout=_TIMEOUT_S, metadata=metadata))
    except grpc.RpcError as error:
        return Answer(accepted=False, is_ours=False, detail=f"gRPC {error.code().name}: {error.details()}")
    finally:
        channel.close()


def _get(url: str, endpoint: Endpoint | None) -> str:
    headers = dict(endpoint.headers) if endpoint is not None else {}
    request = urllib.request.Request(url, headers=headers)
    context = _tls(endpoint) if endpoint is not None else None
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as response:
        return str(response.read().decode())


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=endpoint.certificate or None)
    if endpoint.client_certificate:
        context.load_cert_chain(endpoint.client_certificate, endpoint.client_key or None)
    return context


def _grpc_credentials(endpoint: Endpoint) -> object:
    import grpc

    def content(path: str) -> bytes | None:
        return Path(path).read_bytes() if path else None

    return grpc.ssl_channel_credentials(
        content(endpoint.certificate), content(endpoint.client_key), content(endpoint.client_certificate)
    )
