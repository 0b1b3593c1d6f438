from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from otel_ml_exporters.backends.tensorboard import event_file
from otel_ml_exporters.backends.tensorboard.event_file import EventFile, marked
from otel_ml_exporters.backends.tensorboard.summary import ScalarEncoder, event


def opened(path: Path) -> EventFile:
    file = EventFile(path, created=0.0)
    file.open()
    return file


def loss(seq: int) -> bytes:
    values, _ = ScalarEncoder("").encode({"loss": float(seq)})
    return marked(seq, event(0.0, seq, values))


def steps(path: Path) -> list[int]:
    return [found.step for found in LegacyEventFileLoader(str(path)).Load() if found.HasField("summary")]


def test_a_file_torn_at_any_byte_goes_on_after_its_last_whole_record(tmp_path: Path) -> None:
    whole = tmp_path / "whole.tfevents"
    file = opened(whole)
    file.append([event(0.0, 0, b""), loss(1)], seq=1)
    file.append([loss(2), loss(3)], seq=3)
    file.close()
    data = whole.read_bytes()

    torn = tmp_path / "torn.tfevents"
    seen = set()
    for size in range(len(data) + 1):
        torn.write_bytes(data[:size])
        again = opened(torn)
        last = again.last_seq
        again.append([loss(seq) for seq in range(last + 1, 5)], seq=4)
        again.close()
        seen.add(last)
        assert [at for at in steps(torn) if at] == [1, 2, 3, 4]

    assert seen == {0, 1, 2, 3}


def test_what_a_power_cut_left_as_zeros_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "cut.tfevents"
    file = opened(path)
    file.append([loss(1), loss(2)], seq=2)
    file.close()
    size = path.stat().st_size
    with path.open("r+b") as torn:
        torn.seek(size - 10)
        torn.write(bytes(4096))

    again = opened(path)
    again.close()

    assert again.last_seq == 1
    assert steps(path) == [1]


def test_of_a_large_event_that_a_power_cut_left_with_zeros_at_its_end_nothing_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "large.tfevents"
    file = opened(path)
    file.append([loss(1)], seq=1)
    file.append([marked(2, event(0.0, 2, bytes(3 * 2**20)))], seq=2)
    file.close()
    with path.open("r+b") as torn:
        torn.seek(path.stat().st_size - 2**20)
        torn.write(bytes(2**20))

    again = opened(path)
    again.close()

    assert again.last_seq == 1


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "full.tfevents"
    file = opened(path)
    file.append([loss(1)], seq=1)
    write = os.write

    def half_then_full(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", half_then_full)
        with pytest.raises(OSError, match="No space left"):
            file.append([loss(2)], seq=2)
    file.append([loss(2)], seq=2)
    file.close()

    assert steps(path) == [1, 2]
    assert opened(path).last_seq == 2


@given(st.binary(max_size=100))
def test_both_checksums_are_those_of_tensorboard(data: bytes) -> None:
    crc = event_file.table_crc32c(data)

    assert event_file.masked_crc(data) == masked_crc32c(data)
    assert ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF == masked_crc32c(data)
