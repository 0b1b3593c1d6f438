"""Several hosts on one machine: network namespaces with addresses, loopbacks and host names of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["address_of", "beside_hosts", "on_host"]

SCRIPT = Path(__file__).with_name("hosts.sh")

WHAT_TO_DO = (
    "This test needs network namespaces, and they are not permitted here. Run it as root with CAP_SYS_ADMIN and "
    "CAP_NET_ADMIN (docker run --privileged), or allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1, "
    "and where AppArmor restricts them, kernel.apparmor_restrict_unprivileged_userns=0. iproute2 must be installed."
)


def beside_hosts(count: int, *command: object) -> list[object]:
    """Return the command that makes `count` hosts and runs `command` where it reaches all of them by address."""
    return [*_namespaces(), SCRIPT, count, *command]


def on_host(number: int, *command: object) -> list[object]:
    """Return the command that runs `command` on a host; its process is that of `command`."""
    naming = ["unshare", "--uts", "bash", "-c", 'hostname "$0"; exec "$@"', f"host{number}"]
    return ["ip", "netns", "exec", f"host{number}", *naming, *command]


def address_of(number: int) -> str:
    return f"10.77.0.1{number}"


def _namespaces() -> Sequence[str]:
    """Return what gives a command namespaces of its own: as root directly, else by a namespace of users."""
    own = ["unshare", "--net", "--mount", "--fork"]
    by_user = [*own, "--user", "--map-root-user"]
    said = ""
    for command in [own, by_user] if os.geteuid() == 0 else [by_user]:
        tried = subprocess.run([*command, SCRIPT, "1", "true"], capture_output=True, text=True, check=False, timeout=60)
        if tried.returncode == 0:
            return command
        said += f"\n{' '.join(command)}: {tried.stderr.strip()}"
    raise AssertionError(WHAT_TO_DO + said)
