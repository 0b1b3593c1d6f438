"""Files that otel_ml itself has written to record them are there until they are read, and not any longer."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer, eventually

BUSY = """
    import io, os
    from pathlib import Path
    import numpy as np
    import otel_ml
    from otel_ml._internal.events.artifacts import MAX_OPEN, open_artifact
    from otel_ml.compat import mlflow, wandb
    from otel_ml.compat.tensorboard import SummaryWriter

    many = Path("many")
    many.mkdir()
    for number in range(MAX_OPEN):
        (many / str(number)).touch()
    with open("large", "wb") as file:
        file.truncate({size})
    otel_ml.init("exp", id="one", exporters="jsonl")
    waiting = open_artifact(many)
    otel_ml.log_artifact("large")  # which is hashed meanwhile
"""
"""A process in which as many files wait to be read as may be open."""

A_WHILE, HOURS = 2**27, 2**40
"""Bytes that take so long to hash."""

TIME_ENOUGH = {"OTEL_ML_EXIT_WAIT": "80"}
"""To hash them, on a busy machine, too."""

WRITES = {
    "add_mesh": ("SummaryWriter('runs').add_mesh('it', np.zeros((130, 3, 3)))", 130),
    "Object3D": ("(wandb.init(), wandb.log({'it': wandb.Object3D(np.zeros((2, 3)))}))", 1),
    "log_stream": ("mlflow.log_stream(io.BytesIO(b'content'), 'it')", 1),
    "new_file": (
        """
    artifact = wandb.Artifact("it", "data")
    with artifact.new_file("one.txt") as file:
        file.write("content")
    with wandb.init() as run:
        run.log_artifact(artifact)
    """,
        1,
    ),
    "add_file": (
        """
    Path("one.txt").write_text("content")
    artifact = wandb.Artifact("it", "data")
    artifact.add_file("one.txt")
    Path("one.txt").write_text("other")
    with wandb.init() as run:
        run.log_artifact(artifact)
    """,
        1,
    ),
}


def temporary(folder: Path) -> dict[str, str]:
    """Return the variables of a process whose temporary files are in a folder of the test."""
    (folder / "temporary").mkdir()
    return {"TMPDIR": str(folder / "temporary")}


def left(folder: Path) -> list[Path]:
    return [*folder.glob("temporary/otel-ml-*")]


def kept(server: OtlpServer) -> list[bytes]:
    """Return the files that were written by us and are recorded, by their content."""
    found = [event for event in server.events("ml.artifact") if event.attributes["ml.artifact.path_in"] != "large"]
    return [event.body for event in found]


@pytest.mark.parametrize("call", WRITES)
def test_a_file_of_ours_is_recorded_though_as_many_wait_as_may_be_open(
    server: OtlpServer, tmp_path: Path, call: str
) -> None:
    write, files = WRITES[call]
    # The program ends at once, with everything still to be read.
    _, errors = run(
        f"{BUSY.format(size=A_WHILE)}    {write}",
        environment(tmp_path, {**variables(server, **TIME_ENOUGH), **temporary(tmp_path)}),
        tmp_path,
    )

    assert len(kept(server)) == files
    assert all(kept(server))
    assert b"other" not in kept(server)
    assert "missing-artifact" not in errors
    assert left(tmp_path) == []


def test_files_of_ours_that_nobody_had_time_to_read_are_counted_and_removed(server: OtlpServer, tmp_path: Path) -> None:
    environ = {**variables(server), **temporary(tmp_path), "OTEL_ML_EXIT_WAIT": "2"}

    _, errors = run(f"{BUSY.format(size=HOURS)}    {WRITES['add_mesh'][0]}", environment(tmp_path, environ), tmp_path)

    [goodbye] = server.events("ml.writer.end")
    assert goodbye.attributes["otel_ml.dropped"]["missing_artifact"] == 130
    assert "130 files of " in errors
    assert kept(server) == []
    assert left(tmp_path) == []


def test_a_fork_reads_its_own_files_and_removes_none_of_its_parents(server: OtlpServer, tmp_path: Path) -> None:
    program = BUSY.format(size=A_WHILE) + """
    import multiprocessing
    mlflow.log_stream(io.BytesIO(b"of the parent"), "it")
    def work():
        mlflow.log_stream(io.BytesIO(b"of the child"), "it")
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    """  # fmt: skip

    run(program, environment(tmp_path, {**variables(server, **TIME_ENOUGH), **temporary(tmp_path)}), tmp_path)

    assert sorted(kept(server)) == [b"of the child", b"of the parent"]
    assert left(tmp_path) == []


def test_a_large_file_of_ours_on_another_disk_is_in_the_run(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        assert Path(elsewhere).stat().st_dev != tmp_path.stat().st_dev
        program = """
            import io
            import otel_ml
            from otel_ml.compat import mlflow

            with otel_ml.init("exp", id="one", exporters="jsonl"):
                mlflow.log_stream(io.BytesIO(b"first" * 2**20), "it/model.bin")
        """

        run(program, environment(tmp_path, {"TMPDIR": elsewhere}), tmp_path)

        assert [*Path(elsewhere).glob("otel-ml-*")] == []
        eventually(lambda: not list(tmp_path.glob("run/*/*")), within=60)  # the service has left
    [model] = [path for path in (tmp_path / "runs").rglob("model.bin") if path.is_file()]
    assert model.read_bytes() == b"first" * 2**20
