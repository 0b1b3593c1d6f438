"""Text of ours → identifiers that W&B accepts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

__all__ = ["identifier", "row_key", "row_keys"]

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.\-]")
_OWN_KEYS = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})


def identifier(text: str, limit: int = 64) -> str:
    """Return `text` if it can be a run id, project or artifact name, else one that is unique to it.

    Examples:
        >>> identifier("grpo-dev")
        'grpo-dev'
        >>> identifier("team/run")
        'team-run-a3e54ec8'
    """
    if text and len(text) <= limit and not _FORBIDDEN.search(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_FORBIDDEN.sub('-', text)[: limit - 9]}-{digest}"


def row_key(name: str) -> str:
    """Return a metric's key in a history row; W&B overwrites its own four.

    Examples:
        >>> row_key("train/loss"), row_key("_step")
        ('train/loss', 'metric/_step')
    """
    return f"metric/{name}" if name in _OWN_KEYS else name


def row_keys(names: Collection[str]) -> Collection[str]:
    """Return the keys of metrics in a history row, in the order of `names`."""
    return names if _OWN_KEYS.isdisjoint(names) else [row_key(name) for name in names]
