"""State entries that are read one by one when they are needed, so that neither a start nor memory holds all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["PREFIX", "LazyEntries"]

PREFIX = "disk/"
"""What the keys of these entries begin with; all others are handed to an engine when it starts."""

Entries = dict[str, bytes | None]


class LazyEntries:
    """What was committed, and before it what is to be: `None` where an entry is gone.

    Args:
        kept: returns a committed entry, or None where there is none. Without one they are kept here, in memory.
        state: with those that are committed already, where they are kept here.
    """

    def __init__(self, kept: Callable[[str], bytes | None] | None, state: Mapping[str, bytes]) -> None:
        self._own: dict[str, bytes] | None = None
        if kept is None:
            self._own = {key: value for key, value in state.items() if key.startswith(PREFIX)}
        self._kept = kept or self._own_entry
        self._fresh: Entries = {}
        self._handed: Entries = {}

    def get(self, key: str) -> bytes | None:
        """Return an entry as it is by now."""
        # Newest first; what was handed out may not be committed yet, so nobody else can be asked for it.
        for entries in (self._fresh, self._handed):
            if key in entries:
                return entries[key]
        return self._kept(key)

    def put(self, key: str, value: bytes | None) -> None:
        """Change an entry; it is committed with the next outcome."""
        self._fresh[key] = value

    def hand_out(self) -> Mapping[str, bytes | None]:
        """Return what changed. What was handed out before is committed, or there would be no next outcome."""
        self._handed, self._fresh = self._fresh, {}
        return self._handed

    def keep(self, changes: Mapping[str, bytes | None]) -> None:
        """Keep the entries of an outcome, where nobody else does."""
        if self._own is None:
            return
        for key, value in changes.items():
            if value is None:
                self._own.pop(key, None)
            elif key.startswith(PREFIX):
                self._own[key] = value

    def _own_entry(self, key: str) -> bytes | None:
        return None if self._own is None else self._own.get(key)
