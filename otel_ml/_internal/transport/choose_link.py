"""Which way a process reaches its service."""

from __future__ import annotations

from pathlib import Path

from otel_ml._internal.error_reporting import Say
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.transport.embedded import EmbeddedLink
from otel_ml._internal.transport.link import Link, RemoteLink
from otel_ml._internal.transport.multi_host import FirstHostLink, OtherHostLink
from otel_ml.config import Config
from otel_ml.wire.rendezvous import run_folder

__all__ = ["choose_link", "host_folder"]


def choose_link(config: Config, identity: Identity, say: Say) -> Link:
    """Return how this process reaches its service: the endpoint, or embedded on one host or several."""
    if config.is_remote:
        return RemoteLink(config)
    if identity.place.hosts > 1:
        kind = FirstHostLink if identity.place.host == 0 else OtherHostLink
        return kind(config, identity.run_id, say=say)
    return EmbeddedLink(config, identity.run_id, say=say)


def host_folder(config: Config, identity: Identity) -> Path | None:
    """Return the run's folder where the service is certainly on this host, and writes to it; else None."""
    if config.is_remote or identity.place.hosts > 1:
        return None
    return run_folder(config.dir, config.experiment, identity.run_id)
