"""The launcher's own process, among those that led to this one."""

from __future__ import annotations

from pathlib import Path

__all__ = ["launcher_process", "may_span_hosts"]

_MOST = 64
"""Processes between a rank and its launcher: wrappers that bind cores or set up a container."""


def launcher_process(ppid: int, variable: str) -> int:
    """Return the nearest ancestor that was started without `variable`, by which the launcher tells ranks apart.

    A rank may run in a script that the launcher has started for it: then its parent is another one for each rank.
    """
    pid = ppid
    for _ in range(_MOST):
        above = _parent(pid) if variable and _was_told(pid, variable) else 0
        if above <= 1:
            return pid
        pid = above
    return ppid


def may_span_hosts(agent: int) -> bool:
    """Whether a torchrun may be joined by others: it then has the same job, however many have come so far.

    `--nnodes 1:2` begins with one agent or two.
    """
    words = _words(agent, "cmdline")
    said = [word.partition("=")[2] or after for word, after in zip(words, [*words[1:], ""], strict=True) if _asks(word)]
    said += [word.partition("=")[2] for word in _words(agent, "environ") if word.startswith("PET_NNODES=")]
    most = said[0].rpartition(":")[2] if said else ""
    return most.isdecimal() and int(most) > 1


def _asks(word: str) -> bool:
    return word.partition("=")[0] in {"--nnodes", "-nnodes"}


def _was_told(pid: int, variable: str) -> bool:
    return any(word.startswith(f"{variable}=") for word in _words(pid, "environ"))


def _words(pid: int, file: str) -> list[str]:
    """Return what a process was started with; nothing where the system does not show it."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
