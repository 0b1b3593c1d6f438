from __future__ import annotations

import fcntl
import io
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml.quantities import size
from otel_ml.wire.rendezvous import Service, rendezvous_of
from otel_ml.wire.spool_format import SUFFIX
from otel_ml_service.storage.database import InUseError
from otel_ml_service.storage.journal import Journal
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.hooks import before
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import Run


class ConsentAfter(io.StringIO):
    """A person who says yes, after something has happened."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__("y\n")
        self._happens = happens

    def readline(self, size: int = -1, /) -> str:
        self._happens()
        return super().readline(size)


def test_gc_removes_only_what_was_asked_for_and_only_with_consent(
    otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = write_run(tmp_path, "02new", digits_records(steps=2))
    old = write_run(tmp_path, "01old", digits_records(steps=2), experiment="old")
    for path in (old.database, old.jsonl):
        os.utime(path, (1, 1))

    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    _, refused, _ = otel_ml("gc", "--keep", "1")
    still_there = old.path.exists()
    status, out, _ = otel_ml("gc", "--keep", "1", "--yes")

    assert "Nothing was removed" in refused
    assert re.search(rf"^{old.name} +old +01old", refused, re.MULTILINE)
    assert still_there
    assert status == 0
    assert "Removed 1 run" in out
    assert kept.path.exists()
    assert not old.path.parent.exists()


def test_gc_leaves_alone_what_is_not_delivered_what_others_made_and_what_a_link_leads_to(
    otel_ml: Run, tmp_path: Path
) -> None:
    done, left = (write_run(tmp_path, run_id, digits_records(steps=2)) for run_id in ("01done", "02left"))
    left.database.with_name("undelivered").touch()
    foreign = tmp_path / "digits" / "foreign"
    foreign.mkdir()
    (foreign / "metrics.jsonl").write_text('{"loss": 1}\n')
    elsewhere = write_run(tmp_path.with_name("elsewhere"), "03far", digits_records(steps=2))
    (tmp_path / "digits" / "link").symlink_to(elsewhere.path)
    (tmp_path / "linked").symlink_to(elsewhere.path.parent)

    _, out, _ = otel_ml("gc", "--keep", "0", "--yes")
    there = [path.exists() for path in (done.path, left.path, foreign, elsewhere.path)]
    otel_ml("gc", "--keep", "0", "--yes", "--undelivered")

    assert there == [False, True, True, True]
    assert "1 run left alone, not finished or not in all backends" in out
    assert [path.exists() for path in (left.path, foreign, elsewhere.path)] == [False, True, True]


def test_a_run_that_goes_on_while_somebody_thinks_about_it_stays(
    otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path, "01again", digits_records(steps=2))
    services: list[Outbox] = []

    monkeypatch.setattr(sys, "stdin", ConsentAfter(lambda: services.append(Outbox(run.database))))
    status, out, err = otel_ml("gc", "--keep", "0", "--json")
    services[0].close()

    assert status == 1
    assert json.loads(out)["result"] == "failed"
    assert "is not removed: it is being recorded again" in err
    assert run.database.exists()
    assert run.jsonl.exists()


def test_a_run_that_is_not_finished_anymore_once_somebody_has_agreed_stays(
    otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path, "01again", digits_records(steps=2))
    opened = run.database.with_name("open")  # a further launch of its job, whose service was killed
    monkeypatch.setattr(sys, "stdin", ConsentAfter(lambda: opened.write_text(run.id)))

    status, out, err = otel_ml("gc", "--keep", "0", "--json")
    is_there = run.jsonl.exists()
    removed, _, _ = otel_ml("gc", "--keep", "0", "--yes", "--undelivered")

    assert (status, json.loads(out)["result"]) == (1, "failed")
    assert "is not removed: it is not finished" in err
    assert is_there
    assert removed == 0
    assert not run.path.exists()


@pytest.mark.parametrize("life", ["a service is started", "a service is found", "a process of it lives"])
def test_a_run_that_a_job_goes_on_with_stays_though_no_service_has_its_file_open(
    otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run = write_run(tmp_path, "01again", digits_records(steps=2))
    rendezvous = rendezvous_of(run.id)
    handles: list[int | None] = []

    def go_on() -> None:
        if life == "a service is started":
            handles.append(rendezvous.acquire())
            return
        rendezvous.create()
        if life == "a service is found":
            handles.append(rendezvous.publish(Service("http://127.0.0.1:1", "token", os.getpid(), str(run.path))))
            return
        handles.append(os.open(rendezvous.spool / f"writer-1{SUFFIX}", os.O_RDWR | os.O_CREAT, 0o600))
        fcntl.flock(handles[-1], fcntl.LOCK_EX)

    monkeypatch.setattr(sys, "stdin", ConsentAfter(go_on))
    status, out, err = otel_ml("gc", "--keep", "0", "--undelivered", "--json")
    is_there = run.jsonl.exists()
    [handle] = handles
    assert handle is not None
    os.close(handle)

    assert (status, json.loads(out)["result"]) == (1, "failed")
    assert "is not removed: it is being recorded again" in err
    assert is_there


@pytest.mark.parametrize("file", ["run.db", "journal.db"])
def test_no_service_opens_a_run_while_it_is_removed(otel_ml: Run, tmp_path: Path, file: str) -> None:
    run = write_run(tmp_path, "01old", digits_records(steps=2))
    path = run.database.with_name(file)
    with closing(Journal[object](run.database.with_name("journal.db"), lambda _: None)):
        pass
    refused: list[InUseError] = []

    def open_again() -> None:
        try:
            (Outbox(path) if file == "run.db" else Journal[object](path, lambda _: None)).close()
        except InUseError as error:
            refused.append(error)

    with before("shutil.rmtree", lambda folder, *_: Path(folder) == run.path, open_again):
        status, _, _ = otel_ml("gc", "--keep", "0", "--yes")

    assert status == 0
    assert len(refused) == 1
    assert not run.path.exists()


def test_gc_leaves_no_meeting_place_behind(otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run = write_run(tmp_path, "01old", digits_records(steps=2))

    otel_ml("gc", "--keep", "0", "--yes")

    assert not run.path.exists()
    assert not rendezvous_of(run.id).folder.exists()


def test_gc_says_that_a_run_is_being_recorded(otel_ml: Run, live_run: RunFolder, tmp_path: Path) -> None:
    write_run(tmp_path, "01old", digits_records(steps=2))

    _, out, _ = otel_ml("gc")

    said = " ".join(out.split())
    assert said.startswith("Nothing to remove: 1 run, ")
    assert said.endswith(", and 1 run being recorded.")
    assert live_run.path.exists()


def test_a_run_that_is_recorded_counts_for_the_limit_and_stays(
    otel_ml: Run, live_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_run(tmp_path, "01old", digits_records(steps=2))
    monkeypatch.setenv("OTEL_ML_DIR_MAX", str(live_run.size() + old.size() - 1))

    status, out, _ = otel_ml("gc", "--yes")

    assert status == 0
    assert "Removed 1 run, " in out
    assert (old.path.exists(), live_run.path.exists()) == (False, True)


def test_gc_that_cannot_keep_the_limit_says_what_stays(
    otel_ml: Run, live_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR_MAX", "1 KiB")

    status, out, _ = otel_ml("gc", "--yes")

    said = " ".join(out.split())
    assert status == 0
    assert f"What stays takes {size(live_run.size())}, more than 1.02 kB (OTEL_ML_DIR_MAX)" in said


def test_gc_takes_no_other_limit_for_one_that_cannot_be_read(
    otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path, "01old", digits_records(steps=2))
    monkeypatch.setenv("OTEL_ML_DIR_MAX", "plenty")

    status, out, err = otel_ml("gc", "--yes")

    assert (status, out) == (1, "")
    assert "OTEL_ML_DIR_MAX: expected a size such as" in err
    assert run.path.exists()


def test_gc_understands_ages_and_says_what_an_age_is(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "02new", digits_records(steps=2))

    nothing, out, _ = otel_ml("gc", "--older-than", "30d", "--yes")
    wrong, _, err = otel_ml("gc", "--older-than", "soon")

    assert (nothing, wrong) == (0, 2)
    assert "Nothing to remove" in out
    assert "12h, 30d, 4w" in err


def test_gc_has_an_object_for_every_run_that_it_removed_or_left_alone(otel_ml: Run, tmp_path: Path) -> None:
    old, left = (write_run(tmp_path, run_id, digits_records(steps=2)) for run_id in ("01old", "02left"))
    left.database.with_name("undelivered").touch()
    written = {"bytes": old.size(), "modified": old.modified, "dir": str(old.path)}

    status, out, _ = otel_ml("gc", "--keep", "0", "--yes", "--json")

    found = {row["id"]: row for row in map(json.loads, out.splitlines())}
    assert status == 0
    assert found["01old"] == {
        "id": "01old", "name": "01old", "experiment": "digits", **written, "result": "removed", "problem": ""
    }  # fmt: skip
    assert found["02left"]["result"] == "undelivered"
    assert (old.path.exists(), left.path.exists()) == (False, True)


def test_gc_asks_a_person_beside_the_json_and_says_what_was_declined(
    otel_ml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path, "01old", digits_records(steps=2))
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))

    status, out, err = otel_ml("gc", "--keep", "0", "--json")

    [row] = map(json.loads, out.splitlines())
    assert (status, row["id"], row["result"]) == (0, "01old", "declined")
    assert "Remove 1 run" in err
    assert run.path.exists()


def test_gc_of_a_folder_that_is_not_there_is_wrong_usage(otel_ml: Run, tmp_path: Path) -> None:
    status, out, err = otel_ml("gc", "--dir", str(tmp_path / "typo"), "--older-than", "30d", "--yes")

    assert (status, out) == (2, "")
    assert f"there is no folder {str(tmp_path / 'typo')!r}" in err


def test_gc_that_has_nothing_to_remove_prints_no_object(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01new", digits_records(steps=2))

    status, out, err = otel_ml("gc", "--older-than", "30d", "--json")

    assert (status, out) == (0, "")
    assert "Nothing to remove" in err
