"""The host, the job's processes, and which process of a host samples."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import otel_ml
from otel_ml._internal.identity.run_identity import new_id
from otel_ml.diagnostics import hardware
from otel_ml.diagnostics.hardware.election import Election, HostFolder
from otel_ml.diagnostics.hardware.host import Host
from otel_ml.testing import Capture, otel_ml_capture
from tests.e2e.jobs import environment
from tests.waiting import eventually

__all__ = ["otel_ml_capture"]

FAST = 0.02


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@contextmanager
def program(text: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends; it has begun when it has printed a line."""
    command = [sys.executable, "-c", text, *map(str, arguments)]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None
        try:
            yield run
        finally:
            run.stdin.close()
            run.wait(20)


def line(run: subprocess.Popen[str]) -> str:
    assert run.stdout is not None
    return run.stdout.readline().strip()


def readings(host: Host) -> dict[str, float]:
    return {reading.name: reading.value for reading in host.read()}


def test_the_hosts_memory_and_processors_are_recorded_with_the_hosts_name(otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST, sources="host"):
        eventually(lambda: [p for p in otel_ml_capture.points if p.name == "system.cpu.utilization"])

    usage, limit = (
        next(point for point in otel_ml_capture.points if point.name == name)
        for name in ("system.memory.usage", "system.memory.limit")
    )
    assert 0 < usage.mean < limit.mean == psutil.virtual_memory().total
    assert usage.attributes == {"host.name": os.uname().nodename}
    assert (usage.axis, usage.reduction) == ("time", "mean")
    assert all(0 <= p.mean <= 1 for p in otel_ml_capture.points if p.name.endswith(".utilization"))


def test_utilisation_is_absent_until_there_is_a_time_to_compare_with() -> None:
    host = Host(lambda: [os.getpid()])

    first = readings(host)
    second = readings(host)

    assert {"system.cpu.utilization", "process.cpu.utilization"} & set(first) == set()
    assert {"system.cpu.utilization", "process.cpu.utilization"} <= set(second)


@pytest.mark.feature("R11", "yes", "of the whole process tree; `operation()` has each process' own")
def test_every_process_of_the_job_counts_once_grandchildren_too() -> None:
    """A rank, its child and its grandchild; the child takes part as a rank of its own, too."""
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with program(
        f"import subprocess, sys, os\nwith subprocess.Popen([sys.executable, '-c', {nested!r}]) as p:\n"
        "    print(p.pid, flush=True)\n    p.wait()"
    ) as rank:
        child = int(line(rank))
        assert line(rank) == "1"  # the grandchild
        host = Host(lambda: [rank.pid, child])

        assert readings(host)["process.count"] == 3
        assert readings(Host(lambda: [rank.pid]))["process.count"] == 3

    assert "process.count" not in readings(host)


def test_a_process_that_is_gone_or_hidden_costs_nothing_but_itself() -> None:
    found = readings(Host(lambda: [2**22 - 1, os.getpid()]))

    assert found["process.count"] >= 1
    assert found["process.memory.usage"] >= psutil.Process().memory_info().rss / 2


def test_a_container_without_proc_costs_what_proc_would_say_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, otel_ml_capture: Capture
) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "nothing"))

    host = Host(lambda: [os.getpid()])

    assert readings(host) == readings(host) == {}
    assert "memory_bytes" not in host.facts
    with hardware.start_monitor(FAST, sources="host"):
        otel_ml.log({"loss": 1.0}, step=0)
    assert {point.name for point in otel_ml_capture.points} == {"loss"}


def test_a_monitor_whose_folder_was_removed_begins_anew(otel_ml_capture: Capture, tmp_path: Path) -> None:
    with hardware.start_monitor(FAST, sources="host"):
        folder = eventually(lambda: list(tmp_path.glob("otel-ml-*/*.hardware")))[0]
        eventually(lambda: otel_ml_capture.points)
        shutil.rmtree(folder)
        assert eventually(lambda: (folder / "host.lock").exists())
        before = len(otel_ml_capture.points)
        eventually(lambda: len(otel_ml_capture.points) > before)


def test_one_process_a_host_samples_and_the_next_takes_over_when_it_is_killed() -> None:
    run = new_id()
    ask = (
        "import sys\nfrom otel_ml.diagnostics.hardware.election import Election, HostFolder\n"
        "e = Election(HostFolder(sys.argv[1]), 'gpu')\nprint(e.is_won(), flush=True)\ninput()"
    )
    with program(ask, run) as first:
        assert line(first) == "True"
        mine = Election(HostFolder(run), "gpu")
        assert not mine.is_won()
        assert Election(HostFolder(run), "host").is_won()  # each source by itself

        first.kill()
        first.wait()

        assert mine.is_won()


def test_a_forked_child_neither_samples_nor_keeps_the_place_of_its_dead_parent() -> None:
    run = new_id()
    fork = (
        "import os, sys\nfrom otel_ml.diagnostics.hardware.election import Election, HostFolder\n"
        "e = Election(HostFolder(sys.argv[1]), 'gpu')\nassert e.is_won()\n"
        "child = os.fork()\n"
        "stays = sys.argv[2] == 'stay'\n"
        "if child == 0:\n    print(e.is_won() if stays else 'here', flush=True)\n"
        "    sys.stdin.read()\n    os._exit(0)\n"
        "os.wait() if stays else os._exit(0)"
    )
    with program(fork, run, "stay") as parent:
        assert line(parent) == "False"
    mine = Election(HostFolder(run), "gpu")
    assert mine.is_won()
    mine.release()
    with program(fork, run, "die") as parent:
        line(parent)
        parent.wait(20)
        assert eventually(mine.is_won)


def test_two_roles_on_one_host_record_it_once(otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST, sources="host"), hardware.start_monitor(FAST, sources="host"):
        eventually(lambda: sum(p.count for p in otel_ml_capture.points if p.name == "system.memory.usage") > 4)
        params = [event for event in otel_ml_capture.events if event.kind == "ml.params"]

    assert len(params) == 1  # who samples says what is there


def test_who_does_not_sample_takes_no_last_sample_in_the_place_of_one_that_ends_before_it(
    otel_ml_capture: Capture,
) -> None:
    def samples() -> int:
        return sum(point.count for point in otel_ml_capture.points if point.name == "system.memory.usage")

    sampler = hardware.start_monitor(60, sources=["host"])
    each = eventually(samples)
    other = hardware.start_monitor(60, sources=["host"])
    eventually(lambda: other._sources)
    sampler.stop()
    other.stop()

    assert samples() == 2 * each  # when it began, and when it ended


def test_the_sampler_takes_its_last_sample_though_another_monitor_of_its_process_has_tidied_up(
    otel_ml_capture: Capture,
) -> None:
    def samples() -> int:
        return sum(point.count for point in otel_ml_capture.points if point.name == "system.memory.usage")

    sampler = hardware.start_monitor(60, sources=["host"])
    each = eventually(samples)
    other = hardware.start_monitor(60, sources=["host"])
    eventually(lambda: other._sources)
    other.stop()
    sampler.stop()

    assert samples() == 2 * each
    assert [event.body for event in otel_ml_capture.events if event.kind == "ml.notice"] == []


def test_a_lock_whose_folder_was_removed_and_made_again_excludes_nobody() -> None:
    folder = HostFolder(new_id())
    first = Election(folder, "gpu")
    assert first.is_won()
    folder.leave()
    second = Election(HostFolder(folder._run_id), "gpu")

    assert second.is_won()
    assert not first.is_won()


def test_the_last_process_of_the_job_leaves_nothing_behind(otel_ml_capture: Capture, tmp_path: Path) -> None:
    with hardware.start_monitor(FAST, sources="host"):
        folder = eventually(lambda: list(tmp_path.glob("otel-ml-*/*.hardware/processes")))[0].parent

    assert not folder.exists()


def test_every_sampler_of_a_run_counts_the_same_seconds() -> None:
    known = "01ARYZ6S41TSV4RRFFQ69G5FAV"

    assert HostFolder(known).origin() == 1469918176.385
    assert HostFolder("my-run").origin() == HostFolder("my-run").origin()


def test_a_folder_that_others_can_write_into_is_refused(tmp_path: Path) -> None:
    folder = HostFolder(new_id())
    folder.path.chmod(0o777)

    with pytest.raises(PermissionError, match="not a private folder"):
        HostFolder(folder._run_id)


def test_a_monitor_that_is_started_before_the_run_waits_for_it(tmp_path: Path) -> None:
    from otel_ml.testing import capture

    with hardware.start_monitor(FAST, sources="host"), capture() as captured:
        eventually(lambda: captured.points)


def test_a_monitor_that_outlives_a_run_counts_the_seconds_of_the_next_one_anew() -> None:
    from otel_ml.testing import capture

    def rows(captured: Capture) -> set[int | None]:
        return {point.step for point in captured.points if point.name == "system.memory.usage"}

    with hardware.start_monitor(FAST, sources="host"):
        with capture(id="01ARYZ6S41TSV4RRFFQ69G5FAV") as first:  # an id that was made in 2016
            eventually(lambda: rows(first))
        with capture() as second:
            eventually(lambda: rows(second))

    assert min(step or 0 for step in rows(first)) > 300_000_000
    assert max(step or 0 for step in rows(second)) < 60


def test_a_monitor_that_was_stopped_is_started_again_for_the_next_run() -> None:
    from otel_ml.testing import capture

    monitor = hardware.Monitor(FAST, sources="host")
    for _ in range(2):
        with capture() as captured, monitor:  # the end of a monitor takes one sample in any case
            eventually(lambda: len(captured.values("system.memory.usage", axis="time")) > 1)


@pytest.mark.feature("N30", "better", "a table that grows, with what each stage added")
def test_stages_of_a_start_say_what_each_added_to_the_memory(otel_ml_capture: Capture) -> None:
    stages = hardware.MemoryStages()
    held = bytearray(256 * 2**20)  # beside which what Python gives back is little
    stages.mark("data")
    stages.mark("nothing")

    table = [event for event in otel_ml_capture.events if event.kind == "ml.table"][-1]
    assert table.body["columns"][:4] == ["stage", "seconds", "rss", "rss added"]
    (data, nothing) = table.body["rows"]
    assert data[0] == "data"
    assert data[3] >= len(held) * 0.9 > nothing[3]
    assert data[4:] == [None, None]  # no device: absent, not 0


def test_a_prefix_puts_the_names_where_mlflow_looks_for_system_metrics(otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(FAST, sources="host", prefix="system"):
        eventually(lambda: [p for p in otel_ml_capture.points if p.name == "system/system.memory.usage"])

    assert all(point.name.startswith("system/") for point in otel_ml_capture.points if "memory" in point.name)
