"""Which file system a folder is on: SQLite's write-ahead log and locks are made for local ones.

SQLite advises against its files on network file systems, whose locks and syncs do not always hold what they promise
(https://www.sqlite.org/useovernet.html), and its write-ahead log needs one host (https://www.sqlite.org/wal.html). Ours
is opened exclusively, which needs no shared memory, so it works; what a lost server or a broken lock takes with it is
what the disk's owner has to know.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["network_file_system"]

_MOUNTS = Path("/proc/self/mounts")

_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "fhgfs", "fuse.beegfs", "fuse.ceph", "fuse.gcsfuse",
    "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "panfs", "smb3", "smbfs", "wekafs",
})  # fmt: skip
"""Names in the third column of the mounts, of what is not one host's own disk."""

# The table writes a space in a name as `\040`, and a backslash as `\134`.
_OCTAL = re.compile(r"\\([0-7]{3})")


def network_file_system(folder: Path, mounts: str | None = None) -> str | None:
    r"""Return the kind of the network file system that `folder` is on, or None for a local one, and where nobody tells.

    Args:
        folder: need not exist.
        mounts: instead of the table of this machine, which is there on Linux only.

    Examples:
        >>> network_file_system(Path("/home/me/runs"), "disk / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0")
        'nfs4'
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    path = folder.resolve()
    found: tuple[int, str] = (-1, "")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        if path.is_relative_to(point) and len(point.parts) >= found[0]:  # of two on one point, the later one is on top
            found = (len(point.parts), fields[2])
    return found[1] if found[1] in _NETWORK else None
