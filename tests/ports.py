"""Ports for what a test starts later, or for what must not answer."""

from __future__ import annotations

import os
import random
import socket
from contextlib import closing

# Below the ports that the kernel hands out: a port that it hands out is somebody else's server a moment later
# (seen once in CI: a worker that should reach nobody was acknowledged by the server of another test).
RANGE = range(15_000, 32_000)

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

_GIVEN: set[int] = set()


def free_port() -> int:
    """Return a TCP port of this host that nobody listens on, and that no test of this session was given before."""
    while True:
        port = random.SystemRandom().choice(RANGE[_WORKER::_WORKERS])  # pytest-randomly seeds the other one alike
        with closing(socket.socket()) as probe:
            if port not in _GIVEN and probe.connect_ex(("127.0.0.1", port)):
                _GIVEN.add(port)
                return port
