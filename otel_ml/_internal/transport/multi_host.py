"""Embedded mode on several hosts: they meet in a shared `OTEL_ML_DIR`, or have a run each (docs/protocol.md §3.4)."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from otel_ml._internal.console import shown_path
from otel_ml._internal.error_reporting import Say
from otel_ml._internal.transport.embedded import HEALTH_TIMEOUT, EmbeddedLink, answers, endpoint_of
from otel_ml._internal.transport.http import HttpTransport
from otel_ml._internal.transport.link import Link, Reached
from otel_ml._internal.transport.url import Target
from otel_ml.config import Config
from otel_ml.exceptions import VersionError, WireError
from otel_ml.wire.folder_ownership import read_ours
from otel_ml.wire.rendezvous import Service, path_part, publish

__all__ = ["FirstHostLink", "OtherHostLink", "meeting_file"]

TIMEOUT = 30.0
"""Seconds another host waits for the first one's service: its start, and an NFS attribute cache (≤ 60 s, usually 3)."""


def meeting_file(config: Config, run_id: str) -> Path:
    """Return the file in `OTEL_ML_DIR` where the first host says how to reach its service."""
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return config.dir / ".meeting" / f"{digest}.json"


def reachable_address(environ: Mapping[str, str]) -> str:
    """Return this host's address on the network that the launcher uses."""
    master = environ.get("MASTER_ADDR", "").strip()
    is_loopback_meant = master == "localhost" or master.startswith("127.")
    # The second one need not be there: the kernel says from which address it would be reached.
    for target in (master, "10.255.255.255"):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))  # sends nothing; the kernel chooses the interface
                found = str(probe.getsockname()[0])
        except (OSError, UnicodeError):  # a name that is none
            continue
        # Some systems map their own name to 127.0.1.1, where no other host gets to.
        if target and (is_loopback_meant or not found.startswith("127.")):
            return found
    return socket.gethostname()


class FirstHostLink(EmbeddedLink):
    """The host of global rank 0: its service listens on the network, and is announced in `OTEL_ML_DIR`."""

    def __init__(self, config: Config, run_id: str, *, say: Say) -> None:
        listen = f"{reachable_address(os.environ)}:0"
        super().__init__(config, run_id, say=say, on_started=self._announce, listen=listen)

    def _announce(self, service: Service) -> None:
        path = meeting_file(self._config, self._run_id)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            publish(path, replace(service, page=""))  # that is on this host's loopback
        except OSError as error:
            self._say(
                "several-hosts",
                f"{path} cannot be written ({error}); the other hosts of the job will not find this one.",
            )


class OtherHostLink:
    """Any other host: joins the first one, or after a while keeps a run of its own, and says how to have one run."""

    def __init__(self, config: Config, run_id: str, *, say: Say) -> None:
        self._config = config
        self._run_id = run_id
        self._say = say
        self._joined: Service | None = None
        self._own: Link | None = None
        self._since: float | None = None

    def reach(self, now: float, *, failing_s: float) -> Reached | None:
        if self._own is not None:
            return self._own.reach(now, failing_s=failing_s)
        self._since = now if self._since is None else self._since
        service = self._announced()
        if service is not None and service != self._joined and answers(service):
            self._joined = service
            endpoint = endpoint_of(service)
            where = f"{shown_path(Path(service.run_dir))} at {service.endpoint}"
            return Reached(HttpTransport(endpoint), where, service.exporters, fresh=lambda: HttpTransport(endpoint))
        # Who has joined once never begins a run of its own: the first host's service may be away for longer than that.
        if self._joined is None and now - self._since >= TIMEOUT:
            self._stay_alone()
        return None

    @property
    def is_starting(self) -> bool:
        return self._joined is None if self._own is None else self._own.is_starting

    @property
    def is_served(self) -> bool:
        if self._own is not None:
            return self._own.is_served
        return self._joined is not None and _takes_connections(self._joined)

    @property
    def serves_here(self) -> bool:
        return self._own is not None and self._own.serves_here

    def close(self) -> None:
        if self._own is not None:
            self._own.close()

    def _announced(self) -> Service | None:
        try:
            return Service.from_json(read_ours(meeting_file(self._config, self._run_id)))
        except (OSError, UnicodeDecodeError, VersionError, WireError):
            return None

    def _stay_alone(self) -> None:
        run_id = f"{self._run_id}-{path_part(socket.gethostname())}"
        self._own = EmbeddedLink(self._config, run_id, say=self._say)
        first = os.environ.get("MASTER_ADDR", "<the first host>")
        self._say(
            "several-hosts",
            f"The job spans hosts that do not share {self._config.dir}: each keeps a run of its own, here {run_id}. "
            f"For one run, start on {first}: OTEL_ML_TOKEN=<secret> OTEL_ML_LISTEN_HTTP=0.0.0.0:4318 otel-ml serve; "
            f"and set for all ranks: OTEL_ML_TOKEN=<secret> OTEL_EXPORTER_OTLP_ENDPOINT=http://{first}:4318",
        )


def _takes_connections(service: Service) -> bool:
    """Whether something listens where a service is: the kernel takes connections of one that cannot answer."""
    target = Target.parse(service.endpoint)
    try:
        socket.create_connection((target.host, target.port), HEALTH_TIMEOUT).close()
    except OSError:
        return False
    return True
