"""How a metric is called in every backend (docs/protocol.md §2.10): as it was written."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache

from otel_ml.wire.attributes import DEFAULT_AXIS, RESERVED_PREFIX, TIME_AXIS, UNNAMED_ROLES
from otel_ml.wire.short_digest import short_digest

__all__ = [
    "MAX_LENGTH",
    "ascii_spelling",
    "by_precedence",
    "is_own",
    "matches",
    "matches_beginning",
    "published_name",
    "sanitized",
]

MAX_LENGTH = 1000
"""Characters of a published name; what is longer is cut, and told from others by a digest."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What breaks lines, moves cursors or turns the direction, and halves of characters, which no file can hold."""


@lru_cache(maxsize=65536)
def sanitized(name: str) -> str:
    r"""Return `name` as it was written; control characters are escaped, and more than 1,000 characters are cut.

    Examples:
        >>> sanitized("val/mAP@[0.5:0.95] (%)"), sanitized("损失/训练"), sanitized("two\nlines")
        ('val/mAP@[0.5:0.95] (%)', '损失/训练', 'two\\nlines')
        >>> len(sanitized("layer." * 500))
        1000
    """
    text = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], name) or "_"
    # Nine characters for the hyphen and the digest.
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 9]}-{short_digest(name)}"


def published_name(
    role: str, axis: str, name: str, attributes: Iterable[tuple[str, str]] = (), *, with_role: bool = True
) -> str:
    """Return `<role>/<axis>/<name>/<key>/<value>…`, sanitized.

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
    # The role is looked for in the name itself, before which the axis may stand by now.
    named = role not in UNNAMED_ROLES and not role.startswith("unknown_service")
    if with_role and named and not name.startswith(f"{role}/"):
        text = f"{role}/{text}"
    return sanitized(text)


def is_own(name: str) -> bool:
    """Whether a name is one of otel_ml's own account, with a role and an axis before it or not; nobody else may use it.

    Examples:
        >>> is_own("otel_ml/lag/jsonl"), is_own("generator/otel_ml/attempt"), is_own("loss")
        (True, True, False)
    """
    return f"/{RESERVED_PREFIX}" in f"/{name}"


def matches(name: str, pattern: str) -> bool:
    """Whether `name` is `pattern` or one of those it stands for: `*` is any text, `?` any character, `[` itself.

    Examples:
        >>> matches("tokens/sum", "tokens*"), matches("acc[top-1]", "acc[top-1]"), matches("acct", "acc[top-1]")
        (True, True, False)
    """
    # `[[]` is how fnmatch has a bracket that stands for itself.
    return name == pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def matches_beginning(name: str, pattern: str) -> bool:
    """Whether `name` is `pattern`, or begins as one with a `*` at its end: W&B's rule, where `?` is itself, too.

    Examples:
        >>> [matches_beginning(name, "val?/*") for name in ("val?/loss", "val1/loss", "val?/")]
        [True, False, True]
    """
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def by_precedence(pattern: str) -> tuple[int, str]:
    """Return the sort key of globs that match one name: that with more characters of its own comes first.

    Examples:
        >>> sorted(["*", "train/*", "train/tok*"], key=by_precedence)
        ['train/tok*', 'train/*', '*']
    """
    # Less its own characters: the one with most of them is the smallest. Of equal ones the alphabet decides.
    return pattern.count("*") + pattern.count("?") - len(pattern), pattern


_NOT_ASCII = re.compile(r"[^A-Za-z0-9_/.\-]")
_AWKWARD = re.compile(r"//|\A/|/\Z|(?:\A|/)\.{1,2}(?:/|\Z)")
_MAX_ASCII = 250


@lru_cache(maxsize=65536)
def ascii_spelling(name: str) -> str:
    """Return `name` in ASCII letters, digits and `_/.-`; with a digest where it has others.

    So otel_ml called metrics before names stayed as they were written, and its older runs still do.

    Examples:
        >>> ascii_spelling("loss@5"), ascii_spelling("train/loss")
        ('loss_5-32cf576b', 'train/loss')
    """
    if name and len(name) <= _MAX_ASCII and not _NOT_ASCII.search(name) and not _AWKWARD.search(name):
        return name
    parts = (_NOT_ASCII.sub("_", part) for part in name.split("/"))
    clean = "/".join("_" if part in {".", ".."} else part for part in parts if part)
    return f"{clean[: _MAX_ASCII - 9].rstrip('/')}-{short_digest(name)}" if clean else f"_-{short_digest(name)}"
