"""Names as people write them, in every backend: read back as they were, or with what they were beside them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import (
    Artifact,
    Audio,
    HistogramValue,
    Image,
    Params,
    Record,
    RunStatus,
    Summary,
    Table,
    Text,
)
from tests.contract.cases import CASES, Case
from tests.contract.stored import RUN_ID, Stored, read
from tests.contract.stream import AT, every_kind, run_info, step

TIMEOUT = 30.0

NAMES = [
    "training loss", "损失/训练", "Größe", "mfu(%)", "loss%", "loss_percent", "val/AR@100", "mAP@[0.5:0.95]",
    "acc[top-1]", "prep", "prep/weights", "a:b", "x=1,y=2", "lr*wd", "wall?", "R²", "🔥 loss", "हिन्दी", "back\\slash",
    "quo'te\"", "<b>&amp;", "../up", "/absolute//x", "end/", "a/../b", ".", " lead and trail ", "two\\nlines",
    "a.b[0].c", "_step", "step", "__x", "#tag", "${HOME}", "Loss", "loss", "n" * 600, "n" * 599 + "m", "层" * 1000,
]  # fmt: skip
"""As the service publishes them: control characters are escaped there, and more than 1,000 characters cut."""

MEDIA = ("图 像/样本 [1]", "../../../up", "/tmp/otel-ml-absolute", "m" * 600, "层" * 1000, "lr*wd?", "loss (%)")

pytestmark = pytest.mark.long


def storing(what: str) -> pytest.MarkDecorator:
    """Try what every backend has to take that stores more than scalars, or `what`."""
    cases = [case for case in CASES if what in case.stores | {"scalars"}]
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


def exported(case: Case, run_dir: Path, *batches: list[Record]) -> tuple[Stored, list[str]]:
    """Export each batch in a life of its own; return what the backend holds, and what was said."""
    said = []
    for batch in batches:
        exporter: Exporter = case.exporter()
        exporter.start(run_info(run_dir, RUN_ID))
        before = exporter.notice
        exporter.export(batch)
        said += [exporter.notice or ""] if exporter.notice != before else []
        exporter.shutdown(TIMEOUT, RunStatus(999, AT + 999, "finished"))
    return read(case, run_dir, RUN_ID), said


def originals(stored: Stored) -> dict[str, str]:
    names = stored.other.get("names", {})
    assert isinstance(names, dict)
    return names


@pytest.mark.feature("M36", "better", "as they were written; in words, with the original, where a backend has to")
@storing("scalars")
def test_a_metric_is_stored_as_it_was_written_or_with_what_it_was(case: Case, run_dir: Path) -> None:
    values = {name: float(at) for at, name in enumerate(NAMES)}

    stored, said = exported(case, run_dir, [step(1, 1, values)], [step(2, 2, values)])

    names = originals(stored)
    found = [(names.get(name, name), at, value) for name, _, at, value in stored.scalars]
    assert sorted(found) == sorted((name, at, value) for at in (1, 2) for name, value in values.items())
    assert set(names.values()) <= {name for name in NAMES if case.refuses.search(name)} | TAKEN[case.id]
    assert all(name in names.values() for name in NAMES if case.refuses.search(name))
    assert bool(said) == bool(names)
    assert not any("__" in key.removeprefix("metric/__") for key in names), names


TAKEN = {case.id: set[str]() for case in CASES} | {"mlflow": {"loss_percent"}}
"""Names that others had taken."""


LOOK_ALIKE = {
    "_step": "metric/_step", "step": "metric/step", "__x": "metric/__x", "./loss": "metric/loss", "end/": "metric/end",
    "mfu(%)": "mfu_percent", "val/AR@100": "val/AR_at_100", "a:b": "a_b", "/absolute//x": "absolute/x", "../up": "up",
    "n" * 600: f"metric/{'n' * 441}", "_timestamp": "metric/metric/_timestamp",
}  # fmt: skip
"""Names, and what a backend that does not take them could call them."""


@pytest.mark.parametrize("is_reversed", [False, True], ids=["the changed name first", "the unchanged name first"])
@storing("scalars")
def test_a_name_stays_another_one_than_that_which_a_changed_name_resembles(
    case: Case, is_reversed: bool, run_dir: Path
) -> None:
    lives = [dict.fromkeys(LOOK_ALIKE, 1.0), dict.fromkeys(LOOK_ALIKE.values(), 2.0)]
    in_order = lives[::-1] if is_reversed else lives

    batches: list[list[Record]] = [[step(seq, 1, values)] for seq, values in enumerate(in_order, start=1)]

    stored, _ = exported(case, run_dir, *batches)

    names = originals(stored)
    found = [(names.get(name, name), value) for name, _, _, value in stored.scalars]
    assert sorted(found) == sorted(item for values in lives for item in values.items())


NOT_TENSORBOARD = [case for case in CASES if case.id != "tensorboard"]  # in whose tags any name is a name


@pytest.mark.parametrize(
    "case", [case for case in NOT_TENSORBOARD if "summary" in case.stores], ids=lambda case: case.id
)
def test_a_metric_stays_another_one_than_a_final_value_or_a_correction_that_is_called_so(
    case: Case, run_dir: Path
) -> None:
    resembling = {"summary/loss": 2.0, "loss/amended": 3.0, "loss/attempt_1": 4.0, "loss/over_time": 5.0}
    first: list[Record] = [step(1, 3, {"loss": 1.0, **resembling}), step(2, 3, {"loss": 1.5}, amendment=True)]
    further: list[Record] = [step(3, 3, {"loss": 6.0}, attempt=1), Summary(4, AT, {"loss": 7.0})]

    stored, _ = exported(case, run_dir, first, further)

    names = originals(stored)
    found = [(names.get(name, name), value) for name, _, _, value in stored.scalars if value != 6.0]
    assert sorted(found) == sorted({"loss": 1.0, **resembling}.items())
    summary = stored.other["summary"]
    assert isinstance(summary, dict)
    assert list(summary.values()) == [7.0]


@storing("params")
def test_a_parameter_and_a_final_value_are_stored_as_they_were_written_or_with_what_they_were(
    case: Case, run_dir: Path
) -> None:
    plain = [name for name in NAMES if "." not in name]  # nested keys are joined by dots
    params = Params(1, AT, {name: f"value of {name[:5]} {at}" for at, name in enumerate(plain)})
    final = Summary(2, AT, {name: float(at) for at, name in enumerate(NAMES)})

    stored, _ = exported(case, run_dir, [params, final])

    names = originals(stored)
    found = stored.other["params"]
    summary = stored.other["summary"]
    assert isinstance(found, dict)
    assert isinstance(summary, dict)
    assert {names.get(key, key): value for key, value in found.items()} == params.params
    assert {names.get(key, key): value for key, value in summary.items()} == final.values


@storing("texts")
def test_what_is_a_file_in_a_backend_has_any_name_and_stays_in_its_folder(case: Case, run_dir: Path) -> None:
    root = run_dir.resolve().parents[1]
    before = {path for path in root.parent.rglob("*") if root not in path.parents}
    kinds = [
        record for record in every_kind(run_dir) if isinstance(record, (Text, Table, Image, Audio, HistogramValue))
    ]
    records: list[Record] = []
    for name in MEDIA:
        records += [
            replace(record, seq=len(records) + at, name=f"{name} {at}") for at, record in enumerate(kinds, start=1)
        ]
    records += [artifact(run_dir, len(records) + at, name) for at, name in enumerate(MEDIA, start=1)]

    stored, _ = exported(case, run_dir, records)

    assert {path for path in root.parent.rglob("*") if root not in path.parents} <= before | {root}
    assert not Path("/tmp/otel-ml-absolute").exists()
    for kind in {"texts", "tables", "images", "audio", "histograms", "artifacts"} & case.stores:
        entries = stored.other[kind]
        assert isinstance(entries, list)
        assert len(entries) == len(MEDIA), kind


def artifact(run_dir: Path, seq: int, name: str) -> Artifact:
    file = run_dir / f"{seq}.bin"
    file.write_bytes(name.encode())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return Artifact(seq, AT, name, "model", "a b?.bin", file, file.as_uri(), file.stat().st_size, digest, 1)
