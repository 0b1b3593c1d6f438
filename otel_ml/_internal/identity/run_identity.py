"""The identity of the run and of this process (docs/protocol.md §2.3)."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, replace

from otel_ml import env
from otel_ml._internal.forks import FORKS, creator_by_multiprocessing, launch_variables, parent_of_program
from otel_ml._internal.identity.group_store import agreed_id
from otel_ml._internal.identity.launcher_process import (
    Process,
    ancestors,
    environ_of,
    launcher_process,
    makers,
    most_agents,
    start_time,
    started_ns,
    through_shells,
    was_started_with,
)
from otel_ml._internal.identity.ranks import BY_HAND, JobPlace, detect
from otel_ml._internal.identity.runs_of_launch import do_names_tell, number_in_launch
from otel_ml._internal.identity.started_by_hand import awaited_start, common_processes, joined_start
from otel_ml.config import Config
from otel_ml.wire.boot_clock import seconds_since_boot
from otel_ml.wire.rendezvous import boot_id

__all__ = [
    "ANYWHERE",
    "Identity",
    "Parent",
    "awaited_id",
    "identify",
    "launched_by",
    "launcher_id",
    "named_id",
    "new_id",
    "new_instance",
]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


ANYWHERE = 0
"""The process id of a parent that hands out `child_env()`: to processes that it need not have started."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The process this one is a child of; it is written into children's environment as one word.

    Attributes:
        launcher: who started it; empty for a process on its own.
        is_id_given: whether its run's id is not its own, but its environment's.
    """

    instance: str
    pid: int
    rank: int
    role: str
    launcher: str = ""
    is_id_given: bool = False

    def __str__(self) -> str:
        return f"{self.instance}:{self.pid}:{self.rank}:{self.launcher}:{self.is_id_given:d}:{self.role}"

    @staticmethod
    def parse(text: str) -> Parent | None:
        """Return the parent, or None where `text` is not one."""
        # The role comes last: it is the one part that may have colons in it.
        parts = text.split(":", 5)
        if len(parts) != 6 or not all(part.isdecimal() and len(part) < 20 for part in parts[1:3]):
            return None
        instance, pid, rank, launcher, is_id_given, role = parts
        return Parent(instance, int(pid), int(rank), role, launcher, is_id_given == "1")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who records: the run, the writer, and its place in the job.

    Attributes:
        run_id: `ml.experiment.id`.
        instance: `service.instance.id`, new for each process incarnation.
        parent: instance of the parent process where this is a child of a writer, else None.
        starter: instance of the writer that started this process, by a launcher perhaps, else None: a process with a
            place of its own has one too.
        has_world: whether the world size is that of its role. What a rank starts in another role has the variables of
            that rank; how many do so, nobody says.
        born: when it began, in seconds since the machine was started.
        number: which run of its launch it is, from 0; of a process on its own, which of those that it has begun.
    """

    run_id: str
    instance: str
    place: JobPlace
    parent: str | None = None
    starter: str | None = None
    has_world: bool = True
    born: float = field(default_factory=seconds_since_boot)
    number: int = 0

    @property
    def speaks(self) -> bool:
        """Whether this process speaks of the whole run: global rank 0, unless a writer that does so started it."""
        return self.place.rank == 0 and self.starter is None


def new_id(time_ns: int | None = None, entropy: bytes | None = None) -> str:
    """Return an id that sorts by time: a ULID, 48 bits of milliseconds and 80 random ones.

    Examples:
        >>> new_id(0, bytes(10))
        '00000000000000000000000000'
    """
    milliseconds = (time.time_ns() if time_ns is None else time_ns) // 1_000_000
    # 26 digits of five bits hold the 128, of which the first digit has three.
    number = milliseconds << 80 | int.from_bytes(os.urandom(10) if entropy is None else entropy[:10], "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def new_instance() -> str:
    """Return a new `service.instance.id`; from the system's randomness, which a fork does not repeat."""
    return os.urandom(16).hex()


def identify(
    config: Config,
    environ: Mapping[str, str],
    *,
    instance: str = "",
    ppid: int | None = None,
    begun: Collection[int] = (),
) -> Identity:
    """Decide identity from settings and launcher, in the order of docs/protocol.md §2.3.

    `instance` is who this process has been said to be; without, that is drawn here.
    `begun` are the numbers of the runs that this process has begun without being given an id. The launcher has
    one id, which no two runs may share; ranks that do the same agree on those of the later ones, too.
    """
    # Whoever may have made this process. The parent of a forkserver's child is the server, and that of a fork of a fork
    # is between it and the program, so more than one process counts.
    parents = {creator_by_multiprocessing(), os.getppid(), *FORKS.line} if ppid is None else {ppid}
    ppid = parent_of_program() if ppid is None else ppid
    detected = detect(environ)
    place = _place(config, environ, detected)
    # Both are at first the process that the environment names. What follows takes `parent` away from a process that has
    # a place of its own, and `starter`, too, from a rank that was given `child_env()`.
    starter = parent = Parent.parse(config.parent)
    if parent is not None and parent.pid == ANYWHERE:
        parents.add(ANYWHERE)
        if detected.launcher and place.world_size > 1:  # one of several ranks has a place of its own
            starter = parent = None
    # A size that stands in the environment may be inherited from the starter; one that `init()` was given is this
    # role's.
    is_size_said = config.world_size is not None and env.WORLD_SIZE.name not in environ
    has_world = is_size_said or not _has_variables_of(starter, parents, ppid, place.rank, config.role)
    if parent is not None and parent.pid not in parents:
        # Asked last: both read the files of all ancestors in /proc.
        parents.update(makers())
        if _is_place_passed_on(parent, place, environ):
            parents.add(parent.pid)
    if parent is not None and (parent.pid not in parents or (parent.rank, parent.role) != (place.rank, config.role)):
        parent = None  # what a launcher has started, or a process with a place of its own: a writer like any other
    if parent is not None and parent.pid != ANYWHERE:
        place = replace(place, rank_pid=parent.pid)
    number, run_id = 0, _given_id(config, environ, place)
    if not run_id:
        number, run_id = _own_run(config, place, ppid, begun)
    # The launcher counts restarts of what it started; a run continued by id may have had other lives before.
    attempt = None if config.id else place.attempt
    return Identity(
        run_id=run_id,
        instance=instance or new_instance(),
        place=replace(place, attempt=attempt),
        parent=parent.instance if parent else None,
        starter=starter.instance if starter else None,
        has_world=has_world,
        number=number,
    )


def _is_place_passed_on(starter: Parent, place: JobPlace, environ: Mapping[str, str]) -> bool:
    """Whether whatever is between, a shell or another program, has left the place in the launch as it was.

    It may have ended since, as the shell has that leaves a program in the background.
    """
    # A launcher gives each rank variables of its own. Ray and Dask do not, and have a server between.
    if starter.pid == os.getpid() or place.launcher != starter.launcher or (place.launcher and not place.variable):
        return False
    # This process, its parent, and so on: what stands before the starter is what the starter has started itself. A
    # starter that is not in the line has lost what was between, which has ended.
    line = [os.getpid(), *(pid for pid, _ in ancestors(os.getpid()))]
    first = line[line.index(starter.pid) - 1] if starter.pid in line else starter.pid
    told = environ_of(first)
    return bool(told) and launch_variables(told) == launch_variables(environ)


def _has_variables_of(starter: Parent | None, parents: Container[int | None], ppid: int, rank: int, role: str) -> bool:
    """Whether a process in a role of its own has what the launcher told its starter."""
    if starter is None or starter.role == role or starter.rank != rank:
        return False
    return starter.pid in parents or starter.pid in through_shells(ppid)


def _place(config: Config, environ: Mapping[str, str], detected: JobPlace) -> JobPlace:
    """Return the place that settings and launcher say; of several ranks that no launcher has started, one by hand."""
    place = replace(
        detected,
        rank=detected.rank if config.rank is None else config.rank,
        world_size=detected.world_size if config.world_size is None else config.world_size,
        local_rank=_local_rank(config, detected),
        role=config.role,
    )
    if place.launcher or place.world_size == 1:
        return place
    return replace(place, launcher=BY_HAND, variable=env.RANK.name if env.RANK.name in environ else "")


def _local_rank(config: Config, detected: JobPlace) -> int:
    if config.local_rank is not None:
        return config.local_rank
    # No launcher says on which host a rank is that the program numbers itself: its number stands for the local one,
    # too.
    if config.rank is not None and not detected.launcher:
        return config.rank
    return detected.local_rank


def _given_id(config: Config, environ: Mapping[str, str], place: JobPlace) -> str:
    """Return the id that was said; a trial's own, where the environment says it to all trials of the job."""
    if config.id and place.trial and environ.get(env.EXPERIMENT_ID.name) == config.id:
        # A process that a trial has started is given the trial's id, which has it already.
        return config.id if config.id.endswith(f"-{place.trial}") else f"{config.id}-{place.trial}"
    return config.id


def named_id(run_id: str, experiment: str, name: str) -> str:
    """Return the id of another run than that of `run_id`: one of its own name, the same for all who say it."""
    return f"{run_id}-{hashlib.sha256(chr(0).join((experiment, name)).encode()).hexdigest()[:8]}"


def _own_run(config: Config, place: JobPlace, ppid: int, begun: Collection[int]) -> tuple[int, str]:
    """Return number and id of a run of the launch; of a named task of a pool the id of its name.

    Workers of a pool do tasks in any order.
    """
    number = len(begun)
    if config.name and place.launcher == "dask" and place.world_size == 1:
        return number, named_id(launcher_id(place, ppid, 0), config.experiment, config.name)
    if not do_names_tell(place):
        return number, launcher_id(place, ppid, number)
    launch = launcher_id(place, ppid, 0)
    number = number_in_launch(launch, place, ppid, config, begun)
    return number, f"{launch}-{number + 1}" if number else launch


def launcher_id(place: JobPlace, ppid: int, before: int) -> str:
    """Return an id that all processes of one launch agree on and the next launch does not repeat.

    Across hosts only the launcher's own id is common to all, and what is in the store of `torch.distributed`; there a
    launcher's named job that is run twice continues the run, as its name says.
    """
    return _id_of(place, ppid, before, lambda: joined_start(place, ppid, before, _new_id_of(place.job)))


def awaited_id(place: JobPlace, ppid: int) -> str:
    """Return the same as a process that waits for rank 0: nothing is written down where nobody has begun."""
    return _id_of(place, ppid, 0, lambda: awaited_start(place, ppid, 0))


def _id_of(place: JobPlace, ppid: int, before: int, by_hand: Callable[[], str]) -> str:
    if place.is_alone:
        return new_id()
    which = (place.trial, str(before + 1) if before else "")
    return "-".join(part for part in (_launch_id(place, ppid, before, by_hand), *which) if part)


def _launch_id(place: JobPlace, ppid: int, before: int, by_hand: Callable[[], str]) -> str:
    # Items 3 to 6 of docs/protocol.md §2.3, in this order.
    launcher = launcher_process(ppid, place.variable)
    place = replace(place, job=_job(place, launcher))
    if place.job and _is_enough(place, launcher):
        return place.job
    agreed = None if place.launcher in _SEEN_BY_RANKS and place.hosts == 1 else agreed_id(new_id(), before)
    if not agreed and (place.launcher == BY_HAND or _is_function(place)):
        agreed = by_hand()
    if not agreed and place.is_of_scheduler and place.hosts > 1:
        return place.job
    # Where the launcher has started one task, each program below it is a start of its own (ADR 0033): its id is made of
    # this process, not of the launcher.
    return agreed or _derived_id(place, launcher if place.world_size > 1 or place.task is None else os.getpid())


_SEEN_BY_RANKS = frozenset({"torchrun", "mpi", "submitit"})
"""Launchers of which there is one process on a host; it stays when ranks are started again, and their group is not."""


def _job(place: JobPlace, launcher: int) -> str:
    """Return what the agents of one launch have in common: the step, or the job where that has too few for all."""
    is_of_steps = place.job_of_steps and max(place.hosts, most_agents(launcher)) > place.tasks
    return place.job_of_steps if is_of_steps else place.job


def _is_function(place: JobPlace) -> bool:
    """Whether a program, or a notebook, has torch run a function on ranks: it may do so again, and is not torchrun."""
    return place.launcher == "torchrun" and not was_started_with(place.variable)


def _new_id_of(job: str) -> str:
    return f"{job}-{os.urandom(4).hex()}" if job else new_id()


def _derived_id(place: JobPlace, pid: int) -> str:
    derived = hashlib.sha256(f"{boot_id()}\0{pid}\0{start_time(pid)}\0{place.job}".encode()).digest()
    if place.job:
        return f"{place.job}-{derived.hex()[:8]}"
    return new_id(started_ns(pid), derived)


def _is_enough(place: JobPlace, launcher: int) -> bool:
    """Whether the launcher's id of the job is one start's: not where it may have begun others, one after the other."""
    if place.is_of_scheduler:
        return False
    if place.hosts > 1 or most_agents(launcher) > 1:
        return True
    if place.task is None:
        return place.is_unique
    # The step's one task is this process, or the torchrun that has started it. If it is neither, it may be a shell,
    # from which one program after the other may be started (ADR 0033).
    return place.task == (launcher if place.launcher == "torchrun" else os.getpid()) and not _is_function(place)


def launched_by(place: JobPlace, ppid: int) -> Process:
    """Return the process that has started the ranks: it tells a launch from an earlier one of the same name."""
    # The last one is the farthest: those before it may be copies of the shell that one rank has for itself.
    return common_processes(ppid, place.variable, place.rank)[-1]
