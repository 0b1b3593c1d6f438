"""How a metric is called in every backend (CONTRACT §2 «Published names»)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS, UNNAMED_ROLES

__all__ = ["MAX_LENGTH", "published_name", "sanitised"]

MAX_LENGTH = 250
"""MLflow's limit on a metric key, the smallest of the backends'."""

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_/.\-]")
# MLflow refuses '//', a leading or trailing '/', and path parts '.' and '..'.
_AWKWARD = re.compile(r"//|\A/|/\Z|(?:\A|/)\.{1,2}(?:/|\Z)")


@lru_cache(maxsize=65536)
def sanitised(name: str) -> str:
    """Return `name` if every backend accepts it, else an accepted one that is unique to it.

    Examples:
        >>> sanitised("train/loss")
        'train/loss'
        >>> sanitised("loss@5")
        'loss_5-32cf576b'
    """
    if name and len(name) <= MAX_LENGTH and not _FORBIDDEN.search(name) and not _AWKWARD.search(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    parts = (_FORBIDDEN.sub("_", part) for part in name.split("/"))
    clean = "/".join("_" if part in {".", ".."} else part for part in parts if part)
    return f"{clean[: MAX_LENGTH - 9].rstrip('/')}-{digest}" if clean else f"_-{digest}"


def published_name(
    role: str, axis: str, name: str, attributes: Iterable[tuple[str, str]] = (), *, with_role: bool = True
) -> str:
    """Return `<role>/<axis>/<name>/<key>/<value>…`, sanitised.

    The role is left out for `trainer`, `unknown_service` and where the user set an empty prefix;
    the axis for `step` and `time`; either where the name already begins so.

    Examples:
        >>> published_name("trainer", "step", "loss")
        'loss'
        >>> published_name("generator", "rollout", "reward", [("task", "math")])
        'generator/rollout/reward/task/math'
        >>> published_name("evaluator", "eval", "eval/accuracy")
        'evaluator/eval/accuracy'
    """
    text = name
    for key, value in sorted(attributes):
        text = f"{text}/{key}/{value}"
    if axis not in {DEFAULT_AXIS, TIME_AXIS} and not text.startswith(f"{axis}/"):
        text = f"{axis}/{text}"
    named = role not in UNNAMED_ROLES and not role.startswith("unknown_service")
    if with_role and named and not name.startswith(f"{role}/"):
        text = f"{role}/{text}"
    return sanitised(text)
