"""What is said of a run that a service opens, or lets go, between two looks at it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_service.cli import main
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.stored_runs.deliveries import deliveries
from tests.hooks import before
from tests.recorded_run import digits_records, export, write_run


@pytest.mark.parametrize("look", [1, 2, 3])
def test_how_far_backends_are_is_known_or_not_and_never_that_there_are_none(tmp_path: Path, look: int) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=2), exporters=[])
    with closing(Outbox(run.database)) as outbox:
        outbox.set_mark("jsonl", Mark(1))
        outbox.commit(Commit())
    held = [Outbox(run.database)]
    looks = 0

    def is_meant(database: object) -> bool:
        nonlocal looks
        looks += str(run.database) in str(database)
        return looks == look

    with before("sqlite3.connect", is_meant, lambda: held.pop().close()):
        found = deliveries(run)
    for outbox in held:
        outbox.close()

    assert found is None or [one.name for one in found] == ["jsonl"]


@pytest.mark.parametrize(
    "kept",
    [
        "{}",
        "[]",
        '{"last_seq": 3}',
        '{"last_seq": "x", "exporters": {"jsonl": {"pending": 0, "state": "running", "lost": {}, "problem": null}}}',
        '{"last_seq": 3, "exporters": ["jsonl"]}',
        '{"last_seq": 3, "exporters": {"jsonl": {}}}',
        '{"last_seq": 3, "exporters": {"jsonl": {"pending": null, "state": 1, "lost": 2, "problem": 3}}}',
    ],
)
def test_what_is_kept_of_a_run_that_goes_on_and_cannot_be_read_is_as_if_it_was_not_there(
    tmp_path: Path, kept: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=2), exporters=["jsonl"])
    with closing(Outbox(run.database)):
        (run.database.parent / "delivery.json").write_text(kept)

        assert deliveries(run) is None
        assert main(["show", "01abc", "--dir", str(tmp_path)]) == 0

    assert "loss" in capsys.readouterr().out


def test_a_run_that_a_service_opens_while_it_is_replayed_is_waited_for_and_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = digits_records(steps=20)
    run = write_run(tmp_path, "01abc", recorded, exporters=[])
    export(run, recorded[:3])  # all that the exporter has written by now
    held: list[Outbox] = []
    lives = []

    def begin() -> None:
        held.append(Outbox(run.database))

    def end() -> None:
        lives.append(held.pop().close())

    is_read = before("sqlite3.connect", lambda database: "run.db?" in str(database), begin)
    is_asked_for = before("sqlite3.connect", lambda database: bool(held) and "run.db?mode=ro" in str(database), end)
    with is_read, is_asked_for:
        status = main(["replay", "01abc", "--dir", str(tmp_path), "--to", "jsonl", "--experiment", "again"])
    for outbox in held:
        outbox.close()

    assert lives
    assert status == 0
    assert f"jsonl: {len(recorded)} records" in capsys.readouterr().out
