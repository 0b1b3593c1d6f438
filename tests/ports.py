"""Ports for what a test starts later, or for what must not answer."""

from __future__ import annotations

import random
import socket
from contextlib import closing

# Below the ports that the kernel hands out: a port that it hands out is somebody else's server a moment later
# (seen once in CI: a worker that should reach nobody was acknowledged by the server of another test).
RANGE = range(15_000, 32_000)


def free_port() -> int:
    """Return a TCP port of this host that nobody listens on."""
    while True:
        port = random.SystemRandom().choice(RANGE)  # pytest-randomly seeds the other one, in each worker alike
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
