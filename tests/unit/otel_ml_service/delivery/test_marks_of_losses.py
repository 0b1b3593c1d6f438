"""What is noted as lost beside a position is of records up to it: after a kill the others are refused again."""

from __future__ import annotations

from collections.abc import Sequence

from otel_ml_exporters import PermanentExportError, Record, RestartExporterError, StepRecord
from otel_ml_exporters.testing import RecordingExporter
from tests.unit.otel_ml_service.delivery.driver import Driver, MemorySource, steps
from tests.waiting import eventually


def test_a_mark_in_the_middle_of_a_batch_has_no_losses_of_records_that_come_after_it(driver: Driver) -> None:
    class Picky(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            rows = [record for record in records if isinstance(record, StepRecord)]
            if any("bad" in row.values for row in rows):
                raise PermanentExportError("no such name", names=["bad"])
            if any(row.seq == 3 for row in rows):
                raise PermanentExportError("no step 3")
            super().export(records)

    last = StepRecord(4, "", "step", 4, 0, 0.0, {"x": 4.0, "bad": 1.0})

    driver.drain(Picky(), MemorySource([*steps(3), last]))

    assert dict(driver.marks)[2] == {}
    assert dict(driver.marks)[4] == {"no such name": 1, "no step 3": 1}


def test_a_mark_that_goes_back_with_an_exporter_takes_back_what_is_refused_again(driver: Driver) -> None:
    class Forgetful(RecordingExporter):
        max_batch = 1

        def position(self) -> int | None:
            return 0

        def export(self, records: Sequence[Record]) -> None:
            [record] = records
            if record.seq == 2:
                raise PermanentExportError("no step 2")
            if record.seq == 3 and len(made) == 1:
                raise RestartExporterError("its process is gone")
            super().export(records)

    made: list[Forgetful] = []

    def make() -> Forgetful:
        made.append(Forgetful())
        return made[-1]

    pipeline = driver.start_with(make, MemorySource(steps(4)))
    eventually(lambda: pipeline.status.delivered == 4)

    went_back = [lost for at, (seq, lost) in enumerate(driver.marks) if at and seq < driver.marks[at - 1][0]]
    assert went_back == [{}]
    assert driver.marks[-1] == (4, {"no step 2": 1})
