"""The whole demo: start the job, follow it, read what was recorded, compare the backends, say what was found."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from otel_ml.exceptions import MissingDependencyError
from otel_ml.quantities import seconds
from otel_ml_exporters.records import Record, StepRecord
from otel_ml_service.demo.launch import RANKS, Launch, launch
from otel_ml_service.demo.report import Report
from otel_ml_service.demo.stored import READERS, NotStoredError
from otel_ml_service.demo.summary import findings
from otel_ml_service.demo.verify import Comparison, compare
from otel_ml_service.stored_runs.follow_jsonl import Follower
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["is_installed", "new_run", "run_demo"]

EXPERIMENT = "digits"
_NEEDS = {"jsonl": "json", "tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
"""Backend → the module it cannot do without."""


def is_installed(backend: str) -> bool:
    """Whether a backend's package is there, without importing it."""
    return find_spec(_NEEDS[backend]) is not None


def run_demo(base: Path, wanted: Sequence[str] | None, steps: int) -> bool:
    """Run the demo and return whether everything is as it should be.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
        DemoFailedError: a process failed.
    """
    if find_spec("sklearn") is None:
        raise MissingDependencyError("The demo", package="scikit-learn", extra="demo")
    began = time.monotonic()
    console = Console(highlight=False)
    backends = tuple(wanted or filter(is_installed, READERS))
    run = new_run(base.absolute(), datetime.now().astimezone())
    console.print(f"[bold]otel_ml demo[/]: {RANKS} trainers and an evaluator on 1,797 handwritten digits")
    with _progress_bar(console, run, steps) as (move, say):
        launch(Launch(run, backends, steps, on_progress=move, on_event=say))
    # Read once, for the findings and for the comparison of each backend.
    recorded = list(records(run))
    found = findings(recorded)
    compared = {backend: _compared(backend, run, recorded) for backend in backends if backend in READERS}

    report = Report(console)
    report.findings(found)
    report.backends(run, compared, missing=[name for name in READERS if not is_installed(name)])
    report.where(run, backends)
    console.print(f"\n{seconds(time.monotonic() - began)}", style="dim")
    # The exit status of the command: a demo that finds a fault of ours fails.
    return found.is_good and all(isinstance(result, Comparison) and result.is_identical for result in compared.values())


def new_run(base: Path, now: datetime) -> RunFolder:
    """Return the folder of a run of its own, though another demo begins on this host within the same second."""
    return RunFolder(base / EXPERIMENT / f"demo-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}")


def _compared(backend: str, run: RunFolder, recorded: Sequence[Record]) -> Comparison | str:
    """Return the comparison, or why there is none."""
    try:
        return compare(backend, run, recorded)
    except NotStoredError as error:
        return str(error)


@contextmanager
def _progress_bar(
    console: Console, run: RunFolder, steps: int
) -> Iterator[tuple[Callable[[], None], Callable[[str], None]]]:
    """Yield (call often, say a sentence) around the work; in a pipe only the sentences are printed."""
    # While the service has the run open its own file cannot be read.
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
