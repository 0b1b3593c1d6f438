from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from otel_ml_exporters import Summary
from otel_ml_service.live_runs.shrinking import Shrinking
from otel_ml_service.storage.outbox import Commit, Outbox
from tests.waiting import eventually

RECORDS = [Summary(seq, float(seq), {f"metric_{n}": seq / (n + 3) for n in range(40)}) for seq in range(1, 3_001)]


def run_db(folder: Path) -> Path:
    outbox = Outbox(folder / "run.db")
    outbox.commit(Commit(RECORDS))
    outbox.close()
    return outbox.path


def packed(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM records WHERE typeof(record) = 'blob'").fetchone()[0])


def test_runs_that_end_together_are_all_made_small_before_the_service_is_gone(tmp_path: Path) -> None:
    paths = [run_db(tmp_path / name) for name in "abc"]
    shrinking = Shrinking()

    for path in paths:
        shrinking.begin(path)
    shrinking.finish(60.0)

    assert [packed(path) for path in paths] == [len(RECORDS)] * 3


def test_a_run_that_is_opened_again_while_it_is_made_small_is_not_locked_and_has_everything(tmp_path: Path) -> None:
    path, waiting = run_db(tmp_path / "a"), run_db(tmp_path / "b")
    shrinking = Shrinking()
    shrinking.begin(path)
    shrinking.begin(waiting)

    shrinking.stop(waiting)
    shrinking.stop(path)

    for each in (path, waiting):
        with closing(Outbox(each)) as outbox:
            assert outbox.read(0, 5_000) == RECORDS


def test_a_service_that_has_no_time_left_leaves_its_runs_as_they_are(tmp_path: Path) -> None:
    paths = [run_db(tmp_path / name) for name in "abcdef"]
    shrinking = Shrinking()
    with shrinking._turn:  # another run is being made small
        for path in paths:
            shrinking.begin(path)
        leaving = threading.Thread(target=shrinking.finish, args=(0.0,))
        leaving.start()
        eventually(lambda: all(work._stopped.is_set() for work in [*shrinking._work.values()]))
    leaving.join()

    assert [packed(path) for path in paths] == [0] * len(paths)
    for path in paths:
        with closing(Outbox(path)) as outbox:
            assert outbox.read(0, 5_000) == RECORDS


def test_a_run_that_waits_for_its_turn_is_opened_without_waiting_for_the_one_before(tmp_path: Path) -> None:
    path, shrinking = run_db(tmp_path / "a"), Shrinking()
    with shrinking._turn:  # another run, of gigabytes, is being made small
        shrinking.begin(path)

        shrinking.stop(path)

    assert packed(path) == 0
