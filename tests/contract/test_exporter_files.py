"""Files that others delete, move or cut while a run is written: what was in them is written again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, StepRecord
from tests.contract.cases import CASES, Case
from tests.contract.delivery import BEGUN, Delivery, begin, records_with
from tests.contract.stored import RUN_ID, environment, read
from tests.contract.stream import scalars, training
from tests.forked import Forked

FOUR = {"jsonl", "tensorboard", "mlflow", "wandb"}

LOCAL = [
    pytest.param(case, id=case.id, marks=[] if case.id in FOUR else pytest.mark.full)
    for case in CASES
    if case.id != "otlp"
]

pytestmark = pytest.mark.long


@pytest.fixture
def begun(case: Case, run_dir: Path) -> Iterator[Delivery]:
    delivery = begin(case, run_dir)
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
    case: Case, run_dir: Path, more: int
) -> None:
    arguments = [case.id, str(run_dir), str(more)]
    process = Forked(case.id, "tests.contract.delivery", arguments, env=environment(), cwd=run_dir.parent.parent.parent)
    said = process.communicate()
    run_dir.mkdir(parents=True, exist_ok=True)  # not every backend writes there, and the reader begins there

    assert process.returncode == 0
    assert stored(case, run_dir) == points(case, [*map(training, range(1, BEGUN + 1)), *records_with(more)])
    assert "store-gone" in said.split()


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

    begun.kept.add(records_with(9))
    begun.end()
    for background in run_dir.rglob("*.otel_ml.1"):
        background.unlink()  # TensorBoard would show it too

    assert stored(case, run_dir) == points(case, begun.kept.records)
    assert "store-gone" in [slug for slug, _ in begun.said]
