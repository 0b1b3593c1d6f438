"""How far each backend is with a run that is over."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_service.storage.outbox import Commit, Mark, Outbox
from otel_ml_service.stored_runs.deliveries import Delivery, deliveries, delivering, lacking, not_taken
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run


def run_with(base: Path, marks: Mapping[str, Mark]) -> RunFolder:
    run = write_run(base, "01abc", digits_records(steps=2), exporters=[])
    with closing(Outbox(run.database)) as outbox:
        for name, mark in marks.items():
            outbox.set_mark(name, mark)
        outbox.commit(Commit())
    return run


@pytest.mark.parametrize("name", ["open", "undelivered"])
def test_of_a_run_that_a_service_was_not_done_with_each_backend_is_as_far_as_its_mark(
    tmp_path: Path, name: str
) -> None:
    run = run_with(tmp_path, {"jsonl": Mark(2, lost={"refused": 3}), "tensorboard": Mark(5)})
    run.database.with_name(name).write_text("01abc")

    assert deliveries(run) == (
        Delivery("jsonl", 2, 5, {"refused": 3}), Delivery("tensorboard", 5, 5),
    )  # fmt: skip


def test_of_a_run_that_it_was_done_with_every_backend_has_all(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"jsonl": Mark(2, lost={"refused": 3})})

    assert deliveries(run) == (Delivery("jsonl", 5, 5, {"refused": 3}),)


def test_of_a_run_without_a_database_nothing_is_known(tmp_path: Path) -> None:
    assert deliveries(RunFolder(tmp_path / "digits" / "none")) == ()


def test_who_is_behind_is_at_work_or_lacks_something() -> None:
    found = [
        Delivery("whole", 9, 9), Delivery("ahead", 10, 9), Delivery("at work", 8, 9, goes_on=True),
        Delivery("left", 8, 9, {"refused": 3, "full": 4}), Delivery("done", 9, 9, {"refused": 1}, goes_on=True),
    ]  # fmt: skip

    assert [one.behind for one in found] == [0, 0, 1, 1, 0]
    assert delivering(found) == ("at work",)
    assert lacking(found) == ("left",)
    assert not_taken(found) == {"left": 7, "done": 1}
