"""Ray's key-value store: what all processes of a cluster see, and only they."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["forget", "kept", "names", "put"]

_NAMESPACE = b"otel_ml"


def kept(name: str) -> bytes | None:
    """Return what is kept under a name."""
    found: bytes | None = _store("get", name.encode())
    return found


def names(prefix: str) -> Sequence[bytes]:
    """Return all names that begin so."""
    found: Sequence[bytes] = _store("list", prefix.encode())
    return found


def put(name: str, value: str, *, overwrite: bool = True) -> bool:
    """Keep a value; return whether there was one before, which without `overwrite` stays."""
    return bool(_store("put", name.encode(), value.encode(), overwrite=overwrite))


def forget(name: str) -> None:
    """Keep nothing under a name."""
    _store("del", name.encode())


def _store(what: str, *arguments: bytes, **options: bool) -> Any:
    """Call it; it is public by its module only."""
    from ray.experimental import internal_kv

    return getattr(internal_kv, f"_internal_kv_{what}")(*arguments, namespace=_NAMESPACE, **options)
