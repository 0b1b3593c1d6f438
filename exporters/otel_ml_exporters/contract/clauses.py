"""The clauses of the contract, each a test."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from otel_ml_exporters.contract.case import CANNOT_BE_FORKED, ExporterCase, Point
from otel_ml_exporters.contract.stream import AT, Stream, every_kind, points, row, rows, run_in
from otel_ml_exporters.errors import ExporterClosedError
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import Record, RunStatus
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.retries import RetryPolicy

__all__ = ["ExporterContract"]

_CLOSE_S = 30.0
_KILLS = 3
_ENDLESS = 1_000_000


class ExporterContract:
    """Subclass it, and give it the fixture `case`: pytest then asks each clause.

    An exporter that has a `position()` is held to store each value exactly once, another one at least once.
    """

    def test_what_was_exported_is_read_back_in_order(self, case: ExporterCase, tmp_path: Path) -> None:
        """Every value is there as it was given, and the steps of a name are in order."""
        records = rows(1, 100)

        found = _exported(case, tmp_path, [records[:1], records[1:60], records[60:]])

        assert _by_name(found) == _by_name(points(records, case.stored))

    def test_a_value_that_is_not_finite_takes_no_other_with_it(self, case: ExporterCase, tmp_path: Path) -> None:
        """NaN and ±Inf are data. What a backend makes of them is its own; the others are all there."""
        # In each row a value of another metric, which is looked for: the backend may leave the first one out.
        records = [row(seq, seq, {"loss": value, "other": 1.0}) for seq, value in enumerate(_NOT_FINITE, start=1)]

        found = _exported(case, tmp_path, [records])

        assert [step for name, _, step, _ in found if name == "other"] == [1, 2, 3]

    def test_a_kind_of_record_without_a_place_is_ignored(self, case: ExporterCase, tmp_path: Path) -> None:
        """An exporter takes every kind of record; the rows among them are all there."""
        kinds = every_kind(2)
        last = kinds[-1].seq + 1

        found = _exported(case, tmp_path, [rows(1, 1), kinds, rows(last, last)])

        steps = [step for name, axis, step, _ in found if (name, axis) == ("loss", "step")]
        assert set(steps) == {1, last}

    def test_records_are_not_modified(self, case: ExporterCase, tmp_path: Path) -> None:
        """They are handed to other exporters, too."""
        records = [*rows(1, 5), *every_kind(6)]
        before = copy.deepcopy(records)

        _exported(case, tmp_path, [records])

        assert repr(records) == repr(before)

    def test_the_next_life_goes_on_where_the_last_one_ended(self, case: ExporterCase, tmp_path: Path) -> None:
        """`start` on the run of a predecessor resumes it; `position()` is the last `seq` that is stored, or None."""
        _exported(case, tmp_path, [rows(1, 20)])
        again = case.make()
        again.start(run_in(tmp_path))
        position = again.position()
        again.export(rows(21, 30))
        again.force_flush(_CLOSE_S)
        again.shutdown(_CLOSE_S, RunStatus(31, AT + 31, "finished"))

        assert position in {None, 20}
        assert _by_name(case.read(run_in(tmp_path))) == _by_name(points(rows(1, 30), case.stored))

    def test_a_writer_that_is_killed_again_and_again_loses_nothing(self, case: ExporterCase, tmp_path: Path) -> None:
        """What `export`, or where it has no position `force_flush`, has returned for survives SIGKILL."""
        draws = random.Random(7)
        last = 0
        for _ in range(_KILLS):
            # Each life goes on behind the one before, and is killed at another place.
            last = _killed_after(case, tmp_path, last + draws.randint(1, 400))
        with _life(case, tmp_path, last + 300) as finishing:
            finishing.communicate()

        found = Counter(map(repr, case.read(run_in(tmp_path))))
        wanted = Counter(map(repr, points(rows(1, last + 300), case.stored)))
        assert finishing.returncode == 0
        assert not wanted - found, "values that are lost"
        assert found == wanted or _position(case, tmp_path) is None, "values that are there twice"

    def test_a_kill_in_the_middle_of_an_export_stores_nothing_twice(self, case: ExporterCase, tmp_path: Path) -> None:
        """Where there is a `position()`, values and position are stored as one: by a transaction, say."""
        done = subprocess.run(
            _command(case, "interrupted", tmp_path), stdout=subprocess.PIPE, text=True, env=_environ(), check=False
        )
        if done.returncode == CANNOT_BE_FORKED:
            pytest.skip("its library cannot be forked once it is imported: kill it in the middle of export() yourself")
        assert done.returncode == 0, "an export() that was not killed failed"
        if said := done.stdout:
            found, wanted = (
                Counter(map(repr, values))
                for values in (case.read(run_in(tmp_path)), points(rows(1, int(said)), case.stored))
            )
            assert not wanted - found, "values that are lost"
            assert not found - wanted, "values that are there twice"

    def test_a_new_attempt_that_repeats_steps_has_its_values(self, case: ExporterCase, tmp_path: Path) -> None:
        """A restarted job steps back: its values must be there, beside the older ones or instead of them."""
        first = [row(seq, seq, {"loss": float(seq)}) for seq in range(1, 9)]
        # Steps 5 to 8 once more, with values that no earlier row has.
        again = [row(seq, seq - 4, {"loss": -float(seq)}, attempt=1) for seq in range(9, 13)]

        found = _exported(case, tmp_path, [first, again])

        assert not set(points(again, case.stored)) - set(found)

    def test_a_correction_of_an_earlier_step_is_stored(self, case: ExporterCase, tmp_path: Path) -> None:
        """A correction has an earlier step, and erases no other."""
        records = [*rows(1, 5), row(6, 3, {"loss": 7.5}, amendment=True), *rows(7, 7)]

        found = _exported(case, tmp_path, [records])

        assert ("loss", "step", 3, case.stored(7.5)) in found
        assert {step for name, _, step, _ in found if name == "loss"} == {1, 2, 3, 4, 5, 7}

    def test_every_thins_steps(self, case: ExporterCase, tmp_path: Path) -> None:
        """The pipeline leaves out steps that are not multiples of `every`; nothing is averaged."""
        exporter = case.make()
        exporter.every = 10
        _delivered(exporter, tmp_path, 35)

        kept = [record for record in rows(1, 35) if record.seq % 10 == 0]
        assert _by_name(case.read(run_in(tmp_path))) == _by_name(points(kept, case.stored))

    def test_shutdown_is_safe_before_start_and_twice(self, case: ExporterCase, tmp_path: Path) -> None:
        """A service that stops closes what it has, whatever became of it."""
        case.make().shutdown(_CLOSE_S, None)
        exporter = case.make()
        exporter.start(run_in(tmp_path))
        exporter.shutdown(_CLOSE_S, None)

        exporter.shutdown(_CLOSE_S, RunStatus(1, AT, "finished"))

    def test_an_export_after_shutdown_is_refused(self, case: ExporterCase, tmp_path: Path) -> None:
        """It raises `ExporterClosedError`, so that the records go to a new exporter."""
        exporter = case.make()
        exporter.start(run_in(tmp_path))
        exporter.shutdown(_CLOSE_S, None)

        with pytest.raises(ExporterClosedError):
            exporter.export(rows(1, 1))


_NOT_FINITE = (math.nan, math.inf, -math.inf)


def _exported(case: ExporterCase, folder: Path, batches: Sequence[Sequence[Record]]) -> list[Point]:
    """Export `batches` in one life and return what is then stored."""
    exporter = case.make()
    exporter.start(run_in(folder))
    for batch in batches:
        exporter.export(batch)
        exporter.force_flush(_CLOSE_S)
    exporter.shutdown(_CLOSE_S, None)
    return list(case.read(run_in(folder)))


def _delivered(exporter: Exporter, folder: Path, last: int) -> None:
    """Deliver the first rows as a service does."""
    pipeline = Pipeline(
        "contract",
        lambda: exporter,
        run_in(folder),
        Stream(last),
        mark=lambda *_: None,
        say=lambda *_: None,
        retry=RetryPolicy(0.01, 0.1),
    )
    pipeline.start()
    deadline = time.monotonic() + _CLOSE_S
    while pipeline.behind and time.monotonic() < deadline:
        time.sleep(0.01)
    # Behind all rows: a pipeline that is told to stop may leave some.
    pipeline.ask_to_stop(_CLOSE_S)
    assert pipeline.join()
    assert not pipeline.behind


def _position(case: ExporterCase, folder: Path) -> int | None:
    exporter = case.make()
    exporter.start(run_in(folder))
    position = exporter.position()
    exporter.shutdown(_CLOSE_S, None)
    return position


def _life(case: ExporterCase, folder: Path, last: int) -> subprocess.Popen[str]:
    """Return a process that writes."""
    command = [*_command(case, "writer", folder), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environ())


def _command(case: ExporterCase, program: str, folder: Path) -> list[str]:
    module = f"otel_ml_exporters.contract.{program}"
    return [sys.executable, "-m", module, case.exporter, json.dumps(dict(case.options)), str(folder)]


def _environ() -> dict[str, str]:
    """Return the environment of a process that can import what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _killed_after(case: ExporterCase, folder: Path, seq: int) -> int:
    """Kill a writer once it has stored `seq`, while it goes on; return the last one it said it had stored."""
    said = 0
    with _life(case, folder, _ENDLESS) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said = int(line)
            if said >= seq:
                break
        process.kill()
        rest = process.stdout.read().splitlines()
    assert said >= seq, "the writer ended by itself"
    # A line that the kill has cut is a smaller number, or none: `max` passes over it.
    whole = [line for line in rest if line.isdecimal()]
    return max(said, int(whole[-1])) if whole else said


def _by_name(found: Iterable[Point]) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Return the points of each series; the order of different series is the backend's business."""
    series: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for name, axis, step, value in found:
        series.setdefault((name, axis), []).append((step, repr(value)))
    return series
