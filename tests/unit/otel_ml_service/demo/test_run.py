"""What the demo calls its run."""

from __future__ import annotations

import io
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest
from rich.console import Console

from otel_ml_service.demo.run import _compared, _progress_bar, is_installed, new_run
from otel_ml_service.demo.verify import compare
from tests.recorded_run import digits_records, write_run


def test_demos_that_begin_within_one_second_are_runs_of_their_own(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)

    assert len({new_run(tmp_path, now).id for _ in range(20)}) == 20


def test_a_run_is_named_after_the_moment_at_which_it_begins(tmp_path: Path) -> None:
    run = new_run(tmp_path, datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc))

    assert run.path.parent == tmp_path / "digits"
    assert re.fullmatch(r"demo-20260102-030405-[0-9a-f]{6}", run.id)


def test_jsonl_needs_nothing_to_be_installed() -> None:
    assert is_installed("jsonl")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_and_sentences_everywhere(tmp_path: Path, is_terminal: bool) -> None:
    records = [record for record in digits_records(steps=50) if getattr(record, "step", 0) < 40]
    run = write_run(tmp_path, "one", records)
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=is_terminal, color_system=None)

    with _progress_bar(console, run, 240) as (move, say):
        move()
        say("killed [the] evaluator")

    shown = text.getvalue()
    assert "  killed [the] evaluator\n" in shown
    if is_terminal:
        assert "40/240" in shown
        assert "loss 0.050  test accuracy 0.890" in shown
        assert "0/240 starting 5 processes" in shown
    else:
        assert shown == "  killed [the] evaluator\n"


def test_a_backend_that_does_not_hold_the_run_is_told_with_the_reason(tmp_path: Path) -> None:
    records = digits_records(steps=3)
    run = write_run(tmp_path, "one", records)

    assert _compared("jsonl", run, records) == compare("jsonl", run, records)
    assert "holds no offline run 'one'" in str(_compared("wandb", run, records))
