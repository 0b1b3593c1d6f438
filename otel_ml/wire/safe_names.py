"""Names where not every character is taken: as readable as can be, and never a path that leads elsewhere."""

from __future__ import annotations

import re
import unicodedata

from otel_ml.wire.published_name import sanitized
from otel_ml.wire.short_digest import short_digest

__all__ = ["as_path", "readable", "unique_identifier", "unique_path"]

_WORDS = {"%": "percent", "@": "at", "&": "and", "+": "plus", "*": "star", "<": "lt", ">": "gt"}
_JOINTS = frozenset(" _/.-:")
"""Beside these a word needs no `_`."""

_MAX_PATH = 250
_MAX_PART = 150
"""Bytes: file systems take 255, and an ending is still to come."""

_ENDING = re.compile(r"[^/]\.\w{1,10}\Z")
_NOT_IN_PATHS = re.compile(r"[^\w\-+=,.()@\[\] /\u0080-\U0010ffff]|[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""What shells, other systems or addresses take for something else, and what turns the direction of text."""


def readable(name: str, forbidden: re.Pattern[str]) -> str:
    r"""Return `name` with a word, or `_`, for what is `forbidden`; of two names it may make the same.

    Args:
        name: as it was written.
        forbidden: matches one character.

    Examples:
        >>> others = re.compile(r"[^/\w.\- :]")
        >>> [readable(name, others) for name in ("mfu(%)", "loss (%)", "val/AR@100", "acc[top-1]", "lr=0.1", "a/*")]
        ['mfu_percent', 'loss percent', 'val/AR_at_100', 'acc_top-1', 'lr_0.1', 'a/star']
    """
    return re.sub(f"(?:{forbidden.pattern})+", _written_out, name)


def _written_out(found: re.Match[str]) -> str:
    before = found.string[: found.start()][-1:]
    after = found.string[found.end() :][:1]
    left = "" if not before or before in _JOINTS else "_"
    right = "" if not after or after in _JOINTS else "_"
    word = "_".join(filter(None, map(_word, found[0])))
    # Nothing to be written: one `_` between two words, and none at an end or beside another joint.
    return f"{left}{word}{right}" if word else left and right


def _word(char: str) -> str:
    """Return the word for a character; brackets and other marks have none.

    Examples:
        >>> _word("%"), _word("("), _word("—"), _word("µ")
        ('percent', '', '', 'micro_sign')
    """
    if char.isascii() or unicodedata.category(char)[0] in "PMCZ":
        return _WORDS.get(char, "")
    return unicodedata.name(char, "").lower().replace(" ", "_")


def as_path(name: str) -> str:
    """Return a relative path that is readable as `name`, stays below where it is put, and that file systems take.

    Different names may have the same one: what tells them apart has to be part of the file's name, too.

    Examples:
        >>> as_path("样本/val @ 5"), as_path("../../etc/passwd"), as_path("/a//b/.."), as_path("...")
        ('样本/val @ 5', 'etc/passwd', 'a/b', '_')
    """
    # Each part by itself: one of dots alone becomes empty, and is left out below, so that no path leads upwards.
    parts = readable(sanitized(name)[:_MAX_PATH], _NOT_IN_PATHS).split("/")
    return "/".join(filter(None, map(_part, parts))) or "_"


def _part(part: str) -> str:
    # Cut in bytes; a character that this cuts in two is left out.
    return part.encode()[:_MAX_PART].decode("utf-8", "ignore").strip(" ").rstrip(" .")


def unique_path(name: str) -> str:
    """Return `as_path(name)`, with a digest, before the ending, where that is not the name itself.

    Examples:
        >>> unique_path("model.bin"), unique_path("model?.bin")
        ('model.bin', 'model-c1932258.bin')
    """
    path = as_path(name)
    stem, dot, ending = path.rpartition(".") if _ENDING.search(path) else (path, "", "")
    return path if path == name else f"{stem}-{short_digest(name)}{dot}{ending}"


def unique_identifier(text: str, forbidden: re.Pattern[str], limit: int) -> str:
    """Return `text` if nothing in it is forbidden and it is short enough, else a text of `limit` that is unique to it.

    Examples:
        >>> spaces = re.compile(" ")
        >>> unique_identifier("team-run", spaces, 64), unique_identifier("team run", spaces, 64)
        ('team-run', 'team-run-988f793d')
    """
    if text and len(text) <= limit and not forbidden.search(text):
        return text
    return f"{forbidden.sub('-', text)[: limit - 9]}-{short_digest(text)}"
