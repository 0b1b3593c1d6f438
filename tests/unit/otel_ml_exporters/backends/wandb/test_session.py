"""What W&B gets of rows, and what of them it will never have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters.backends.wandb import session as session_module
from otel_ml_exporters.backends.wandb.changed_names import ChangedNames
from otel_ml_exporters.backends.wandb.rows import fitting
from otel_ml_exporters.backends.wandb.session import Session
from otel_ml_exporters.backends.wandb.step_metrics import StepMetrics
from otel_ml_exporters.errors import PermanentExportError
from otel_ml_exporters.records import Record, StepRecord
from otel_ml_service.delivery.refused_records import Refusal, Refused, export_all_but_refused


class History:
    """Stands for W&B's run: it keeps the rows it is given."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.rows: list[tuple[int, dict[str, Any]]] = []

    def define_metric(self, name: str, **_: object) -> None:
        """Take what a metric is drawn over."""

    def log(self, row: dict[str, Any], *, step: int, commit: bool) -> None:
        self.rows.append((step, {key: value for key, value in row.items() if key.startswith("m")}))


def delivered(session: Session, records: Sequence[Record]) -> list[Refused]:
    """Deliver as a pipeline does; return what is set aside."""

    def export(some: Sequence[Record], *, is_last_word: bool) -> Refusal | None:
        try:
            session.write(some)
        except PermanentExportError as error:
            return Refusal(error.sentence, error.names)
        return None

    return list(export_all_but_refused(records, export, lambda _: None))


def steps(*values: dict[str, float]) -> list[Record]:
    return [StepRecord(seq, "trainer", "step", seq, 0, float(seq), each) for seq, each in enumerate(values, 1)]


def test_of_a_row_with_more_metrics_than_there_is_room_for_those_are_lost_and_no_others(tmp_path: Path) -> None:
    history = History()
    session = Session(history, 0, 2, StepMetrics(tmp_path / "step_metrics.json"), ChangedNames(tmp_path / "names.json"))

    refused = delivered(session, steps({"m0": 1, "m1": 1}, {"m0": 2, "m2": 2}, {"m0": 3, "m2": 3, "m3": 3}, {"m1": 4}))

    assert [(one.seq, one.values) for one in refused] == [(2, 1), (3, 1), (3, 1)]
    assert history.rows == [(1, {"m0": 1, "m1": 1}), (2, {"m0": 2}), (3, {"m0": 3}), (4, {"m1": 4})]


def test_a_row_that_is_too_large_takes_no_value_of_another_row_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "fitting", partial(fitting, limit=250))  # 10 MB take seconds
    history = History()
    session = Session(
        history, 0, 100, StepMetrics(tmp_path / "step_metrics.json"), ChangedNames(tmp_path / "names.json")
    )

    refused = delivered(session, steps({"m19": 1.0}, {f"m{n}": float(n) for n in range(20)}, {"m19": 3.0}))

    assert [(one.seq, one.what) for one in refused] == [(2, "step 2")]
    assert {seq for seq, row in history.rows if "m19" in row} == {1, 3}
