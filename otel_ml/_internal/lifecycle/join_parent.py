"""The run of a worker that `multiprocessing` has made before its program began one: it finds that at a record.

::

    Pool(2) ──▶ init("exp") ──▶ <pid>-<started>.children.launch.json: the variables by which a child joins the run
        worker: log(…) ── not there: in no run ── … ── log(…) ── it is there ──▶ in that run

The file lies in the folder of all rendezvous, which is this user's alone, for as long as the run is the one run of its
process. Who has no children writes none.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from otel_ml import env
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.identity.common_file import common_file
from otel_ml._internal.identity.launcher_process import started_ns
from otel_ml._internal.identity.runs_of_launch import SUFFIX
from otel_ml._internal.lifecycle.child_environment import JOINED_BY
from otel_ml._internal.lifecycle.run_requested import creator, is_worker
from otel_ml.wire.folder_ownership import read_ours
from otel_ml.wire.rendezvous import rendezvous_of, write_private

__all__ = ["CHILDREN", "Children", "environ_here", "has_joined_parent", "told_by_parent"]

_READ = JOINED_BY | {env.PARENT.name}


class Children:
    """Processes that this one has made, and that know nothing of its run yet."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._run = ""
        self._joined: dict[int, str] = {}

    def tell(self, variables: Mapping[str, str], run_id: str) -> None:
        """Say to those there are which run it is; say here which of them stay in a run before."""
        module = sys.modules.get("multiprocessing.process")
        pids = {child.pid for child in module.active_children()} if module is not None else set()
        if not pids:
            return
        self._say_who_stays(pids, run_id)
        path, started_by = _file_of(os.getpid()), (os.getpid(), started_ns(os.getpid()))
        with suppress(OSError), common_file(_joined(path), os.O_CREAT) as file:
            _write(file, {"started_by": started_by, "joined": {}})
            write_private(path, json.dumps({"started_by": started_by, "variables": {**variables}}))
            self._file, self._run = path, run_id

    def tell_no_more(self) -> None:
        """Take back which run it is; who has joined it is kept."""
        path, self._file = self._file, None
        if path is None:
            return
        path.unlink(missing_ok=True)
        with suppress(OSError, ValueError), common_file(_joined(path), 0) as file:
            joined = json.load(file)["joined"].items()
            self._joined |= {int(pid): run_id for pid, run_id in joined if run_id == self._run}
        path.with_name(_joined(path)).unlink(missing_ok=True)

    def forget(self) -> None:
        """In a forked child: none of them is its own."""
        self._file, self._joined = None, {}

    def _say_who_stays(self, pids: set[int], run_id: str) -> None:
        stay = {pid: joined for pid, joined in self._joined.items() if pid in pids and joined != run_id}
        if stay:
            reporter.say(
                "workers-stay",
                f"Workers of a pool, processes {', '.join(map(str, sorted(stay)[:8]))}, go on recording into run "
                f"{next(iter(stay.values()))}, which they joined before. Make the pool after init(), one for each run.",
                kind="workers-stay",
            )


CHILDREN = Children()
"""Those of this process."""


def told_by_parent() -> dict[str, str]:
    """Return the variables by which this worker joins its parent's run; none where that has none, or it is not one.

    Asked at each record until there is one.
    """
    if not is_worker():
        return {}
    try:
        found = json.loads(read_ours(_file_of(creator())))["variables"]
        return {name: str(value) for name, value in found.items() if name in _READ}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def environ_here() -> Mapping[str, str]:
    """Return the environment as a child sees it that is made now."""
    told = told_by_parent()
    return {**os.environ, **told} if told else os.environ


def has_joined_parent(run_id: str) -> None:
    """Say to the parent which run this worker records into."""
    pid = creator()
    if not pid:
        return
    with suppress(OSError, ValueError, KeyError), common_file(_joined(_file_of(pid)), 0) as file:
        said: dict[str, Any] = json.load(file)
        said["joined"][str(os.getpid())] = run_id
        _write(file, said)


def _write(file: Any, said: Mapping[str, Any]) -> None:
    file.seek(0)
    file.truncate()
    json.dump(said, file)


def _joined(path: Path) -> str:
    """Return the name of the file in which children say that they have joined: many write there, in turns."""
    return path.name.removesuffix(SUFFIX) + f".joined{SUFFIX}"


@cache
def _file_of(pid: int) -> Path:
    return rendezvous_of("").folder.with_name(f"{pid}-{started_ns(pid)}.children{SUFFIX}")
