"""The run of a worker, made by `multiprocessing` or a fork before its program began one: it finds that at a record.

::

    Pool(2) ──▶ init("exp") ──▶ <process>.children.launch.json: the variables by which a child joins the run
        worker: log(…) ── not there: in no run ── … ── log(…) ── it is there ──▶ in that run

The file lies in the folder of all rendezvous, which is this user's alone, for as long as the run is the one run of its
process. Who has no children writes none.

A worker of a rank may know of the run before its rank does, from rank 0. It is a child of its rank nevertheless::

    worker: log(…) ── rank 0 has begun the run ──▶ <process>.rank.launch.json: who its rank will be
        rank: init(…) or log(…) ── it is there ──▶ that is who it is
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
from otel_ml._internal.forks import FORKS, creator, launch_variables
from otel_ml._internal.identity.common_file import common_file
from otel_ml._internal.identity.launch_file import SUFFIX, started_by
from otel_ml._internal.identity.launcher_process import environ_of, forked_by, start_time
from otel_ml._internal.identity.ranks import detect
from otel_ml._internal.identity.run_identity import Parent, new_instance
from otel_ml._internal.lifecycle.child_environment import JOINED_BY
from otel_ml._internal.lifecycle.run_requested import is_worker
from otel_ml.config import Config
from otel_ml.wire.folder_ownership import read_ours
from otel_ml.wire.pid_namespace import pid_namespace
from otel_ml.wire.rendezvous import rendezvous_of, write_private

__all__ = [
    "CHILDREN",
    "Children",
    "child_of_rank",
    "environ_here",
    "has_joined_parent",
    "rank_that_made_this",
    "told_by_parent",
]

_READ = JOINED_BY | {env.PARENT.name}


class Children:
    """Processes that this one has made, and that know nothing of its run yet."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._run = ""
        self._joined: dict[int, str] = {}
        self._has_begun = False

    def instance(self) -> str:
        """Return who this process is in a run that it begins: in the first, who its children say that it is."""
        is_first, self._has_begun = not self._has_begun, True
        create = os.O_CREAT if _pids() or FORKS.any else 0
        return _instance_of(os.getpid(), create) if is_first else new_instance()

    def tell(self, variables: Mapping[str, str], run_id: str) -> None:
        """Say to those there are which run it is; say here which of them stay in a run before."""
        pids = _pids()
        if not pids and not FORKS.any:
            return
        # Before the files are written anew, which forgets who has joined the run before.
        self._say_who_stays(pids, run_id)
        path, who = _file_of(os.getpid()), _started_by(os.getpid())
        with suppress(OSError), common_file(_joined(path), os.O_CREAT) as file:
            # Within the lock of the other file: a child that has read the variables waits for it, and then finds the
            # file that it writes itself into.
            write_private(path, json.dumps({**who, "variables": {**variables}}))
            self._file, self._run = path, run_id
            file.write(json.dumps({**who, "joined": {}}))

    def tell_no_more(self) -> None:
        """Take back which run it is; who has joined it is kept."""
        path, self._file = self._file, None
        if path is None:
            return
        _remove(path)
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError), common_file(_joined(path), 0) as file:
            # A child may record into a run of its own by now: it does not stay in this one.
            joined = json.loads(file.text)["joined"].items()
            self._joined |= {int(pid): run_id for pid, run_id in joined if run_id == self._run}
        for name in (_joined(path), _rank_file(os.getpid())):
            _remove(path.with_name(name))

    def forget(self) -> None:
        """In a forked child: none of them is its own."""
        self._file, self._joined, self._has_begun = None, {}, False

    def _say_who_stays(self, pids: set[int], run_id: str) -> None:
        stay = {pid: joined for pid, joined in self._joined.items() if pid in pids and joined != run_id}
        if stay:
            reporter.say(
                "workers-stay",
                f"Workers of a pool, processes {', '.join(map(str, sorted(stay)[:8]))}, go on recording into run "
                f"{next(iter(stay.values()))}, which they joined before. Make the pool after init(), one for each run.",
                kind="workers-stay",
            )


def _remove(path: Path) -> None:
    """Remove a file at the end of a run, which no file system that is read-only by now may keep from ending."""
    with suppress(OSError):
        path.unlink()


def _pids() -> set[int]:
    """Return what `multiprocessing` has made here, and has not ended."""
    module = sys.modules.get("multiprocessing.process")
    return {child.pid or 0 for child in module.active_children()} if module is not None else set()


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


def rank_that_made_this(environ: Mapping[str, str]) -> int:
    """Return the process of the rank that has made this one; 0 where this is the rank.

    Who is made to be a rank, by `mp.spawn` or a launch of a function, gets its number afterwards.
    """
    pid, told = creator() or forked_by(), launch_variables(environ)
    # The environment at the last fork; of a process that was spawned what it was started with.
    is_born_so = pid and told and launch_variables(FORKS.environ or environ_of(os.getpid())) == told
    return pid if is_born_so else 0


def child_of_rank(config: Config, environ: Mapping[str, str], pid: int) -> dict[str, str]:
    """Return the variable by which this process is a child of the rank that has made it, and that has no run yet."""
    place = detect(environ)
    rank = place.rank if config.rank is None else config.rank
    return {env.PARENT.name: str(Parent(_instance_of(pid, os.O_CREAT), pid, rank, config.role, place.launcher))}


def _instance_of(pid: int, create: int) -> str:
    """Return who a process is in its first run, as it or what it has made says first; `create` as in open(2)."""
    instance = new_instance()
    with suppress(OSError), common_file(_rank_file(pid), create) as file:
        with suppress(ValueError, KeyError, TypeError):
            # A new file is empty, which is not JSON: then this process is the first, and writes it. Without `create` a
            # missing file ends the outer block, and nothing is written.
            return str(json.loads(file.text)["instance"])
        file.write(json.dumps({**_started_by(pid), "instance": instance}))
    return instance


def _rank_file(pid: int) -> str:
    return f"{_named(pid)}.rank{SUFFIX}"


def _started_by(pid: int) -> dict[str, Any]:
    return started_by((pid, start_time(pid)))


def _named(pid: int) -> str:
    """Name a process, also beside those of containers that share the folder: each has a process 1."""
    return f"{pid_namespace() or 0}-{pid}-{start_time(pid)}"


def environ_here() -> Mapping[str, str]:
    """Return the environment as a child sees it that is made now."""
    told = told_by_parent()
    return {**os.environ, **told} if told else os.environ


def has_joined_parent(run_id: str) -> None:
    """Say to the parent which run this worker records into."""
    pid = creator()
    if not pid:
        return
    with suppress(OSError, ValueError, KeyError, TypeError), common_file(_joined(_file_of(pid)), 0) as file:
        said: dict[str, Any] = json.loads(file.text)
        said["joined"][str(os.getpid())] = run_id
        file.write(json.dumps(said))


def _joined(path: Path) -> str:
    """Return the name of the file in which children say that they have joined: many write there, in turns."""
    return path.name.removesuffix(SUFFIX) + f".joined{SUFFIX}"


# Asked at each record until there is a run: the start of a process is read once.
@cache
def _file_of(pid: int) -> Path:
    return rendezvous_of("").folder.with_name(f"{_named(pid)}.children{SUFFIX}")
