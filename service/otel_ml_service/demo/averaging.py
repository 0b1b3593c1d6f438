"""Averages gradients over the ranks of the demo: what NCCL or gloo does in a real job, in forty lines.

otel_ml has no part in this: it never talks from rank to rank.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

__all__ = ["Averaging"]

_TIMEOUT_S = 60.0
"""Longest wait for rank 0 to be there; the machine may be busy with imports."""


class Averaging:
    """Ranks 1 … n-1 send to rank 0 over a local socket in `folder`; it answers all with the mean."""

    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        address = str(folder / "averaging.sock")
        self._rank, self._world_size = rank, world_size
        if rank == 0:
            # Closed once all are there; what it has accepted stays open.
            with Listener(address, backlog=world_size) as listener:
                peers = [listener.accept() for _ in range(world_size - 1)]
            # Sums of floats depend on their order: by rank, the same training has the same values each time.
            self._peers = sorted(peers, key=lambda peer: int(peer.recv()))
        else:
            self._peers = [_connected(address)]
            self._peers[0].send(rank)

    def mean(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the mean of every rank's `values`, bit for bit the same on all ranks."""
        if self._rank != 0:
            self._peers[0].send_bytes(values.tobytes())
            return _floats(self._peers[0].recv_bytes())
        total: npt.NDArray[np.float32] = values.copy()
        for peer in self._peers:
            total += _floats(peer.recv_bytes())
        # Divided here, once: the others get the very bytes of rank 0.
        total /= self._world_size
        for peer in self._peers:
            peer.send_bytes(total.tobytes())
        return total

    def __enter__(self) -> Averaging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for peer in self._peers:
            peer.close()


def _floats(content: bytes) -> npt.NDArray[np.float32]:
    values: npt.NDArray[np.float32] = np.frombuffer(content, dtype=np.float32)
    return values


def _connected(address: str) -> Connection:
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return Client(address)
        except (FileNotFoundError, ConnectionRefusedError):  # not bound yet; bound, and not listening yet
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)
