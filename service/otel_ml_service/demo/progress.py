"""The demo's progress bar: it moves with the steps that are recorded, not with those that are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from otel_ml_exporters.records import StepRecord
from otel_ml_service.stored_runs.follow_jsonl import Follower
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    console: Console, run: RunFolder, steps: int
) -> Iterator[tuple[Callable[[], None], Callable[[str], None]]]:
    """Yield (call often, say a sentence) around the work; in a pipe only the sentences are printed."""
    follower = Follower(run.jsonl)
    with Progress(
        SpinnerColumn(),
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("training", total=steps, figures="starting 5 processes")
        figures: dict[str, float] = {}

        def move() -> None:
            for record in follower.new_records():
                if isinstance(record, StepRecord):
                    figures.update(record.values)
                    if record.axis == "step" and record.role == "trainer":
                        progress.update(task, completed=record.step + 1)
            progress.update(task, figures=_shown(figures))

        yield move, lambda sentence: console.print(f"  {sentence}", markup=False, highlight=False, soft_wrap=True)


def _shown(figures: dict[str, float]) -> str:
    names = (("loss", "loss"), ("evaluator/eval/accuracy", "test accuracy"))
    return (
        "  ".join(f"{label} {figures[name]:.3f}" for name, label in names if name in figures) or "starting 5 processes"
    )
