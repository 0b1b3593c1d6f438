"""What verl's own file and line on the console say of values that are not plain numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import otel_ml
from otel_ml.compat.verl import FileLogger, Tracking
from otel_ml.testing import Capture, capture


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


@dataclass
class Sampling:
    """What a program may log beside numbers."""

    top_p: float


class Mode(Enum):
    SYNC = "sync"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (date(2026, 8, 22), "2026-08-22"),
        (Mode.SYNC, "sync"),
        (Sampling(0.5), {"top_p": 0.5}),
        ([Mode.SYNC, UUID(int=1)], ["sync", "00000000-0000-0000-0000-000000000001"]),
    ],
)
def test_the_file_has_dates_enums_and_dataclasses_as_verls_has(tmp_path: Path, value: Any, written: Any) -> None:
    logger = FileLogger("grpo", "dev")
    logger.log({"value": value}, step=1)
    logger.finish()

    line = (tmp_path / "grpo" / "dev.jsonl").read_text(encoding="utf-8")
    assert json.loads(line) == {"step": 1, "data": {"value": written}}


def test_what_the_file_is_without_is_said(captured: Capture) -> None:
    otel_ml.init()
    logger = FileLogger("grpo", "dev")
    logger.log({"loss": 0.5, "odd": object(), "raw": b"x"}, step=1)
    logger.finish()

    assert any("FileLogger.log('odd', 'raw')" in notice for notice in captured.notices)


def test_a_file_that_is_closed_takes_no_more_lines_which_is_the_programs_mistake(captured: Capture) -> None:
    otel_ml.init()
    logger = FileLogger("grpo", "dev")
    logger.finish()
    logger.log({"loss": 0.5}, step=1)

    [said] = captured.notices
    assert "FileLogger.log(" in said
    assert "finish() has closed its file" in said
    assert "explain bad-event" in said


def test_the_console_has_every_number_in_its_shortest_form(capsys: pytest.CaptureFixture[str]) -> None:
    with capture():
        tracking = Tracking("grpo", "dev", default_backend="console")
        tracking.log({"lr": np.float32(0.1), "budget": Decimal("1.5"), "root": 1j, "n": np.int64(4)}, step=4)

    assert capsys.readouterr().out == "step:4 - lr:0.1 - budget:1.5 - root:1j - n:4\n"
