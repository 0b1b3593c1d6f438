"""What every exporter promises, asked of its backend: all is read back by the backend's own library, elsewhere."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import JsonValue, Params, Record, RunStatus, StepRecord
from tests.contract import stream
from tests.contract.cases import CASES, Case
from tests.contract.stored import RUN_ID, Stored, environment, read
from tests.contract.stream import AT, every_kind, run_info, step, training
from tests.forked import Forked

TIMEOUT = 30.0
ENDLESS = 1_000_000

FOUR = {"jsonl", "tensorboard", "mlflow", "wandb"}
"""The exporters on which every change is tried; the others pass the same suite in `make full`."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.parametrize(
        "case", [pytest.param(case, id=case.id, marks=[] if case.id in FOUR else pytest.mark.full) for case in CASES]
    ),
]


def started(case: Case, run_dir: Path) -> Exporter:
    exporter = case.exporter()
    exporter.start(run_info(run_dir, RUN_ID))
    return exporter


def exported(case: Case, run_dir: Path, batches: Iterable[Sequence[Record]], status: RunStatus | None = None) -> Stored:
    """Export `batches` in one life of an exporter and return what the backend then holds."""
    exporter = started(case, run_dir)
    for batch in batches:
        exporter.export(batch)
    exporter.shutdown(TIMEOUT, status)
    return read(case, run_dir, RUN_ID)


def points(case: Case, records: Iterable[StepRecord]) -> list[tuple[str, str, int, str]]:
    """Return what the backend should hold of `records`; values as text, so that NaN equals NaN."""
    return [
        (name, axis, at, repr(case.value(value)))
        for record in records
        for name, axis, at, value in stream.scalars(record)
    ]


def as_text(scalars: Iterable[tuple[str, str, int, float]]) -> list[tuple[str, str, int, str]]:
    return [(name, axis, at, repr(value)) for name, axis, at, value in scalars]


def in_order(found: Iterable[tuple[str, str, int, str]]) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Return the points of each series; the order of different series is the backend's business."""
    series: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for name, axis, at, value in found:
        series.setdefault((name, axis), []).append((at, value))
    return series


def rows(first: int, last: int) -> list[StepRecord]:
    return [step(seq, seq, {"loss": 1 / seq, "time/step": seq / 3}) for seq in range(first, last + 1)]


@pytest.mark.feature("N2", "better", "W&B, TensorBoard, MLflow and SwanLab, each value exactly, also after a kill")
@pytest.mark.feature("R2", "better", "TensorBoard, W&B, SwanLab, Trackio and JSON lines from the same records")
def test_every_scalar_is_read_back_exactly_and_in_order(case: Case, run_dir: Path) -> None:
    records = [training(seq) for seq in range(1, 200) if not training(seq).amendment]

    stored = exported(case, run_dir, [records[:1], records[1:150], records[150:]])

    assert in_order(as_text(stored.scalars)) == in_order(points(case, records))


def test_extreme_and_non_finite_values_are_stored_as_documented(case: Case, run_dir: Path) -> None:
    values = [0.0, 0.1, -1.5, 1e-300, 16777217.0, 2.0**53, 3e38, 1e300, math.nan, math.inf, -math.inf]
    records = [step(seq, seq, {"loss": value, "other": 1.0}) for seq, value in enumerate(values, start=1)]

    stored = exported(case, run_dir, [records])

    assert in_order(as_text(stored.scalars)) == in_order(points(case, records))


def test_every_published_name_is_stored_as_it_is(case: Case, run_dir: Path) -> None:
    names = ["a", "a/b", "a.b", "a-b", "a_b", "Loss", "loss", "loss/rank_0", "7", "_x", "loss_5-32cf576b", "n" * 250]
    record = step(1, 1, {name: float(at) for at, name in enumerate(names)})

    stored = exported(case, run_dir, [[record]])

    assert in_order(as_text(stored.scalars)) == in_order(points(case, [record]))


def test_ten_thousand_names_are_stored(case: Case, run_dir: Path) -> None:
    records = [step(seq, seq, {f"layer_{at}/grad": float(at) for at in range(10_000)}) for seq in (1, 2)]

    stored = exported(case, run_dir, [records])

    assert in_order(as_text(stored.scalars)) == in_order(points(case, records))


def test_a_restart_from_the_position_stores_nothing_twice(case: Case, run_dir: Path) -> None:
    records = rows(1, 30)
    first = started(case, run_dir)
    first.export(records[:20])
    first.shutdown(TIMEOUT, None)
    second = started(case, run_dir)
    position = second.position()

    second.export(records[20 if position is None else position :])
    second.shutdown(TIMEOUT, None)

    stored = read(case, run_dir, RUN_ID)
    assert in_order(as_text(stored.scalars)) == in_order(points(case, records))


def test_the_position_is_the_last_seq_that_is_stored(case: Case, run_dir: Path) -> None:
    first = started(case, run_dir)
    before = first.position()
    first.export(rows(1, 5))
    first.shutdown(TIMEOUT, None)

    second = started(case, run_dir)
    after = second.position()
    second.shutdown(TIMEOUT, None)

    assert (before, after) in {(0, 5), (None, None)}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_a_writer_killed_again_and_again_stores_every_scalar_exactly_once(case: Case, run_dir: Path, seed: int) -> None:
    targets = random.Random(seed)
    last = 0
    for _ in range(3):
        last = killed_after(case, run_dir, last + targets.randint(1, 150))
    finish = driver(case, run_dir, last + 500)
    finish.communicate()

    stored = read(case, run_dir, RUN_ID)
    expected = points(case, map(training, range(1, last + 501)))
    assert finish.returncode == 0
    assert Counter(as_text(stored.scalars + stored.amendments)) == Counter(expected)


def driver(case: Case, run_dir: Path, until: int) -> Forked:
    arguments = [case.id, str(run_dir), RUN_ID, str(until)]
    return Forked(case.id, "tests.contract.driver", arguments, env=environment(), cwd=run_dir)


def killed_after(case: Case, run_dir: Path, seq: int) -> int:
    """Run the driver and kill it while it writes on, past `seq`; return the last one it said it had exported."""
    process = driver(case, run_dir, ENDLESS)
    said = 0
    for line in process.stdout:
        said = int(line)
        if said >= seq:
            break
    process.kill()
    rest = process.stdout.read().splitlines()
    process.communicate()
    assert said >= seq, "the driver ended by itself"
    return int(rest[-1]) if rest else said


def test_the_same_run_id_goes_on_with_the_same_run(case: Case, run_dir: Path) -> None:
    exported(case, run_dir, [rows(1, 5)], RunStatus(99, AT + 99, "finished"))

    stored = exported(case, run_dir, [[RunStatus(6, AT + 6, "running"), *rows(7, 12)]])

    assert in_order(as_text(stored.scalars)) == in_order(points(case, [*rows(1, 5), *rows(7, 12)]))


def test_an_amendment_is_stored_beside_what_it_corrects_and_erases_nothing(case: Case, run_dir: Path) -> None:
    records = rows(1, 10)
    amendment = step(11, 4, {"loss": 7.5, "only/late": 2.5}, amendment=True, time=AT + 4.25)
    after = [step(12, 12, {"loss": 0.5, "time/step": 0.5})]

    stored = exported(case, run_dir, [records, [amendment], after])

    everything = as_text(stored.scalars + stored.amendments)
    assert Counter(everything) == Counter(points(case, [*records, amendment, *after]))
    assert [point for point in everything if point[:3] == ("loss", "step", 4)][-1][3] == repr(7.5)


def test_a_new_attempt_repeats_steps_and_both_are_stored(case: Case, run_dir: Path) -> None:
    first = [step(seq, seq, {"loss": 1 / seq}) for seq in range(1, 9)]
    again = [step(seq, seq - 4, {"loss": 2 / seq}, attempt=1) for seq in range(9, 16)]

    stored = exported(case, run_dir, [first, again])

    assert in_order(as_text(stored.scalars)) == in_order(points(case, [*first, *again]))
    keeps_attempts = case.reader != "tensorboard"  # which shows the newest attempt's points only
    assert stored.attempts == ([0] * len(first) + [1] * len(again) if keeps_attempts else [None] * 15)


@pytest.mark.feature("N4", "better", "axes are part of the data, so that every backend has them")
def test_axes_count_by_their_own_steps(case: Case, run_dir: Path) -> None:
    records = [
        step(1, 100, {"loss": 1.0}),
        step(2, 3, {"rollout/reward": 2.0}, axis="rollout"),
        step(3, 17, {"gpu/util": 3.0, "loss": 9.0}, axis="time"),
        step(4, 101, {"loss": 4.0}),
        step(5, 4, {"rollout/reward": 5.0}, axis="rollout"),
        step(6, 1, {"generator/rollout/length": 6.0}, axis="rollout", role="generator"),
    ]

    stored = exported(case, run_dir, [records])

    assert in_order(as_text(stored.scalars)) == in_order(points(case, records))


def expected_media(case: Case) -> dict[str, object]:
    """Return, by key of the reader's answer, what `every_kind` should leave in the backend."""
    digest = hashlib.sha256
    given: dict[str, JsonValue] = {
        "optimizer.lr": 0.1,
        "optimizer.betas": [0.9, 0.99],
        "epochs": 3,
        "amp": True,
        "net": "mlp",
    }
    cells = [[3, "a|b", 0.25], [8, "", None]]
    return {
        "params": {name: case.param(value) for name, value in given.items()},
        "summary": {"test/accuracy": 0.9375},
        "texts": [["samples", 1, "a *generated* text, with ünïcode\nin two lines"]],
        "tables": [["wrong", 1, ["image", "said", "sure"], [[case.cell(cell) for cell in row] for row in cells]]],
        "images": [["digit", 1, digest(stream.png()).hexdigest()]],
        "audio": [["speech", 1, digest(stream.wav()).hexdigest()]],
        "histograms": [["weights", 1, [-1.0, 0.0, 0.1, 2.5], [3.0, 0.0, 7.0]]],
        "artifacts": [["model", "weights.bin", digest(b"\x00\x01weights").hexdigest()]],
        "tags": ["contract"],
        "status": "finished",
    }


def test_every_kind_of_record_with_a_place_in_the_backend_is_stored_and_others_are_ignored(
    case: Case, run_dir: Path
) -> None:
    records = every_kind(run_dir)

    stored = exported(case, run_dir, [records[:4], records[4:]], RunStatus(12, AT + 12, "finished"))

    wanted = expected_media(case)
    assert {key: stored.other[key] for key in case.stores} == {key: wanted[key] for key in case.stores}
    steps = [record for record in records if isinstance(record, StepRecord)]
    assert in_order(as_text(stored.scalars)) == in_order(points(case, steps))


def test_tags_of_later_launches_are_added_and_their_notes_replace_the_earlier_ones(case: Case, run_dir: Path) -> None:
    first = replace(run_info(run_dir, RUN_ID), notes="first")
    exporter = case.exporter()
    exporter.start(first)
    exporter.export(rows(1, 1))
    exporter.describe(replace(first, tags=("contract", "second"), notes="second"))
    exporter.export(rows(2, 2))
    exporter.shutdown(TIMEOUT, None)
    exporter = case.exporter()
    exporter.start(replace(first, tags=("contract", "second", "third"), notes="third"))
    exporter.export(rows(3, 3))
    exporter.shutdown(TIMEOUT, RunStatus(4, AT + 4, "finished"))

    stored = read(case, run_dir, RUN_ID)

    said = {key: stored.other[key] for key in ("tags", "notes") if key in case.retold}
    assert said == {key: {"tags": ["contract", "second", "third"], "notes": "third"}[key] for key in case.retold}
    assert in_order(as_text(stored.scalars)) == in_order(points(case, rows(1, 3)))


def test_a_run_that_failed_says_so(case: Case, run_dir: Path) -> None:
    status = RunStatus(4, AT + 4, "failed")

    stored = exported(case, run_dir, [[Params(1, AT, {"lr": 0.1}), *rows(2, 3), status]], status)

    assert stored.other.get("status", "failed") == "failed"


def test_shutdown_is_safe_before_start_and_twice(case: Case, run_dir: Path) -> None:
    case.exporter().shutdown(TIMEOUT, None)
    exporter = started(case, run_dir)
    exporter.export(rows(1, 2))
    exporter.force_flush(TIMEOUT)
    exporter.shutdown(TIMEOUT, None)

    exporter.shutdown(TIMEOUT, RunStatus(3, AT + 3, "finished"))

    stored = read(case, run_dir, RUN_ID)
    assert in_order(as_text(stored.scalars)) == in_order(points(case, rows(1, 2)))


def test_an_empty_batch_is_fine(case: Case, run_dir: Path) -> None:
    stored = exported(case, run_dir, [[], rows(1, 1), []])

    assert in_order(as_text(stored.scalars)) == in_order(points(case, rows(1, 1)))
