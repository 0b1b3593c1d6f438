"""Where phases take turns the published account is of one rank: wherever it is shown, that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, RunStatus, StepRecord
from otel_ml_service.cli.run_board import RunBoard
from otel_ml_service.report.contents import contents
from otel_ml_service.report.page import page
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import Run
from tests.unit.otel_ml_service.report.test_page import Reader
from tests.unit.otel_ml_service.why.asking import asked
from tests.unit.otel_ml_service.why.jobs import numbered

PHASES = {"forward-recv": 0.004, "forward-compute": 0.02, "backward-compute": 0.04, "grads-all-reduce": 0.002}
BUSIEST = 5


def pipeline(*, phases: dict[str, float] = PHASES, has_turns: bool = False) -> list[Record]:
    """Return a job of which rank 5 works longest; with `has_turns` another rank is at the front of each phase."""
    rows = []
    for step in range(40):
        values = {}
        for number, (phase, seconds) in enumerate(phases.items()):
            values[f"time/{phase}"] = values[f"time/exposed/{phase}"] = seconds
            values[f"time/exposed/{phase}/rank"] = float(number if has_turns else 4 if step == 7 else BUSIEST)
        rows.append(StepRecord(0, "trainer", "step", step, 0, 1000.0 + 0.066 * step, values))
    return numbered([*rows, RunStatus(0, 1003.0, "finished")])


def test_show_says_whose_account_it_is_and_how_to_see_the_path(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01pipe", pipeline())

    shown = " ".join(otel_ml("show", "01pipe")[1].split())

    assert "of rank 5, which works longest; for the path through all ranks: otel-ml why 01pipe 39" in shown
    assert "what each phase adds to the step of the slowest rank" not in shown


def test_why_without_spans_says_whose_account_it_is(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01pipe", pipeline())

    said = " ".join(otel_ml("why", "01pipe", "10-20")[1].split())

    assert "Where the time goes (of rank 5, which works longest; no spans show the path)" in said
    assert asked(pipeline(), steps=(10, 20)).of_rank == BUSIEST


def test_the_page_says_whose_account_it_is() -> None:
    read = Reader(page([contents("01pipe", "pages", pipeline())]))

    said = " ".join(read.text.partition("Where the time goes")[2].split())
    assert "of rank 5, which works longest; for the path through all ranks: otel-ml why 01pipe 39" in said


def test_diff_says_that_the_accounts_are_of_one_rank_each(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01pipe", pipeline())
    write_run(tmp_path, "02pipe", pipeline())

    said = " ".join(otel_ml("diff", "01pipe", "02pipe")[1].split())

    assert "Where the time goes (of the rank that works longest in each)" in said


def test_top_says_whose_account_it_is() -> None:
    board = RunBoard()
    for record in pipeline():
        board.add(record)

    assert board.phases_of == BUSIEST


@pytest.mark.parametrize("made", [
    pipeline(has_turns=True), pipeline(phases={"forward": 0.02, "all_reduce": 0.01}),
])  # fmt: skip
def test_an_account_of_all_ranks_is_not_said_to_be_of_one(made: list[Record], otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01line", made)

    said = " ".join([
        otel_ml("show", "01line")[1], otel_ml("why", "01line", "10-20")[1],
        otel_ml("diff", "01line", "01line")[1],
        Reader(page([contents("01line", "pages", made)])).text,
    ])  # fmt: skip

    assert "works longest" not in said
    assert asked(made, steps=(10, 20)).of_rank is None
