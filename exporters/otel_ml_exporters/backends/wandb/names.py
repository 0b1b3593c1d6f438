"""Text of ours → identifiers that W&B accepts."""

from __future__ import annotations

import re
from collections.abc import Collection

from otel_ml.wire.safe_names import readable, unique_identifier, unique_path
from otel_ml.wire.short_digest import short_digest

__all__ = ["MAX_ARTIFACT", "identifier", "media_key", "param_key", "row_key", "row_keys", "table_limit"]

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.\-]")
_STAR = re.compile(r"[*]")
_MAX_PART, _MAX_PATH = 150, 500

MAX_ARTIFACT = 128
"""Characters of an artifact's name, and of a project's."""

_OWN_KEY = re.compile(r"(?:metric/)*(?:_step|_timestamp|_runtime|_wandb)")
"""W&B's own four, and what they are written as: `metric/_step` is not to become `_step`'s key."""

_OWN_PARAM = re.compile(r"(?:param/)*_wandb")


def identifier(text: str, limit: int = 64) -> str:
    """Return `text` if it can be a run id, project or artifact name, else one that is unique to it.

    Examples:
        >>> identifier("grpo-dev")
        'grpo-dev'
        >>> identifier("team/run")
        'team-run-a3e54ec8'
    """
    return unique_identifier(text, _FORBIDDEN, limit)


def row_key(name: str) -> str:
    """Return a metric's key in a history row: W&B overwrites its own four, and takes `*` for all that begin so.

    Examples:
        >>> row_key("mfu (%)"), row_key("_step"), row_key("metric/_step"), row_key("lr*wd")
        ('mfu (%)', 'metric/_step', 'metric/metric/_step', 'lr_star_wd-a5db3324')
    """
    # First: a name with a star gets a digest, and cannot be one of the four then.
    if "*" in name:
        return f"{readable(name, _STAR)}-{short_digest(name)}"
    return f"metric/{name}" if _OWN_KEY.fullmatch(name) else name


def row_keys(names: Collection[str]) -> Collection[str]:
    """Return the keys of metrics in a history row, in the order of `names`."""
    joined = "/".join(["", *names])  # a look at all of them at once: most rows have none to change
    return [row_key(name) for name in names] if "/_" in joined or "*" in joined else names


def param_key(name: str) -> str:
    """Return a parameter's key in the config, in which W&B has one of its own."""
    return f"param/{name}" if _OWN_PARAM.fullmatch(name) else name


def media_key(name: str, limit: int = _MAX_PATH) -> str:
    """Return the key of what W&B keeps in a file, or in an artifact, which it calls after the key.

    Examples:
        >>> media_key("samples [top-1]"), len(media_key("sample" * 60)), media_key("sample" * 60, 20)
        ('samples [top-1]', 159, 'samplesampl-c74c9132')
    """
    key = row_key(name)
    is_path = len(key) <= limit and all(map(_is_part, key.split("/")))
    # Of the name, and not of the key: two names that differ have different digests.
    path = key if is_path else unique_path(name)
    return path if len(path) <= limit else f"{path[: limit - 9].rstrip('/')}-{short_digest(name)}"


def table_limit(run_id: str) -> int:
    """Return how many characters the key of a table may have: W&B makes an artifact `run-<id>-<key>` of it."""
    return MAX_ARTIFACT - len(f"run-{run_id}-")


def _is_part(part: str) -> bool:
    return part not in {"", ".", ".."} and len(part.encode()) <= _MAX_PART
