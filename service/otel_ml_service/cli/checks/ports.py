"""Could a service listen where the settings say?"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

from otel_ml.config import Endpoint
from otel_ml_service import env
from otel_ml_service.cli.checks.check import Check
from otel_ml_service.cli.checks.probe import probe, service_version

__all__ = ["port_checks"]


def port_checks() -> Iterator[Check]:
    """Yield for each address of `otel-ml serve` whether it is free, ours already, or somebody else's."""
    for variable in (env.LISTEN_GRPC, env.LISTEN_HTTP):
        host, port = variable.read().value
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if _is_free(host, port):
            yield Check("ok", f"{address} is free ({variable.name})")
        elif _is_ours(address, is_grpc=variable is env.LISTEN_GRPC):
            yield Check("ok", f"an otel_ml service listens on {address} ({variable.name})")
        else:
            yield Check(
                "note",
                f"{address} is in use by another program ({variable.name})",
                f"embedded mode does not need it; for `otel-ml serve` set {variable.name} to a free address",
            )


def _is_ours(address: str, *, is_grpc: bool) -> bool:
    url = f"http://{address}"
    return (
        probe(Endpoint(url=url, protocol="grpc")).is_ours if is_grpc else service_version(url, Endpoint()) is not None
    )


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
