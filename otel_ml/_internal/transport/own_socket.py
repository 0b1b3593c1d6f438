"""A socket that is looked at before each use: the program may have closed it, and have opened a file of its own.

Nothing is sent to such a file, nothing is read from it, and it is neither closed nor made non-blocking.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from otel_ml._internal.transport.file_descriptor import OwnDescriptor, above_standard
from otel_ml._internal.transport.idle_timeout import IdleTimeout

if TYPE_CHECKING:
    import ssl

__all__ = ["OwnSocket", "connect"]

T = TypeVar("T")

_TLS_PIECE = 32 * 1024
"""Bytes given to TLS at once."""

_UNDER_WAY = {errno.EINPROGRESS, errno.EINTR, errno.EAGAIN}


class OwnSocket:
    """A socket that does not block: between a wait and what follows it the descriptor is looked at again.

    All methods but `close()` raise `ConnectionError` where the program has closed it.

    Args:
        plain: is taken over.
    """

    def __init__(self, plain: socket.socket) -> None:
        plain.setblocking(False)
        self._socket = plain
        self._descriptor = OwnDescriptor(plain.fileno())
        self._piece: int | None = None
        self._wanted: dict[type[OSError], int] = {}

    def is_ours(self) -> bool:
        """Whether the program has left it alone."""
        return self._descriptor.is_ours()

    def is_readable(self) -> bool:
        """Whether something was received, or the peer has closed the connection."""
        waiting = select.poll()  # `select()` refuses descriptors from 1,024 on
        waiting.register(self._descriptor.number, select.POLLIN)
        return bool(waiting.poll(0))

    def connect(self, address: tuple[object, ...], timeout: IdleTimeout) -> None:
        """Connect; wait as long as `timeout` says."""
        code = self._socket.connect_ex(address)
        if code in _UNDER_WAY:
            self._wait(select.POLLOUT, timeout)
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def secure(self, context: ssl.SSLContext, host: str, timeout: IdleTimeout) -> None:
        """Speak TLS from now on."""
        import ssl

        secured = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
        self._socket = secured
        self._piece = _TLS_PIECE  # TLS tells nothing before all that it was given is on its way
        # TLS may have to read before it can write, and the other way round.
        self._wanted = {ssl.SSLWantReadError: select.POLLIN, ssl.SSLWantWriteError: select.POLLOUT}
        self._when_ready(secured.do_handshake, select.POLLIN, timeout)

    def send(self, message: bytes, timeout: IdleTimeout) -> None:
        """Send all of it, for as long as some of it is taken."""
        rest = memoryview(message)
        while rest:
            rest = rest[self._send_some(rest[: self._piece], timeout) :]
            timeout.begin_anew()

    def receive(self, timeout: IdleTimeout) -> bytes:
        """Return what is received next; as long as bytes of ours leave this host, nothing can be expected."""
        return self._when_ready(lambda: self._socket.recv(65536), select.POLLIN, timeout)

    def close(self) -> None:
        """Close our copy of the descriptor only: no TLS close_notify on the connection of a forked child's parent."""
        self._socket.detach()
        self._descriptor.close()

    def _send_some(self, piece: memoryview, timeout: IdleTimeout) -> int:
        return self._when_ready(lambda: self._socket.send(piece), select.POLLOUT, timeout)

    def _when_ready(self, act: Callable[[], T], events: int, timeout: IdleTimeout) -> T:
        self._look()
        while True:
            try:
                # Tried before it is waited for: mostly it is possible at once, and TLS says only then what it waits
                # for.
                return act()
            except OSError as error:
                wanted = events if isinstance(error, BlockingIOError) else self._wanted.get(type(error))
                if wanted is None:
                    raise
            self._wait(wanted, timeout)

    def _wait(self, events: int, timeout: IdleTimeout) -> None:
        waiting = select.poll()
        waiting.register(self._descriptor.number, events)
        found: object = None
        while not found:
            # A kernel takes more only after a third of what it holds has left: a megabyte.
            # poll() takes whole milliseconds; rounded down, the last one would be a loop without a pause.
            found = waiting.poll(1 + int(1000 * timeout.until_next_look(self._descriptor.number)))
            self._look()

    def _look(self) -> None:
        if not self.is_ours():
            raise ConnectionAbortedError("The program has closed the connection.")


def connect(host: str, port: int, timeout: IdleTimeout) -> OwnSocket:
    """Return a connection to the first address of a host that takes it."""
    refusal = OSError(f"{host} has no address.")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            plain = _above_standard(socket.socket(family, kind, protocol))
        except OSError as error:  # IPv6 that this host does not have
            refusal = error
            continue
        connection = OwnSocket(plain)
        try:
            connection.connect(address, timeout)
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError):
                raise
            refusal = error
        else:
            return connection
    raise refusal


def _above_standard(plain: socket.socket) -> socket.socket:
    return plain if plain.fileno() > 2 else socket.socket(fileno=above_standard(plain.detach()))
