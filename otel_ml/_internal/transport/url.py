"""URLs, taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["Target"]

_THIS_HOST = frozenset({"localhost", "::1", "0.0.0.0", "::"})
"""Who connects to one of the last two reaches the own host."""


@dataclass(frozen=True, slots=True)
class Target:
    """One URL."""

    scheme: str
    host: str
    port: int
    path: str

    @staticmethod
    def parse(url: str) -> Target:
        """Take a URL apart.

        Raises:
            ValueError: it is none.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return Target(parts.scheme, parts.hostname or "localhost", port, path or "/")

    @property
    def authority(self) -> str:
        """Host and port, as a URL has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this host, by the way it is written."""
        return self.host.rstrip(".") in _THIS_HOST or self.host.startswith("127.")
