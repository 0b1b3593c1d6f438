"""A pipeline that a test begins, disturbs and ends; or a process: `python -m tests.contract.delivery CASE DIR MORE`.

The process delivers 40 records, deletes the folder of all runs, delivers MORE of them, and prints the slugs of what was
said. W&B's own process, which has the deleted files open, ends with it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from otel_ml_exporters.records import Record, RunStatus
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.retries import RetryPolicy
from tests.contract.cases import Case, case
from tests.contract.stored import RUN_ID
from tests.contract.stream import AT, run_info, training
from tests.waiting import eventually

__all__ = ["BEGUN", "Delivery", "begin", "records_with"]

BEGUN = 40


class Kept:
    """A run's records, as the outbox keeps them."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        self.first_seq = 1
        self._listener: Callable[[], None] = lambda: None

    @property
    def last_seq(self) -> int:
        return self.records[-1].seq

    def read(self, after: int, limit: int) -> Sequence[Record]:
        return self.records[after : after + limit]

    def subscribe(self, name: str, listener: Callable[[], None]) -> None:
        self._listener = listener

    def add(self, records: Sequence[Record]) -> None:
        self.records.extend(records)
        self._listener()


class Delivery:
    """A pipeline and what it said."""

    def __init__(self, case: Case, run_dir: Path, kept: Kept) -> None:
        self.said: list[tuple[str, str]] = []
        self.kept = kept
        self.pipeline = Pipeline(
            case.id,
            case.exporter,
            run_info(run_dir, RUN_ID),
            kept,
            mark=self._mark,
            say=lambda slug, sentence: self.said.append((slug, sentence)),
            retry=RetryPolicy(0.01, 0.1),
        )
        self.pipeline.start()

    def _mark(self, seq: int, lost: Mapping[str, int]) -> None:
        assert not lost

    def has_everything(self) -> bool:
        return self.pipeline.status.delivered == self.kept.last_seq

    def end(self) -> None:
        eventually(self.has_everything, timeout=60)
        self.pipeline.ask_to_stop(60)
        assert self.pipeline.join()


def begin(case: Case, run_dir: Path) -> Delivery:
    """Return a pipeline that has delivered `BEGUN` records."""
    delivery = Delivery(case, run_dir, Kept([training(seq) for seq in range(1, BEGUN + 1)]))
    eventually(delivery.has_everything, timeout=60)
    return delivery


def records_with(more: int) -> list[Record]:
    """Return the records after the first `BEGUN`, of which the last one is the end."""
    last = BEGUN + more
    return [*map(training, range(BEGUN + 1, last)), RunStatus(last, AT + 90, "finished")]


def main(case_id: str, run_dir: Path, more: int) -> None:
    delivery = begin(case(case_id), run_dir)
    shutil.rmtree(run_dir.parent.parent)
    delivery.kept.add(records_with(more))
    delivery.end()
    print(*(slug for slug, _ in delivery.said))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
