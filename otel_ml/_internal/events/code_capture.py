"""What a run was started from: command line, host, git commit and diff, packages (global rank 0, in the background)."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.events.artifacts import MAX_INLINE
from otel_ml._internal.events.event_queue import EventQueue
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.own_threads import begin_own_thread
from otel_ml._internal.yield_interpreter import yield_interpreter
from otel_ml.redaction import redacted, redacted_arguments
from otel_ml.wire import attributes as keys

__all__ = ["Capture", "captured"]

_NAME_AND_VERSION = re.compile(r"^(Name|Version): *(\S+)", re.MULTILINE)

_AS_A_PATCH = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--unified=3",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
"""What `git apply` takes, whatever the user's configuration says of how differences are shown."""


class Capture:
    """Looks in a thread of its own: git may take seconds, and the spool is written every 100 ms."""

    def __init__(self, role: str, events: EventQueue) -> None:
        self._role = role
        self._events = events
        self._is_over = False
        self._thread = threading.Thread(target=self._look, name="otel_ml_capture", daemon=True)

    def start(self) -> None:
        """Begin to look; where the system gives no thread nobody does, which is said: others would wait for it."""
        try:
            self._thread.start()
        except RuntimeError as error:
            reporter.say(
                "missing-artifact",
                f"What the run was started from (command line, commit, packages) is not in the run: {error}.",
            )

    def end(self, timeout: float) -> None:
        """Wait until all is queued, for `timeout` seconds: a short program ends before git does.

        What is found later belongs to a run that is over, and must not get into the next one of the process.
        """
        if self._thread.is_alive():
            self._thread.join(timeout)
        self._is_over = True

    def _look(self) -> None:
        begin_own_thread()
        for record in captured(self._role):  # each as soon as it is known: a short job may end before the last
            if self._is_over:
                return
            self._events.put("capture", partial(tuple, (record,)))


def captured(role: str) -> Iterator[LogRecord]:
    """Yield params and artifacts that tell what ran; each program of the job has its own command line."""
    facts = {**_program(), **_git()}
    # A role that metrics have no prefix for (docs/protocol.md §2.10) has none here either.
    yield LogRecord(keys.EVENT_PARAMS, {"otel_ml": facts if role in keys.UNNAMED_ROLES else {role: facts}})
    diff = _run_git("diff", "HEAD", *_AS_A_PATCH)
    if diff:
        # With every byte that git wrote: the last line may be an empty one, and files need not be UTF-8.
        text = diff.decode("utf-8", "surrogateescape")
        yield _artifact("git-diff.patch", redacted(text).encode("utf-8", "surrogateescape"))
    yield _artifact("packages.txt", ("\n".join(sorted(set(_packages()))) + "\n").encode("utf-8", "replace"))


def _program() -> Mapping[str, object]:
    return {
        "command": " ".join(redacted_arguments(_command())),
        "program": redacted(next(iter(sys.argv), "")),  # a program that Python is embedded in may have none
        "arguments": redacted_arguments(sys.argv)[1:],
        "executable": sys.executable,
        "python": sys.version.split()[0],
        "os": platform.platform(),
        "host": socket.gethostname(),
        "user": _user(),
        "working_directory": _working_directory(),
    }


_OF_MULTIPROCESSING = ("from multiprocessing.spawn import spawn_main", "from multiprocessing.forkserver import main")
"""How Python begins what it runs in a process that `multiprocessing` has started anew."""


def _command() -> list[str]:
    """Return the command of the program: that of a process of `multiprocessing` has the numbers of pipes instead."""
    if any(argument.startswith(_OF_MULTIPROCESSING) for argument in sys.orig_argv):
        return [*sys.orig_argv[:1], *sys.argv]
    return sys.orig_argv


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user that has no name
        return str(os.getuid())


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "(removed)"


def _git() -> Mapping[str, object]:
    commit = _ask_git("rev-parse", "HEAD")
    if not commit:
        return {}
    found = {
        "commit": commit,
        "branch": _ask_git("rev-parse", "--abbrev-ref", "HEAD"),
        "remote": redacted(_ask_git("remote", "get-url", "origin")),
    }
    return {"git": {key: value for key, value in found.items() if value}}


def _ask_git(*arguments: str) -> str:
    return _run_git(*arguments).decode("utf-8", "replace").strip()


def _run_git(*arguments: str) -> bytes:
    """Return what git writes, or nothing: no git, no repository, or one that takes too long to look through."""
    try:
        return subprocess.run(
            ["git", *arguments], capture_output=True, timeout=10, check=True, stdin=subprocess.DEVNULL
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return b""


def _packages() -> Iterator[str]:
    """Yield `name==version` of all that is installed, without parsing the description of each as an e-mail."""
    from importlib.metadata import distributions  # 3 MB that ranks above 0 have no use for

    for item in distributions():
        try:
            # METADATA is a wheel's, PKG-INFO that of a folder `*.egg-info`; where distutils has left `*.egg-info` as a
            # file, the empty name reads that file.
            text = item.read_text("METADATA") or item.read_text("PKG-INFO") or item.read_text("") or ""
        except (OSError, UnicodeDecodeError):  # not UTF-8, or gone meanwhile: the others are told
            continue
        # Only what is above the first empty line: a description may have lines that begin with `Name:`, too.
        found = dict(_NAME_AND_VERSION.findall(text.partition("\n\n")[0]))
        if len(found) == 2:
            yield f"{found['Name']}=={found['Version']}"
        yield_interpreter()


def _artifact(name: str, content: bytes) -> LogRecord:
    # A longer diff is cut, since it travels within the event (docs/protocol.md §2.12).
    content = content[:MAX_INLINE]
    attributes = {
        keys.NAME: "code",
        "ml.artifact.type": "code",
        "ml.artifact.path_in": name,
        "ml.artifact.uri": "",
        "ml.artifact.size": len(content),
        "ml.artifact.sha256": hashlib.sha256(content).hexdigest(),
        "ml.artifact.aliases": [],
    }
    return LogRecord(keys.EVENT_ARTIFACT, content, attributes, time.time_ns())
