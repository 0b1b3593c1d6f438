"""A service begins with a run of which a command reads what a killed one left."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from otel_ml_service.storage.database import open_database, opened_to_read
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, going_on
from tests.waiting import eventually

LOOKS = 3


def left_by_a_killed_service(base: Path, steps: int) -> RunFolder:
    """Return a run as a kill leaves it: what was committed last is in the log alone."""
    with going_on(base / "killed", "01abc", digits_records(steps=steps)) as run:
        left = RunFolder(base / "digits" / "01abc")
        shutil.copytree(run.path, left.path)
    return left


@contextmanager
def read_until_waited_for(path: Path) -> Iterator[None]:
    """Read a file on another thread, until this one is in the midst of opening it."""
    begun, given_up = threading.Event(), threading.Event()
    waiting = threading.get_ident()
    looks: list[bool] = []

    def is_waited_for() -> bool:
        frame = sys._current_frames().get(waiting)
        looks.append(frame is not None and frame.f_code is open_database.__code__)
        return given_up.is_set() or (len(looks) >= LOOKS and all(looks[-LOOKS:]))

    def read() -> None:
        with opened_to_read(path) as connection:
            connection.execute("SELECT COUNT(*) FROM records").fetchone()
            begun.set()
            eventually(is_waited_for)

    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    try:
        yield
    finally:
        given_up.set()
        reader.join()


def test_a_service_waits_for_a_command_that_reads_its_run_and_does_not_take_it_for_another_service(
    tmp_path: Path,
) -> None:
    recorded = digits_records(steps=50)
    run = left_by_a_killed_service(tmp_path, steps=50)

    with read_until_waited_for(run.database), closing(Outbox(run.database)) as outbox:
        assert outbox.last_seq == len(recorded)
