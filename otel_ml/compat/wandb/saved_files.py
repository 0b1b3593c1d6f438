"""`wandb.save()`: files by a path or a pattern, under their paths below a folder."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.tracking.not_kept import is_given, not_kept

__all__ = ["SavedFiles"]

_OF_THE_CLOUD = ("gs://", "s3://")
_PATTERN = frozenset("*?[")
_POLICIES = ("live", "end", "now")


class SavedFiles:
    """The files of one run that were saved, as they were then."""

    def __init__(self) -> None:
        self._states: dict[Path, tuple[str, tuple[int, int]]] = {}

    def save(self, wanted: Any, base: Any, policy: str, *, is_pattern: bool) -> list[str]:
        """Record what is there now, and return its paths, which stay right where the current folder changes."""
        text = _path(wanted)
        wrong = _what_is_wrong(text, base, is_pattern=is_pattern)
        if wrong is not None:
            not_kept(f"wandb.save({text!r})", f"{wrong} Nothing is saved.")
            return []
        # Not a reason to lose the file: any policy but `now` follows it to the end.
        if policy not in _POLICIES:
            only = f"ValueError: Only {', '.join(_POLICIES)} policies are supported"
            not_kept(f"wandb.save({text!r}, policy={policy!r:.40})", f"{only}. The file is saved as with `live`.")
        found = _found(text, is_pattern=is_pattern)
        if not found:
            not_kept(f"wandb.save({text!r})", _why_none(text, is_pattern=is_pattern))
        for path in found:
            self._keep(Path(path), _below(path, base), is_followed=policy != "now")
        return [os.path.abspath(path) for path in found]  # noqa: PTH100 (of any text)

    def save_again(self) -> None:
        """Record those that have changed since."""
        for path, (name, state) in list(self._states.items()):
            now = _state(path)
            if now is not None and now != state:
                self._states[path] = (name, now)
                otel_ml.log_artifact(path, name=name)

    def _keep(self, path: Path, name: str, *, is_followed: bool) -> None:
        state = _state(path)  # before it is read: what is written meanwhile is a change
        if is_followed and state is not None:
            # Absolute: the program may go to another folder before the end of the run.
            self._states[path.absolute()] = (name, state)
        otel_ml.log_artifact(path, name=name)


def _path(wanted: Any) -> str:
    text = (
        os.fsdecode(wanted)
        if isinstance(wanted, (str, bytes, os.PathLike))
        else text_of(wanted)
        if is_given(wanted)
        else ""
    )
    # `./a` and `a//b` are named `a` and `a/b`; an address would lose a slash, and nothing would become `.`.
    return text if not text or text.startswith(_OF_THE_CLOUD) else os.path.normpath(text)


def _state(path: Path) -> tuple[int, int] | None:
    """Return what changes when somebody writes into the file; None where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _below(path: str, base: Any) -> str:
    """Return the path below `base`; by default below the current folder, of an absolute path with one folder."""
    if base is None and Path(path).is_absolute():
        # W&B keeps `/a/b/c.txt` without a base path as `b/c.txt`.
        return str(Path(*Path(path).parts[-2:]))
    return os.path.relpath(path, os.curdir if base is None else os.fsdecode(base))


def _what_is_wrong(wanted: str, base: Any, *, is_pattern: bool) -> str | None:
    """Return why nothing can be saved so, with the name of W&B's error."""
    if wanted.startswith(_OF_THE_CLOUD):
        return "it is a cloud storage url, can't save file to W&B. Use Artifact.add_reference()."
    if not wanted:
        return "TypeError: save() is missing 'glob_str'."
    first = Path(_below(wanted, base)).parts[:1]
    if first == ("..",):
        return "ValueError: a path may not walk above the base path."
    if is_pattern and first == ("*",):
        return "ValueError: a pattern may not start with '*'."
    return None


def _found(wanted: str, *, is_pattern: bool) -> list[str]:
    if is_pattern:
        return sorted(glob.glob(wanted))  # noqa: PTH207 (an absolute pattern, which `Path.glob` refuses, is usual here)
    return [wanted] if os.path.exists(wanted) else []  # noqa: PTH110 (of any text)


def _why_none(wanted: str, *, is_pattern: bool) -> str:
    hint = "call it once the files are written"
    if not _PATTERN.isdisjoint(wanted):
        hint += "; a name with these characters wants glob=False" if is_pattern else "; a pattern wants glob=True"
    return f"no file matches now: {hint}."
