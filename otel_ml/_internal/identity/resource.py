"""The OTLP Resource of this process: what is constant for all it records, written once a request."""

from __future__ import annotations

import os
import platform
import socket
import sys

from otel_ml._internal.identity.run_identity import Identity
from otel_ml.config import Config
from otel_ml.wire import attributes as keys
from otel_ml.wire.pid_namespace import pid_namespace
from otel_ml.wire.protobuf import key_values
from otel_ml.wire.readable_name import readable_name
from otel_ml.wire.rendezvous import boot_id

__all__ = ["encode_resource", "resource_attributes"]


def resource_attributes(config: Config, identity: Identity) -> dict[str, object]:
    """Return the attributes: the user's `OTEL_RESOURCE_ATTRIBUTES`, over them what otel_ml knows."""
    place = identity.place
    attributes: dict[str, object] = {
        **config.resource_attributes,
        keys.EXPERIMENT_ID: identity.run_id,
        keys.EXPERIMENT_NAME: config.experiment,
        keys.RUN_NAME: config.name or readable_name(identity.run_id),
        keys.ATTEMPT: place.attempt,
        keys.ROLE: config.role,
        keys.INSTANCE: identity.instance,
        keys.PARENT: identity.parent,
        # A child's starter is its parent, which is said already.
        keys.STARTER: identity.starter if identity.parent is None else None,
        keys.BOOT: boot_id(),
        keys.BORN: identity.born,
        keys.RANK: place.rank,
        keys.WORLD_SIZE: place.world_size if identity.has_world else None,
        keys.LOCAL_RANK: place.local_rank,
        keys.HOST: socket.gethostname(),
        keys.PID: os.getpid(),
        keys.PID_NAMESPACE: pid_namespace() or None,
        "process.runtime.name": platform.python_implementation().lower(),
        "process.runtime.version": platform.python_version(),
        "process.executable.name": os.path.basename(sys.executable),  # noqa: PTH119 (a name, not a file)
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "otel_ml",
    }
    for dim, (coordinate, size) in config.topology.items():
        attributes[f"{keys.TOPOLOGY_PREFIX}{dim}"] = coordinate
        attributes[f"{keys.TOPOLOGY_PREFIX}{dim}{keys.TOPOLOGY_SIZE_SUFFIX}"] = size
    if config.prefix is not None:
        attributes[keys.PREFIX] = config.prefix
    if config.tags:
        attributes[keys.TAGS] = list(config.tags)
    if config.notes:
        attributes[keys.NOTES] = config.notes
    return {key: value for key, value in attributes.items() if value is not None}


def encode_resource(config: Config, identity: Identity) -> bytes:
    """Return the encoded OTLP Resource (attributes are its field 1)."""
    return key_values(1, resource_attributes(config, identity))
