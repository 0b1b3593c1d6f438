"""What the kernel says of this process' memory: right though its file was closed by the program, or is a parent's."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from otel_ml.diagnostics.hardware.process_memory import ProcessMemory, Statm, process_memory

# What a wrong reading would miss. The C library reserves up to 128 MiB for a thread's allocations between two readings.
_MORE = 1 << 30


def as_the_kernel_has_it() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


def measured() -> ProcessMemory:
    found = process_memory()
    assert found is not None
    return found


def our_descriptors() -> list[int]:
    return [int(link.name) for link in Path("/proc/self/fd").iterdir() if link.resolve().name == "statm"]


def test_it_is_read_again_and_again_from_one_file() -> None:
    measured()
    opened = our_descriptors()
    with mmap.mmap(-1, _MORE):
        assert abs(measured().vms - as_the_kernel_has_it()) < _MORE // 2
    assert abs(measured().vms - as_the_kernel_has_it()) < _MORE // 2
    assert our_descriptors() == opened
    assert len(opened) == 1


def test_a_program_that_closes_what_it_does_not_know_is_measured_all_the_same_and_keeps_its_own_files(
    tmp_path: Path,
) -> None:
    measured()
    (number,) = our_descriptors()
    with (tmp_path / "own").open("w+b") as own:
        os.dup2(own.fileno(), number)  # closes it, and opens another file of this number
    os.write(number, b"1 2 3")

    assert abs(measured().vms - as_the_kernel_has_it()) < _MORE // 2
    assert os.pread(number, 5, 0) == b"1 2 3"

    os.close(number)


def test_a_kernel_that_says_it_in_another_form_is_asked_without_keeping_files_open(tmp_path: Path) -> None:
    path = tmp_path / "statm"
    path.write_text("1 2 3")
    statm = Statm(str(path))
    for _ in range(3):
        with pytest.raises(ValueError, match="3"):
            statm.read()

    assert [link for link in Path("/proc/self/fd").iterdir() if link.resolve() == path] == []


def _say_in_a_child(pipe: Connection) -> None:
    with mmap.mmap(-1, _MORE):
        pipe.send((measured().vms, as_the_kernel_has_it()))


def test_a_forked_child_measures_itself() -> None:
    measured()
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_say_in_a_child, args=(theirs,))
    child.start()
    said, wanted = ours.recv()
    child.join()

    assert abs(said - wanted) < _MORE // 2
