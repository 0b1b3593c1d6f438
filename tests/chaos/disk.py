"""Small disks that can be filled: tmpfs in mounts that only this process and its children see."""

from __future__ import annotations

import ctypes
import os
import subprocess
from contextlib import suppress
from pathlib import Path

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000

SIZE = 256 * 2**20
"""Of a disk that is not full; memory is used only for what is on it."""


def private_mounts() -> bool:
    """Give this process mounts of its own, as root or in a user namespace; whether the system allows it.

    Call it before any thread is started.
    """
    user, group = os.getuid(), os.getgid()
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(_NEW_MOUNTS) != 0:
        if unshare(_NEW_MOUNTS | _NEW_USER) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    return _is_done("mount", "--make-rprivate", "/")


class SmallDisk:
    """A tmpfs at `folder`; without private mounts, the folder as it is, and `fill` cannot be called."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self._is_mounted = is_mounted
        folder.mkdir(parents=True)
        if is_mounted:
            command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "otel-ml-chaos", str(folder)]
            subprocess.run(command, check=True)

    def fill(self) -> None:
        """Leave no byte free: the disk becomes as large as what is on it."""
        for _ in range(100):  # it may grow while we look
            found = os.statvfs(self.folder)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            if _is_done("mount", "-o", f"remount,size={max(used, found.f_frsize)}", str(self.folder)):
                return
        raise AssertionError(f"{self.folder} cannot be filled")

    def free(self) -> None:
        """Make it large again."""
        subprocess.run(["mount", "-o", f"remount,size={SIZE}", str(self.folder)], check=True)

    def close(self) -> None:
        if self._is_mounted:
            with suppress(subprocess.CalledProcessError):
                subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


def _is_done(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
