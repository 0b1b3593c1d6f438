"""Which way a process reaches its service."""

from __future__ import annotations

from otel_ml._internal.embedded import EmbeddedLink
from otel_ml._internal.guard import Say
from otel_ml._internal.hosts import FirstHostLink, OtherHostLink
from otel_ml._internal.identity import Identity
from otel_ml._internal.link import Link, RemoteLink
from otel_ml.config import Config

__all__ = ["link_for"]


def link_for(config: Config, identity: Identity, say: Say) -> Link:
    """Return how this process reaches its service: the endpoint, or embedded on one host or several."""
    if config.is_remote:
        return RemoteLink(config)
    if identity.place.hosts > 1:
        kind = FirstHostLink if identity.place.host == 0 else OtherHostLink
        return kind(config, identity.run_id, say=say)
    return EmbeddedLink(config, identity.run_id, say=say)
