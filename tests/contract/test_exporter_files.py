"""Files that others delete, move or cut while a run is written: what was in them is written again."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from otel_ml_exporters.delivery.pipeline import Pipeline
from otel_ml_exporters.delivery.retry import RetryPolicy
from otel_ml_exporters.records import Record, RunStatus, StepRecord
from tests.contract.cases import CASES, Case
from tests.contract.stored import RUN_ID, read
from tests.contract.stream import AT, run_info, scalars, training
from tests.waiting import eventually

FOUR = {"jsonl", "tensorboard", "mlflow", "wandb"}

LOCAL = [
    pytest.param(case, id=case.id, marks=[] if case.id in FOUR else pytest.mark.full)
    for case in CASES
    if case.id != "otlp"
]

pytestmark = pytest.mark.long


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


@pytest.fixture
def begun(case: Case, run_dir: Path) -> Iterator[Delivery]:
    """Return a pipeline that has delivered 40 records."""
    delivery = Delivery(case, run_dir, Kept([training(seq) for seq in range(1, 41)]))
    eventually(delivery.has_everything)
    yield delivery
    delivery.pipeline.ask_to_stop(0)
    delivery.pipeline.join()


def points(case: Case, records: Sequence[Record]) -> Counter[tuple[str, str, int, str]]:
    return Counter(
        (name, axis, at, repr(case.value(value)))
        for record in records
        if isinstance(record, StepRecord)
        for name, axis, at, value in scalars(record)
    )


def stored(case: Case, run_dir: Path) -> Counter[tuple[str, str, int, str]]:
    found = read(case, run_dir, RUN_ID)
    return Counter((name, axis, at, repr(value)) for name, axis, at, value in found.scalars + found.amendments)


@pytest.mark.parametrize("case", LOCAL)
@pytest.mark.parametrize("more", [40, 1], ids=["in the middle", "before the end"])
def test_after_the_folder_of_all_runs_was_deleted_everything_is_written_again(
    case: Case, run_dir: Path, begun: Delivery, more: int
) -> None:
    shutil.rmtree(run_dir.parent.parent)
    rest: list[Record] = [training(seq) for seq in range(41, 40 + more)]

    begun.kept.add([*rest, RunStatus(40 + more, AT + 90, "finished")])
    begun.end()
    run_dir.mkdir(parents=True, exist_ok=True)  # not every backend writes there, and the reader begins there

    assert stored(case, run_dir) == points(case, begun.kept.records)
    assert "store-gone" in [slug for slug, _ in begun.said]


def moved(file: Path) -> None:
    file.rename(file.with_name(f"{file.name}.1"))


def replaced(file: Path) -> None:
    fresh = file.with_name("fresh")
    fresh.write_bytes(b"")
    fresh.replace(file)


def cut(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize("harm", [Path.unlink, moved, replaced, cut], ids=["deleted", "moved", "replaced", "cut"])
@pytest.mark.parametrize(
    ("case", "name"),
    [
        (case, name)
        for case in CASES
        for name in {
            "jsonl": ["metrics.jsonl"],
            "tensorboard": [
                "tensorboard/events.out.tfevents.1.otel_ml",
                "tensorboard/time/events.out.tfevents.1.otel_ml",
            ],
        }.get(case.id, [])
    ],
    ids=lambda found: found if isinstance(found, str) else found.id,
)
def test_a_file_that_somebody_touched_while_it_was_written_holds_everything_in_the_end(
    case: Case, name: str, run_dir: Path, begun: Delivery, harm: Callable[[Path], None]
) -> None:
    harm(run_dir / name)

    begun.kept.add([training(seq) for seq in range(41, 50)])
    begun.end()
    for aside in run_dir.rglob("*.otel_ml.1"):
        aside.unlink()  # TensorBoard would show it too

    assert stored(case, run_dir) == points(case, begun.kept.records)
    assert "store-gone" in [slug for slug, _ in begun.said]
