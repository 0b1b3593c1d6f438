"""Which processes are surely gone: never those of another host or container, and never in doubt."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml.wire.pid_namespace import pid_namespace
from otel_ml.wire.rendezvous import boot_id
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.live_runs.dead_writers import DeadWriters, Died, ProcessTable
from tests.waiting import eventually

SLEEPER = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER, stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def writer(pid: int, instance: str = "a") -> Writer:
    """Return a writer of this host."""
    return Writer("one", "trainer", instance, pid=pid, boot=boot_id(), pid_namespace=pid_namespace())


def test_a_process_that_lives_has_not_ended_and_one_that_was_killed_has(process: subprocess.Popen[bytes]) -> None:
    table, its = ProcessTable(), writer(process.pid)
    assert table.ended([its]) == []

    process.kill()
    process.wait(20)

    assert table.ended([its]) == [its]


def test_a_process_that_nobody_has_waited_for_has_ended(process: subprocess.Popen[bytes]) -> None:
    table, its = ProcessTable(), writer(process.pid)
    process.kill()

    assert eventually(lambda: table.ended([its])) == [its]


OTHERS: list[dict[str, object]] = [
    {"boot": "another host"}, {"boot": ""}, {"pid_namespace": "4026532999"}, {"pid_namespace": ""}, {"pid": 0},
    {"pid": -1},
]  # fmt: skip


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_nothing_is_known_of_another_host_or_container_or_of_who_does_not_say(
    process: subprocess.Popen[bytes], other: dict[str, object]
) -> None:
    process.kill()
    process.wait(20)

    assert ProcessTable().ended([replace(writer(process.pid), **other)]) == []  # type: ignore[arg-type]


def test_a_number_that_was_given_to_another_process_is_not_its(process: subprocess.Popen[bytes]) -> None:
    table, its = ProcessTable(), writer(process.pid)
    assert table.ended([its]) == []

    process_of_later = replace(its, pid=os.getpid())  # as if the number were the same

    assert table.ended([process_of_later]) == [process_of_later]


def test_who_has_died_is_told_when_what_it_left_is_taken_in(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(20)
    its, spools = writer(process.pid), {"a"}
    dead = DeadWriters(lambda instance: "a spool" if instance in spools else "nothing")

    assert dead.among([its]) == Died([], leaving=[its])
    spools.clear()

    assert dead.among([its]) == Died([its], leaving=[])


def test_who_is_found_to_have_ended_well_is_waited_for_no_more(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(20)
    dead = DeadWriters(lambda instance: "a spool")
    assert dead.among([writer(process.pid)]).leaving

    assert dead.among([]) == Died([], leaving=[])


def test_a_spool_that_cannot_be_taken_in_does_not_keep_a_run_from_ending(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_ml_service.live_runs.dead_writers._TAKEN_IN_S", 0.0)  # nobody waits for 5 s
    process.kill()
    process.wait(20)
    its = writer(process.pid)

    assert DeadWriters(lambda instance: "a spool").among([its]).settled == [its]


def test_a_spool_that_is_being_taken_in_is_waited_for_however_long_that_takes(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_ml_service.live_runs.dead_writers._TAKEN_IN_S", 0.0)  # as above
    process.kill()
    process.wait(20)
    its = writer(process.pid)

    assert DeadWriters(lambda instance: "being taken in").among([its]) == Died([], leaving=[its])


def test_a_proc_of_another_namespace_tells_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from tests.unit.otel_ml_service.live_runs.test_dead_writers import ProcessTable, writer\n"
        "child = os.fork() or os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(ProcessTable().ended([writer(child)]))\n"
    )
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", sys.executable, str(program)]

    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environ)

    assert shown.stdout == "[]\n"
