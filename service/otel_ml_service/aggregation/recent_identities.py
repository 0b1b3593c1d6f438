"""Identities of spans, and of events without a running number, remembered for a while (docs/protocol.md §4.5)."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["RecentIdentities"]

SIZE = 12
"""Bytes of a digest: among 10⁹ identities two collide with probability 10⁻¹¹."""


class RecentIdentities:
    """Two generations of digests: an identity is remembered between one and two spans.

    Args:
        span_s: seconds of a generation.
        most: digests of a generation; one that has them is over.
    """

    def __init__(self, span_s: float, most: int = 500_000) -> None:
        self._span_s = span_s
        self._most = most
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()
        self.generation = 0
        self._began: float | None = None
        self._of_points = -1
        self._added: list[tuple[int, bytes]] = []
        self._fresh: list[bytes] = []

    def add(self, identity: object, now: float) -> bool:
        """Remember `identity`; False where it is known. Its `repr` is what counts."""
        text = repr(identity).encode("utf-8", "surrogatepass")
        return self.add_digest(blake2b(text, digest_size=SIZE).digest(), now)

    def add_digest(self, digest: bytes, now: float) -> bool:
        """Remember an identity by its digest of `SIZE` bytes; False where it is known."""
        self._turn(now)
        if digest in self._young or digest in self._old:
            return False
        self._young.add(digest)
        self._fresh.append(digest)
        return True

    def has_points(self, now: float) -> bool:
        """Whether there are digests of points, of when each of them had one."""
        self._turn(now)
        return self.generation <= self._of_points

    def knows(self, digest: bytes) -> bool:
        """Whether a digest is remembered."""
        return digest in self._young or digest in self._old

    def take_fresh(self) -> list[tuple[int, bytes]]:
        """Return the digests added since this was asked last, each with its generation."""
        self._put_away()
        added, self._added = self._added, []
        return added

    def _put_away(self) -> None:
        """Keep what came in a generation, which may end before it is committed."""
        if self._fresh:
            self._added.append((self.generation, b"".join(self._fresh)))
            self._fresh = []

    def _turn(self, now: float) -> None:
        if self._began is None:
            self._began = now
        elif now - self._began >= self._span_s or len(self._young) >= self._most:
            # First: what is fresh belongs to the generation that ends.
            self._put_away()
            self._old, self._young = self._young, set()
            self.generation += 1
            self._began = now

    def state(self) -> list[object]:
        """Return what `restore` needs besides the digests."""
        return [self.generation, self._began, self._of_points]

    def restore(self, state: list[object], digests: dict[int, bytes]) -> None:
        """Continue from `state()` and the digests of each generation."""
        self.generation, self._began, self._of_points = state  # type: ignore[assignment]
        for generation, joined in digests.items():
            parts = {joined[i : i + SIZE] for i in range(0, len(joined), SIZE)}
            (self._young if generation == self.generation else self._old).update(parts)
