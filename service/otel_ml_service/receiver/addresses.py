"""Which addresses only this machine reaches."""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache

__all__ = ["is_address", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine gets to `host`; of a name, all it stands for must be so.

    Examples:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("::")
        (True, True, False, False)
    """
    if is_address(host):
        return ipaddress.ip_address(host).is_loopback
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    # A name is encoded by IDNA, which fails on a label that is empty or too long.
    except (OSError, UnicodeError):
        return False
    # One address that others reach is enough for them to get here.
    return bool(found) and all(is_address(address) and ipaddress.ip_address(address).is_loopback for address in found)


@lru_cache(maxsize=1024)  # asked of every request, about the host that it names
def is_address(host: str) -> bool:
    """Whether `host` is an address and no name.

    Examples:
        >>> is_address("10.0.0.1"), is_address("::1"), is_address("localhost")
        (True, True, False)
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
