"""The page of a run that its service opens while it is read, as it does to make the file small."""

from __future__ import annotations

import os
from contextlib import closing
from itertools import count
from pathlib import Path

from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.ui.followed_run import FollowedRun
from tests.hooks import before
from tests.recorded_run import digits_records, export, write_run


def test_a_run_that_was_opened_while_it_was_read_is_read_anew_when_it_is_closed(tmp_path: Path) -> None:
    recorded = digits_records(steps=20)
    run = write_run(tmp_path, "01abc", recorded, exporters=[])
    export(run, recorded[:3])  # the service did not write the others there
    modified = run.database.stat()

    for look in count(1):
        followed = FollowedRun(RunFolder(run.path))
        opened = opened_before(look, run, followed)
        if opened is None:
            break
        with closing(opened):
            pass
        os.utime(run.database, ns=(modified.st_atime_ns, modified.st_mtime_ns))  # nothing new was recorded

        with followed.held() as held:
            assert held.contents.history.last_seq == len(recorded), f"opened before look {look} at the file"

    assert look > 2


def opened_before(look: int, run: RunFolder, followed: FollowedRun) -> Outbox | None:
    """Read the run, which is opened before the file is looked at so often; None where it was looked at less."""
    looks = count(1)
    opened: list[Outbox] = []

    def is_meant(database: object) -> bool:
        return "run.db?" in str(database) and next(looks) == look

    with before("sqlite3.connect", is_meant, lambda: opened.append(Outbox(run.database))), followed.held():
        return opened[0] if opened else None
