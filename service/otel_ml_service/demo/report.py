"""How the demo's findings are printed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from otel_ml.env import DIR
from otel_ml.quantities import percent, seconds
from otel_ml_service.demo.summary import GOOD_ACCURACY, Findings
from otel_ml_service.demo.verify import Comparison
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.why.facts import Slow
from otel_ml_service.why.finding_text import what_was_when

__all__ = ["Report"]

_GOOD, _BAD, _NOTE = ("✓", "green"), ("✗", "bold red"), ("·", "dim")
_LABEL = 12
_LONG = 60
"""Letters of a command from which on what it shows stands right behind it."""


class Report:
    """Prints sections of labeled lines."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def findings(self, found: Findings) -> None:
        """Print what the recorded data say about the training."""
        self._title("What the recorded data say")
        accuracy = found.accuracy
        self._line(
            _GOOD if accuracy is not None and accuracy >= GOOD_ACCURACY else _BAD,
            "accuracy",
            f"{percent(accuracy)} on digits it never saw, after {found.steps} steps; {found.evaluations} evaluations"
            if accuracy is not None
            else "no evaluation was recorded",
        )
        self._slow(found.slow)
        if found.is_complete:
            self._line(_GOOD, "lost", f"nothing: every step has the samples of all {found.ranks} ranks")
        for name, count in found.lost.items():
            self._line(_BAD, "lost", f"{name} {count:,.0f}")
        if found.incomplete:
            self._line(
                _BAD, "lost", f"samples of some rank in {len(found.incomplete)} steps, first {found.incomplete[0]}"
            )
        self._line(_NOTE, "amended", f"{found.corrected} values")

    def _slow(self, found: Slow | None) -> None:
        if found is None:
            self._line(_NOTE, "slow", "nobody stands out")
            return
        self._line(_GOOD, "slow", what_was_when(found))
        self._line(("", ""), "", f"+{seconds(found.extra_s)} a step, {seconds(found.cost_s)} in all")
        if found.saved_s:
            self._line(("", ""), "", f"without it a step is {seconds(found.saved_s)} shorter")

    def backends(self, run: RunFolder, compared: Mapping[str, Comparison | str], missing: Sequence[str]) -> None:
        """Print for each backend whether it holds exactly what was recorded, and where."""
        self._title("One run in each backend")
        for backend, result in compared.items():
            mark = _GOOD if isinstance(result, Comparison) and result.is_identical else _BAD
            self._line(mark, backend, result if isinstance(result, str) else _sentence(result))
            self._line(("", ""), "", _shown(_place(run, backend)))
        for backend in missing:
            self._line(_NOTE, backend, f"not installed: pip install 'otel-ml[{backend}]'")

    def where(self, run: RunFolder, backends: Sequence[str]) -> None:
        """Print what to type next."""
        self._title("Look at it")
        commands = _commands(run, backends)
        width = max((len(line) for line, _ in commands if len(line) < _LONG), default=0)
        for line, what in commands:
            self._print(Text.assemble("  ", (f"{line:<{width}}", "cyan"), (f"  # {what}", "dim")))

    def _title(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(text, style="bold"))

    def _line(self, mark: tuple[str, str], label: str, text: str) -> None:
        sign, style = mark
        line = Text.assemble((f"  {sign:<1} ", style), (f"{label:<{_LABEL}}", "bold"), text)
        self._print(line)

    def _print(self, line: Text) -> None:
        # A path or a command is copied whole, so a terminal may wrap it, and we may not.
        self._console.print(line, soft_wrap=True)


def _commands(run: RunFolder, backends: Sequence[str]) -> list[tuple[str, str]]:
    """Return what to type, and what it shows."""
    base = run.path.parent.parent
    # Without `--dir` the commands look where OTEL_ML_DIR says.
    is_found = base == Path(DIR.read().value).absolute()
    latest = "latest" if is_found else f"latest --dir {shlex.quote(_shown(base))}"
    commands = [
        (f"otel-ml ui{latest.removeprefix('latest')}", "every run, in the browser"),
        (f"otel-ml why {latest}", "what made steps slow"),
        (f"otel-ml report {latest}", "the run's page as a file"),
        (f"otel-ml show {latest} loss evaluator/eval/accuracy", "curves, here"),
    ]
    # What the run was not written to cannot be opened.
    viewers = [viewer for viewer in ("tensorboard", "mlflow") if viewer in backends]
    commands += [(f"otel-ml open {latest} --with {viewer}", "in the browser") for viewer in viewers]
    if "wandb" in backends:
        commands.append((f"wandb sync {shlex.quote(_shown(_place(run, 'wandb')))}", "to your account"))
    return commands


def _sentence(result: Comparison) -> str:
    stored = " as float32" if result.backend == "tensorboard" else ""
    extra = f", {result.extra} amended" if result.extra else ""
    if result.is_identical:
        return f"{result.points:,} of {result.points:,} values identical{stored}{extra}"
    if result.different:
        (axis, name), step = result.different[0]
        return (
            f"{len(result.different):,} of {result.points + len(result.different):,} values differ{stored}, "
            f"first {name!r} at {axis} {step}"
        )
    return f"{result.extra} values beyond one a point, {result.expected_extra} were amended"


def _place(run: RunFolder, backend: str) -> Path:
    base = run.path.parent.parent
    if backend == "mlflow":
        return base / "mlflow.db"
    if backend == "wandb":
        return next(iter(sorted((base / "wandb").glob(f"offline-run-*-{run.id}"))), base / "wandb")
    return run.path / ("metrics.jsonl" if backend == "jsonl" else backend)


def _shown(path: Path) -> str:
    """Return a path as short as it can be typed here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
