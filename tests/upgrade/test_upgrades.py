"""A run of which the service was killed in the middle goes on with the code of another version."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_ml_service.aggregation.older_state import in_this_form
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.versions import JOURNAL, RUN
from tests.upgrade import job
from tests.upgrade.keep import KEPT, half_done, left_at, lines, post, running, unpacked
from tests.upgrade.service import started
from tests.waiting import eventually

NEWEST = f"run-{RUN}"
EXPORTERS = ("lines", "held")

Content = dict[tuple[object, ...], object]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """What is stored of the same job where nothing happened to its service."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    with running(folder):
        half_done(folder)
        finish(folder)
    found = content(folder, "lines")
    assert len(found) > 300
    return found


def finish(folder: Path) -> None:
    assert set(post(folder, job.after())) == {200}
    for exporter in EXPORTERS:
        eventually(lambda exporter=exporter: is_over(folder, exporter), timeout=60.0)  # type: ignore[misc]


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """Run the service of `folder` in this process: `make mutants` sees what it runs of former versions' forms."""
    service = started(folder, left_at(folder))
    try:
        yield
    finally:
        service.stop(1.0)


def is_over(folder: Path, exporter: str) -> bool:
    return any(line["kind"] == "RunStatus" for line in lines(folder, exporter))


def content(folder: Path, exporter: str) -> Content:
    """Return what counts of what an exporter wrote: the last word on each value, and how often the others came."""
    found: Content = {}
    for line in lines(folder, exporter):
        for key, value in parts(line):
            if not any("otel_ml/" in str(part) for part in key):
                found[key] = value if line["kind"] == "StepRecord" else (found.get(key, (0,))[0] + 1, value)  # type: ignore[index]
    return found


def parts(line: dict[str, object]) -> Iterator[tuple[tuple[object, ...], object]]:
    where = tuple(line.get(name) for name in ("kind", "role", "axis", "attempt", "step"))
    for name in ("values", "params"):
        for key, value in line.get(name, {}).items():  # type: ignore[attr-defined]
            yield (*where, key), value
    for name in ("spans", "status", "text"):
        if name in line:
            yield (*where, name), line[name]


def with_former_quantiles(uninterrupted: Content, before: Content) -> Content:
    """Return what is expected where a former version closed steps: it did not narrow quantiles to known extremes."""
    return {
        key: before.get(key, value) if str(key[-1]).startswith("latency") else value
        for key, value in uninterrupted.items()
    }


@pytest.mark.parametrize("name", sorted(path.name.partition(".")[0] for path in KEPT.iterdir()))
def test_a_run_that_any_former_version_left_in_the_middle_goes_on_as_if_nothing_had_happened(
    name: str, tmp_path: Path, uninterrupted: Content, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unpacked(name, tmp_path)
    before = {exporter: lines(folder, exporter) for exporter in EXPORTERS}
    expected = with_former_quantiles(uninterrupted, content(folder, "lines"))

    with served(folder):
        finish(folder)

    assert "damaged" not in caplog.text
    assert "cannot" not in caplog.text
    for exporter in EXPORTERS:
        assert lines(folder, exporter)[: len(before[exporter])] == before[exporter]
        found = content(folder, exporter)
        assert {key: found.get(key) for key in expected} == expected
    assert len(before["held"]) < len(before["lines"])
    assert list(folder.glob("runs/*/*/late.otlp"))


@pytest.mark.parametrize("name", sorted(path.name.partition(".")[0] for path in KEPT.iterdir()))
def test_killed_again_while_it_is_put_into_the_new_form_it_still_goes_on(
    name: str, tmp_path: Path, uninterrupted: Content
) -> None:
    folder = unpacked(name, tmp_path)
    requests = job.after()
    expected = with_former_quantiles(uninterrupted, content(folder, "lines"))

    for begin in range(0, len(requests), 9):
        with running(folder):
            assert set(post(folder, requests[begin : begin + 9])) == {200}
    with running(folder):
        for exporter in EXPORTERS:
            eventually(lambda exporter=exporter: is_over(folder, exporter), timeout=60.0)  # type: ignore[misc]

    found = content(folder, "held")
    assert {key: found.get(key) for key in expected} == expected


def remembered(name: str, folder: Path) -> dict[str, Any]:
    """Return what is kept under `name` of a service's memory, in the form of today."""
    found = unpacked(name, folder / name)
    with closing(Outbox(found / "runs" / "job" / "upgraded" / "state" / "run.db")) as outbox:
        state = in_this_form(outbox.state())
    return {key: json.loads(data) for key, data in state.items() if key in {"run", "reductions"}} | {
        "shapes": [int(key.partition("/")[2]) for key in state if key.startswith("shape/")]
    }


@pytest.mark.parametrize("name", sorted(path.name.partition(".")[0] for path in KEPT.iterdir()))
def test_what_a_former_version_knew_of_series_is_known_and_none_that_comes_takes_the_place_of_one(
    name: str, tmp_path: Path
) -> None:
    found, newest = remembered(name, tmp_path), remembered(NEWEST, tmp_path / "newest")

    assert max(found["shapes"]) < found["run"]["next_shape"]
    assert found["reductions"][0] == newest["reductions"][0]
    first, following, size = found["run"]["closed"]
    assert (following - first, size) == (0, 0), "no closed step waits to be forgotten"


def test_the_newest_version_is_among_those_that_are_kept() -> None:
    assert (KEPT / f"{NEWEST}.tar.xz").exists()


def made_newer(path: Path, version: int) -> None:
    """Make of a file one that a newer otel_ml wrote, as far as one of today can tell."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("CREATE TABLE IF NOT EXISTS writer (version TEXT NOT NULL)")
        connection.execute("UPDATE writer SET version = '9.1.0'")
        connection.execute(f"PRAGMA user_version = {version:d}")


def files(folder: Path) -> dict[str, bytes]:
    """Return everything that is stored of the run."""
    return {str(path): path.read_bytes() for path in folder.glob("runs/job/upgraded/**/*") if path.is_file()}


def test_a_run_of_a_newer_version_is_left_as_it_is_by_name_and_its_senders_keep_what_they_have(
    tmp_path: Path, uninterrupted: Content
) -> None:
    folder = unpacked(NEWEST, tmp_path)
    database = folder / "runs" / "job" / "upgraded" / "state" / "run.db"
    made_newer(database, RUN + 1)
    before = files(folder)

    with running(folder) as process:
        assert set(post(folder, job.after())) == {503}
        assert process.poll() is None

    log = (folder / "log").read_text()
    assert f"was written by otel_ml 9.1.0, in version {RUN + 1} of its form" in log
    assert f"reads up to version {RUN}" in log
    assert "damaged" not in log
    assert files(folder) == before

    made_newer(database, RUN)
    with running(folder):
        finish(folder)

    found = content(folder, "lines")
    assert {key: found.get(key) for key in uninterrupted} == uninterrupted


def test_what_was_acknowledged_of_a_run_before_its_version_was_seen_is_taken_up_by_a_service_that_reads_it(
    tmp_path: Path, uninterrupted: Content
) -> None:
    folder = unpacked(NEWEST, tmp_path)
    state = folder / "runs" / "job" / "upgraded" / "state"
    (state / "open").unlink()  # nobody looks at the run before something of it comes
    shutil.rmtree(folder / "runs" / ".service")  # of which everything is decided
    made_newer(state / "run.db", RUN + 1)

    with running(folder):
        first, *rest = job.after()
        assert post(folder, [first]) == [200]
        eventually(lambda: set(post(folder, rest)) == {503}, timeout=60.0)
    made_newer(state / "run.db", RUN)
    with running(folder):
        assert set(post(folder, rest)) == {200}
        for exporter in EXPORTERS:
            eventually(lambda exporter=exporter: is_over(folder, exporter), timeout=60.0)  # type: ignore[misc]

    found = content(folder, "lines")
    assert {key: found.get(key) for key in uninterrupted} == uninterrupted


def test_a_journal_of_a_newer_version_is_left_as_it_is_by_name(tmp_path: Path, uninterrupted: Content) -> None:
    folder = unpacked(NEWEST, tmp_path)
    journal = folder / "runs" / ".service" / "journal.db"
    made_newer(journal, JOURNAL + 1)
    before = journal.read_bytes()

    with running(folder) as process:
        assert process.wait(60) == 1

    assert f"was written by otel_ml 9.1.0, in version {JOURNAL + 1} of its form" in (folder / "log").read_text()
    assert journal.read_bytes() == before
    made_newer(journal, JOURNAL)
    with running(folder):
        finish(folder)
    assert {key: content(folder, "lines").get(key) for key in uninterrupted} == uninterrupted
