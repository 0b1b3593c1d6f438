"""The folder of all runs is deleted while a service writes: nothing is lost, and it is said."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import otel_ml
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder, find
from tests.integration.conftest import Bench
from tests.integration.steps import train
from tests.otlp import FakeWriter
from tests.waiting import eventually


@pytest.mark.parametrize("is_moved", [False, True], ids=["deleted", "moved"])
def test_a_run_whose_folder_is_gone_is_whole_in_the_end(bench: Bench, is_moved: bool) -> None:
    service = bench.service(exporters={"jsonl": {}})
    sender, writer = bench.sender(service), FakeWriter()
    train(sender, [writer], range(10))
    eventually(lambda: (run := sender.run()) and run["last_seq"] and not run["pending"])
    if is_moved:
        bench.folder.rename(bench.folder.with_name("elsewhere"))
    else:
        remove(bench.folder)

    train(sender, [writer], range(10, 20))
    sender.send("logs", writer.goodbye())
    eventually(lambda: (run := sender.run()) and run["status"] == "finished" and not run["pending"])
    account = eventually(lambda: (run := sender.run()) and len(run["notices"]) > 1 and run)
    service.stop(10)

    folder = RunFolder(Path(account["dir"]))
    assert otel_ml.read(folder.path)["loss"][0] == list(range(20))
    assert [record.seq for record in records(folder)] == list(range(1, account["last_seq"] + 1))
    assert (account["lost"], account["recorded"], account["delivered"]) == ({}, 20, 20)
    assert [notice for notice in account["notices"] if "run.db in it, was deleted or moved" in notice]
    assert [notice for notice in account["notices"] if "'jsonl': What was written to" in notice]


def test_a_run_that_nobody_writes_to_meanwhile_is_made_anew_before_anything_else_comes(bench: Bench) -> None:
    service = bench.service(exporters={"jsonl": {}})
    sender = bench.sender(service)
    train(sender, [FakeWriter()], range(3))
    account = eventually(lambda: (run := sender.run()) and run["last_seq"] and not run["pending"] and run)
    folder = RunFolder(Path(account["dir"]))

    remove(bench.folder)

    eventually(folder.database.exists)
    eventually(folder.jsonl.exists)
    assert (folder.database.with_name("open")).read_text() == "run-1"


def test_a_folder_that_is_made_anew_is_still_found_by_the_name_of_the_run_and_has_its_notes(bench: Bench) -> None:
    sender = bench.sender(bench.service(exporters={"jsonl": {}}))
    writer = FakeWriter(extra={"ml.run.name": "baseline", "ml.notes": "of Monday"})
    train(sender, [writer], range(3))
    account = eventually(lambda: (run := sender.run()) and run["last_seq"] and not run["pending"] and run)
    folder = RunFolder(Path(account["dir"]))
    assert (folder.name, folder.notes) == ("baseline", "of Monday")

    remove(bench.folder)
    eventually(lambda: folder.is_run() and folder.notes == "of Monday")

    assert find("baseline", bench.folder).path == folder.path


def test_the_log_of_a_run_goes_on_in_a_new_file(bench: Bench) -> None:
    service = bench.service(exporters={"jsonl": {}})
    sender = bench.sender(service)
    train(sender, [FakeWriter()], range(3))
    account = eventually(lambda: (run := sender.run()) and run["last_seq"] and not run["pending"] and run)
    remove(bench.folder)
    eventually((Path(account["dir"]) / "metrics.jsonl").exists)

    logging.getLogger("otel_ml_service").warning("not of this run")

    assert "was deleted or moved" in eventually(lambda: log_of(account))
    assert "not of this run" not in log_of(account)


def remove(folder: Path) -> None:
    """Remove a folder at once, and then what its service still makes and removes in it."""
    removed = folder.rename(folder.with_name("removed"))

    def is_gone() -> bool:
        shutil.rmtree(removed, ignore_errors=True)
        return not removed.exists()

    eventually(is_gone)


def log_of(account: dict[str, str]) -> str:
    path = Path(account["dir"]) / "service.log"
    return path.read_text() if path.exists() else ""
