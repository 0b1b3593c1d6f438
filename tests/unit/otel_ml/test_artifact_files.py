"""Files of artifacts as they are read: size and digest are those of the whole file, whatever happens on the way."""

from __future__ import annotations

import hashlib
import tempfile
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
