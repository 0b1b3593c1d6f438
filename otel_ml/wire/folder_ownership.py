"""A run's folder in a folder that others use, too: what they may have put there is not written to.

Whoever may write to a folder can put a link in the place of a file, or of a folder, that is to be written. So a run's
folder is of this user, and closed to others; what was in it before and is a link is moved aside, not followed.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["QUARANTINE", "claim", "is_ours", "may_hold_ours", "read_ours", "renamed_warning"]

QUARANTINE = ".set-aside"
"""Folder in a run's folder for what others had put there."""

_NAMED = 10
"""Of what was moved aside, named in a sentence."""

_LINKED = ("artifacts/", "state/kept/")
"""Folders whose files have further names: those of the job."""


def may_hold_ours(folder: Path) -> bool:
    """Whether folders of this user may be made in `folder`, which need not be there yet.

    Who owns a folder can exchange what is in it: that must be this user, root, or who owns the folder of all runs.
    """
    try:
        found, above = folder.lstat(), folder.parent.stat()
    except OSError:
        return True
    if found.st_uid == os.geteuid():
        return True
    # Without the sticky bit, whoever may write to a folder may rename what is another's in it.
    is_open = bool(found.st_mode & stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    is_trusted = found.st_uid in {0, above.st_uid} and not is_open and stat.S_ISDIR(found.st_mode)
    return is_trusted and os.access(folder, os.W_OK | os.X_OK)


def is_ours(folder: Path) -> bool:
    """Whether `folder` is one of this user, and no link; on a file system that gives everybody another id, too.

    For root, as in a container, what belongs to the owner of the folder above is its own.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return False
    if found.st_uid == os.geteuid() or (os.geteuid() == 0 and found.st_uid == folder.parent.stat().st_uid):
        return True
    try:
        with tempfile.TemporaryFile(dir=folder.parent) as probe:
            return os.fstat(probe.fileno()).st_uid == found.st_uid
    except OSError:
        return False


def read_ours(path: Path) -> str:
    """Return what a file says that this user has written, in a folder where others may write, too.

    Who we are there is told by a file of our own: a network file system may map user ids (root to nobody).

    Raises:
        OSError: it cannot be read, is a link, is somebody else's, or others may write to it.
        UnicodeDecodeError: it is not text.
    """
    # Looked at once it is open: it cannot be exchanged in between. A pipe that nobody writes to does not hold us.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, encoding="utf-8") as file:
        found = os.fstat(handle)
        is_closed = stat.S_ISREG(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o022
        if not is_closed or not _is_own_id(found.st_uid, path.parent):
            raise PermissionError(errno.EPERM, "somebody else's, or open to others", str(path))
        return file.read()


def _is_own_id(uid: int, folder: Path) -> bool:
    if uid == os.getuid():
        return True
    with tempfile.TemporaryFile(dir=folder) as own:
        return os.fstat(own.fileno()).st_uid == uid


def claim(folder: Path) -> None:
    """Make a run's folder, or see that it is this user's alone to write to, and move aside what others put into it.

    Raises:
        OSError: it cannot be made, or belongs to somebody else.
    """
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (folder.parent, folder):
        try:
            each.mkdir(mode=0o775)
        except FileExistsError:
            # That of the experiment may be another user's, as `may_hold_ours()` has it; the run's own may not.
            if each == folder and not is_ours(folder):
                raise PermissionError(errno.EPERM, _somebody_elses(folder), str(folder)) from None
        _close_to_others(each)
    for path in list(_not_ours(folder)):
        _quarantine(folder, path)


def renamed_warning(folder: Path) -> str:
    """Return what to say of what `claim` has moved aside, now or before; "" where that is nothing."""
    quarantine = folder / QUARANTINE
    if quarantine.is_symlink() or not quarantine.is_dir():
        return ""
    names = sorted(path.name.partition("-")[2] for path in quarantine.iterdir())
    if not names:
        return ""
    return (
        f"In {folder} {len(names)} files or folders were links or somebody else's: {', '.join(names[:_NAMED])}. "
        f"They are in {QUARANTINE} there now, and nothing is written to what they name."
    )


def _somebody_elses(folder: Path) -> str:
    return (
        f"the run's folder belongs to user {folder.lstat().st_uid} or is a link, and is not written to; "
        "choose another OTEL_ML_DIR, or another id of the run"
    )


def _close_to_others(folder: Path) -> None:
    found = folder.stat()
    if found.st_mode & stat.S_IWOTH and found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IWOTH)


def _not_ours(folder: Path) -> Iterator[Path]:
    """Find links, files of others, and what is neither file nor folder."""
    owners = {os.geteuid(), folder.stat().st_uid}
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        way = f"{here.relative_to(folder).as_posix()}/"
        may_be_linked = way.startswith(_LINKED)
        for path, status in _entries(here):
            if path == folder / QUARANTINE:
                continue
            # A file with a second name may be one of somewhere else, which would be written to.
            is_file = stat.S_ISREG(status.st_mode) and (status.st_nlink == 1 or may_be_linked)
            if status.st_uid not in owners or not (is_file or stat.S_ISDIR(status.st_mode)):
                yield path
            elif stat.S_ISDIR(status.st_mode):
                waiting.append(path)


def _entries(folder: Path) -> list[tuple[Path, os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            return [(Path(entry.path), entry.stat(follow_symlinks=False)) for entry in entries]
    except PermissionError:  # of a folder of ours: nothing is written to it either
        return []


def _quarantine(folder: Path, path: Path) -> None:
    """Take the name away; what it stood for stays as it is."""
    quarantine = folder / QUARANTINE
    if os.path.lexists(quarantine) and not is_ours(quarantine):
        quarantine.rename(folder / f"{QUARANTINE}-{os.urandom(16).hex()}")
    quarantine.mkdir(mode=0o700, exist_ok=True)
    # Numbered, for things from two folders may have one name.
    path.rename(quarantine / f"{len([*quarantine.iterdir()])}-{path.name}")
