"""What each kind of fault does to a job: how it begins, and how it ends."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

from otel_ml_service.versions import RUN
from tests.chaos.job import REDONE, Job, Life
from tests.chaos.layout import RANKS
from tests.chaos.schedule import Fault
from tests.e2e.jobs import until

End = Callable[[], None]


TIMEOUT_S = 4.0
"""A process that leaves after more than this has found nobody who takes what it holds: it tries for 5 s."""


class Faults:
    """Begins a fault, and returns what ends it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._first_words: dict[str, Callable[[Fault], End]] = {
            "kill": self._kill,
            "SIGSTOP": self._stop,
            "SIGTERM": self._end_generator,
            "clock": self._jump,
            "network:": self._disturb,
            "behind": self._disturb,
            "MLflow's": self._disturb,
            "backend": self._trouble,
            "disk": self._fill,
            "a trainer hangs": self._hang,
            "a former version": self._downgrade,
            "a deleted": self._delete,
        }

    def begin(self, fault: Fault) -> End:
        words = next(words for words in self._first_words if fault.kind.startswith(words))
        return self._first_words[words](fault)

    def _kill(self, fault: Fault) -> End:
        if fault.target == "trainer":
            return self._kill_trainers(fault)
        if fault.target == "generator":
            return self._kill_generator(fault)
        if fault.target in self._job.hops.programs:
            self._job.hops.kill(fault.target)
            return partial(self._job.hops.revive, fault.target)
        return self._kill_embedded()

    def _kill_trainers(self, fault: Fault) -> End:
        """Kill one rank; its launcher kills the others, and starts all of them from the last checkpoint."""
        chance = random.Random(fault.draw)
        victims = self._job.living("trainer")
        chance.shuffle(victims)
        self._job.kill(victims[0])
        ranks = sorted(chance.sample(range(RANKS["trainer"]), RANKS["trainer"] - ("fewer" in fault.kind)))
        back = chance.randint(0, REDONE)

        def restart() -> None:
            for life in victims[1:]:
                self._job.kill(life)
            self._job.restart_trainers(back, ranks)

        return restart

    def _kill_generator(self, fault: Fault) -> End:
        """Kill one of a pool; the others go on, and a new one takes its place, unless it is for good."""
        victim = self._one_of("generator", fault)
        self._job.kill(victim)
        if "for good" in fault.kind:
            return _nothing
        return lambda: self._job.launch("generator", victim.rank, "join")

    def _end_generator(self, fault: Fault) -> End:
        """End one of a pool as Slurm does at a time limit: twice, the second while its goodbye is under way."""
        victim = self._one_of("generator", fault)
        if self._job.last_of(victim) < 0:  # the handler is not installed yet
            return _nothing
        victim.is_ended = True
        told_at = time.monotonic()
        victim.process.terminate()
        time.sleep(0.007)  # the second signal is to meet the goodbye; any moment of it will do
        victim.process.terminate()
        victim.process.wait(60)
        now = time.monotonic()
        victim.gave_up_at = now if now - told_at > TIMEOUT_S else None
        return lambda: self._job.launch("generator", victim.rank, "join")

    def _kill_embedded(self) -> End:
        os.kill(self._embedded(), signal.SIGKILL)
        return _nothing  # a worker starts the next one

    def _downgrade(self, fault: Fault) -> End:
        """Start a service that finds a run of a newer otel_ml: it leaves that as it is, and its senders wait."""
        hops = self._job.hops
        hops.kill(fault.target)
        version = self._marked_as(RUN + 1)
        hops.revive(fault.target)
        if not version:  # nothing is stored yet, or nothing can be written now
            return _nothing

        def end() -> None:
            hops.kill(fault.target)
            if not self._marked_as(version):  # its disk is full, and is freed by nobody while this waits
                self._job.disk.free()
                until(lambda: self._marked_as(version), seconds=60)
            hops.revive(fault.target)

        return end

    def _marked_as(self, version: int) -> int:
        """Say of the run that it was stored in this version; return the one before, 0 where that cannot be said now."""
        for database in self._job.runs.glob("*/*/state/run.db"):
            with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as connection:
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
                [(before,)] = connection.execute("PRAGMA user_version")
                connection.execute(f"PRAGMA user_version = {version:d}")
                return int(before)
        return 0

    def _stop(self, fault: Fault) -> End:
        if fault.target in RANKS:
            return self._stop_worker(self._one_of(fault.target, fault))
        program = self._job.hops.programs.get(fault.target)
        if program is None:
            return _stop_process(self._embedded())
        assert program.process is not None
        return _stop_process(program.process.pid)

    def _stop_worker(self, life: Life) -> End:
        began = time.monotonic()
        resume = _stop_process(life.process.pid)

        def end() -> None:
            if life.process.poll() is None:
                resume()
            life.stopped.append((began, time.monotonic()))

        return end

    def _hang(self, fault: Fault) -> End:
        """Stop a trainer; its launcher restarts all and overlooks this one, which wakes up and records on."""
        chance = random.Random(fault.draw)
        victims = self._job.living("trainer")
        chance.shuffle(victims)
        zombie = victims[0]
        wake = self._stop_worker(zombie)
        zombie.is_zombie = True
        for life in victims[1:]:
            self._job.kill(life)
        self._job.restart_trainers(chance.randint(0, REDONE), range(RANKS["trainer"]))

        def end() -> None:
            wake()
            time.sleep(1.0)  # the fault: how long a zombie goes on
            self._job.kill(zombie)

        return end

    def _jump(self, fault: Fault) -> End:
        life = self._one_of(fault.target, fault)
        if self._job.last_of(life) >= 0:  # the handler is installed by then
            life.process.send_signal(signal.SIGUSR1)
        return _nothing

    def _disturb(self, fault: Fault) -> End:
        proxy = self._job.hops.networks[fault.target]
        proxy.mode = fault.kind.rpartition(" ")[2]  # type: ignore[assignment]  # the schedule's words are its modes
        self._job.is_swallowed |= proxy.mode == "swallow"

        def end() -> None:
            proxy.mode = "pass"

        return end

    def _trouble(self, fault: Fault) -> End:
        backend = random.Random(fault.draw).choice(["jsonl", "tensorboard", "mlflow", "wandb"])
        how = fault.kind.removeprefix("backend ")
        once = f" {fault.draw}" if how == "starts anew" else ""
        written = self._job.trouble.with_suffix(".new")
        written.write_text(f"{backend} {how}{once}")
        written.replace(self._job.trouble)
        return lambda: self._job.trouble.unlink(missing_ok=True)  # another one may have begun, and ended, meanwhile

    def _fill(self, fault: Fault) -> End:
        job = self._job
        if fault.target == "service's disk":
            job.disk.fill()
            return job.disk.free
        began, descriptors = time.monotonic(), job.descriptors()
        job.spools.fill()

        def end() -> None:
            for pid, count in job.descriptors().items():
                job.leaked = max(job.leaked, count - descriptors.get(pid, count))
            job.spools.free()
            job.spools_full.append((began, time.monotonic()))

        return end

    def _delete(self, fault: Fault) -> End:
        """Delete what a backend has written into the run's folder: somebody tidies up under a live run."""
        name = random.Random(fault.draw).choice(["metrics.jsonl", "tensorboard", "wandb"])
        for path in self._job.runs.glob(f"*/*/{name}"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # a file may be made in it meanwhile
            else:
                path.unlink(missing_ok=True)
        return _nothing

    def _one_of(self, role: str, fault: Fault) -> Life:
        living = self._job.living(role)
        return living[fault.draw % len(living)]

    def _embedded(self) -> int:
        return until(self._job.embedded_services)[0]


def _stop_process(pid: int) -> End:
    with suppress(ProcessLookupError):  # one that a full disk has ended is not back yet
        os.kill(pid, signal.SIGSTOP)

    def end() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    return end


def _nothing() -> None:
    """What happened has no end."""
