"""Files of artifacts as they are read: size and digest are those of the whole file, whatever happens on the way."""

from __future__ import annotations

import hashlib
import os
import tempfile
import tracemalloc
from pathlib import Path

import pytest

from otel_ml._internal.events.artifacts import MAX_INLINE, open_artifact, read_artifact
from tests.full_disk import no_file_larger_than


@pytest.mark.parametrize("room", [0, 1, MAX_INLINE, 9 * 2**20])
def test_of_a_file_of_another_disk_that_could_not_be_copied_the_whole_is_hashed(tmp_path: Path, room: int) -> None:
    content = b"weights " * (20 * 2**17)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        path = Path(elsewhere) / "model.bin"
        assert path.parent.stat().st_dev != tmp_path.stat().st_dev
        path.write_bytes(content)
        [file] = open_artifact(path)
        path.unlink()
        with no_file_larger_than(room):
            read = read_artifact(file, run_folder=tmp_path / "run")

    assert read is not None
    inline, attributes = read
    assert inline == b""
    assert attributes["ml.artifact.size"] == len(content)
    assert attributes["ml.artifact.sha256"] == hashlib.sha256(content).hexdigest()
    assert "ml.artifact.kept" not in attributes
    assert [one for one in (tmp_path / "run").rglob("*") if one.is_file()] == []


@pytest.mark.parametrize(("before", "after"), [(1, 64 * 2**20), (MAX_INLINE, MAX_INLINE + 1), (1, MAX_INLINE), (0, 1)])
def test_of_a_file_that_has_grown_no_more_is_held_in_memory_than_may_travel(
    tmp_path: Path, before: int, after: int
) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(bytes(before))
    [file] = open_artifact(path)
    os.truncate(path, after)
    tracemalloc.start()
    try:
        read = read_artifact(file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # One piece that is read, what is kept of the file, and that once more where it moves while it grows.
    assert most < 4 * MAX_INLINE
    assert read is not None
    inline, attributes = read
    assert inline == (bytes(after) if after <= MAX_INLINE else b"")
    assert attributes["ml.artifact.size"] == after
    assert attributes["ml.artifact.sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
