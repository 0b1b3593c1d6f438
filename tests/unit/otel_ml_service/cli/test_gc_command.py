from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path

import pytest

from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import Run


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

    class Consent(io.StringIO):
        def readline(self, size: int = -1, /) -> str:
            services.append(Outbox(run.database))  # a further launch of its job
            return super().readline(size)

    monkeypatch.setattr(sys, "stdin", Consent("y\n"))
    status, out, err = otel_ml("gc", "--keep", "0", "--json")
    services[0].close()

    assert status == 1
    assert json.loads(out)["result"] == "failed"
    assert "is not removed: it is being recorded again" in err
    assert run.database.exists()
    assert run.jsonl.exists()


def test_gc_says_that_a_run_is_being_recorded(otel_ml: Run, live_run: RunFolder, tmp_path: Path) -> None:
    write_run(tmp_path, "01old", digits_records(steps=2))

    _, out, _ = otel_ml("gc")

    said = " ".join(out.split())
    assert said.startswith("Nothing to remove: 1 run, ")
    assert said.endswith(", and 1 run being recorded.")
    assert live_run.path.exists()


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


def test_gc_that_has_nothing_to_remove_prints_no_object(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01new", digits_records(steps=2))

    status, out, err = otel_ml("gc", "--older-than", "30d", "--json")

    assert (status, out) == (0, "")
    assert "Nothing to remove" in err
