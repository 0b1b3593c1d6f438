from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_ml_exporters.backends.wandb.transaction_log import LogTail, last_row, records, repair

BLOCK = 32768
HEADER = b":W&B\xe1\xbe\x00"


def written(contents: list[bytes]) -> bytes:
    """Return a log of `contents`, written as LevelDB's documentation says."""
    log = bytearray(HEADER)
    for content in contents:
        first, rest = True, content
        while first or rest:
            room = BLOCK - len(log) % BLOCK
            if room < 7:
                log += bytes(room)
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            log += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
    return bytes(log)


sizes = st.lists(st.sampled_from([0, 1, 7, 100, 32747, 32748, 32754, 32755, 32761, 70000]), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(sizes=sizes, data=st.data())
def test_a_log_cut_anywhere_is_read_and_repaired_up_to_its_last_whole_record(
    tmp_path: Path, sizes: list[int], data: st.DataObject
) -> None:
    contents = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    whole = written(contents)
    ends = [len(written(contents[:count])) for count in range(len(contents) + 1)]
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path / "run.wandb"
    path.write_bytes(whole[:cut])

    read = [content for _, content in records(path)]
    left = repair(path)

    assert read == contents[: len(read)]
    assert len(read) == sum(end <= cut for end in ends[1:])
    assert left == bool(read)
    assert [content for _, content in records(path)] == read
    assert not left or path.stat().st_size in range(ends[len(read)] - 6, ends[len(read)] + 1)


def test_a_damaged_record_ends_the_log(tmp_path: Path) -> None:
    path = tmp_path / "run.wandb"
    log = bytearray(written([b"one", b"two", b"three"]))
    log[len(written([b"one"])) + 8] ^= 1
    path.write_bytes(log)

    assert [content for _, content in records(path)] == [b"one"]
    assert repair(path)
    assert path.read_bytes() == written([b"one"])


@pytest.mark.parametrize("content", [b"", b":W&", b"something else entirely"])
def test_a_file_that_is_no_log_has_nothing_to_synchronise(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.wandb"
    path.write_bytes(content)

    assert not repair(path)
    assert path.read_bytes() == content


def row(number: int) -> bytes:
    from wandb.proto import wandb_internal_pb2

    record = wandb_internal_pb2.Record()
    record.history.step.num = number
    return record.SerializeToString()


def test_a_tail_follows_what_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "run.wandb"
    tail = LogTail(path)
    before = tail.advance()
    path.write_bytes(written([row(1), row(2)]))
    first = tail.advance()
    path.write_bytes(written([row(1), row(2), row(9)])[:-1])
    torn = tail.advance()
    path.write_bytes(written([row(1), row(2), row(9)]))

    assert (before, first, torn, tail.advance(), last_row(path)) == (0, 2, 2, 9, 9)
