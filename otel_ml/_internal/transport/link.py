"""How a worker reaches its service; asked by the background thread until there is a transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from otel_ml._internal.transport.answer import Transport
from otel_ml._internal.transport.http import HttpTransport
from otel_ml._internal.transport.proxy import proxy_for
from otel_ml._internal.transport.url import Target
from otel_ml.config import Config, Endpoint

__all__ = ["Link", "Reached", "RemoteLink", "transport_to", "where_of"]


@dataclass(frozen=True, slots=True)
class Reached:
    """A way to a receiver.

    Attributes:
        where: for the start line: the run's folder, or the endpoint and the variable it came from.
        run_id: the run there, where it is not the one asked for (a job on several hosts that cannot meet).
        fresh: opens a second connection, for questions on other threads; None where there is none to ask.
        page: where a person looks at the run while it trains; empty where nobody offers that.
    """

    transport: Transport
    where: str
    exporters: tuple[str, ...] = ()
    run_id: str | None = None
    fresh: Callable[[], Transport] | None = None
    page: str = field(default="", repr=False)


class Link(Protocol):
    """Where the transport comes from."""

    def reach(self, now: float, *, failing_s: float) -> Reached | None:
        """Return a way to the receiver that differs from the last one, or None while there is none.

        Called at each tick until something is reached, and again while requests fail. Never waits long.

        Args:
            now: seconds of a monotonic clock.
            failing_s: how long nothing could be sent; 0 before anything was reached.
        """

    @property
    def is_starting(self) -> bool:
        """Whether a service that does not answer yet is about to: worth waiting for at the end of a short job."""

    @property
    def is_served(self) -> bool:
        """Whether the service that was reached lives, though it may not answer: its interpreter may be held."""

    @property
    def serves_here(self) -> bool:
        """Whether a service of this host is or will be there: it takes up what processes of the host leave behind."""

    def close(self) -> None:
        """Let go of what is held."""


def transport_to(endpoint: Endpoint) -> Transport:
    """Return the transport of the endpoint's protocol.

    Raises:
        MissingDependencyError: gRPC is asked for and grpcio is not installed.
    """
    if endpoint.protocol == "grpc":
        from otel_ml._internal.transport.grpc import GrpcTransport

        return GrpcTransport(endpoint)
    return HttpTransport(endpoint, proxy_for)


def where_of(endpoint: Endpoint) -> str:
    """Return the endpoint, the variable it came from, and the proxy on the way, for people."""
    try:
        target = Target.parse(endpoint.url or next(iter(endpoint.signals.values()), ""))
        # grpcio looks for that of https first, whatever the endpoint speaks.
        encrypted = proxy_for(replace(target, scheme="https")) if endpoint.protocol == "grpc" else None
        proxy = encrypted or proxy_for(target)
    except (OSError, ValueError):
        proxy = None  # what is wrong with it is reported when something is sent
    through = "" if proxy is None else f", through the proxy {proxy.shown}"
    return f"{endpoint.shown} ({endpoint.source}{through})"


class RemoteLink:
    """The endpoint the user named.

    Raises:
        MissingDependencyError: gRPC is asked for and grpcio is not installed.
    """

    def __init__(self, config: Config) -> None:
        endpoint = config.endpoint
        self._reached: Reached | None = Reached(
            transport_to(endpoint),
            where_of(endpoint),
            fresh=lambda: transport_to(endpoint),
        )

    def reach(self, now: float, *, failing_s: float) -> Reached | None:
        del now, failing_s
        # Once: an endpoint does not move, and its transport connects again by itself.
        reached, self._reached = self._reached, None
        return reached

    @property
    def is_starting(self) -> bool:
        return False  # it is not ours to start, and may never be there

    @property
    def is_served(self) -> bool:
        return False  # it does not end with the job: nobody waits for it so long

    @property
    def serves_here(self) -> bool:
        return False

    def close(self) -> None:
        """The transport is closed by who uses it."""
