"""Arguments and options that several commands share, with their shell completion."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from otel_ml.env import DIR
from otel_ml.exceptions import OtelMLError
from otel_ml.variable import comma_separated
from otel_ml_exporters.registry import registered
from otel_ml_service.stored_runs.run_folders import LATEST, find, run_folders

__all__ = ["EXPORTERS", "METRIC", "RUN", "STEPS", "dir_option", "refuse_misspelled", "run_argument"]

F = TypeVar("F", bound=Callable[..., Any])

# `48-52`, `48..52`, and `48–52` with the dash that a text has.
_STEPS = re.compile(r"\s*(\d+)\s*(?:(?:-|–|\.\.)\s*(\d+)\s*)?")


def dir_option(function: F) -> F:
    """Add `--dir`, the folder of all runs."""
    return click.option(
        "--dir",
        "base",
        type=click.Path(path_type=Path, file_okay=False),
        default=lambda: Path(DIR.read().value),
        show_default="OTEL_ML_DIR, else ./otel-ml-runs",
        help="Folder of all runs.",
    )(function)


def refuse_misspelled(base: Path) -> None:
    """Refuse a `--dir` that somebody names and that is not there: that nothing is left in it says nothing."""
    is_named = click.get_current_context().get_parameter_source("base") is ParameterSource.COMMANDLINE
    if is_named and not base.is_dir():
        raise click.BadParameter(f"there is no folder {str(base)!r}", param_hint="--dir")


def run_argument(*, required: bool = True) -> Callable[[F], F]:
    """Add the argument RUN; where it is not required, the newest run is meant."""
    return click.argument("run", type=RUN, required=required, default=None if required else LATEST)


class _RunType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """A run: a name, an id, a part of either, `experiment/id`, an experiment's name, a folder, `latest`."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete names and ids of the runs on this machine."""
        known = [(text, run) for run in run_folders(_base(ctx)) for text in dict.fromkeys((run.name, run.id))]
        return [CompletionItem(text, help=run.experiment) for text, run in known if text.startswith(incomplete)]


class _MetricType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """A published name, or a glob of such names."""

    name = "metric"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the names in the run that was written before."""
        from otel_ml_service.stored_runs.quick_history import history_of

        try:
            # No name has a NUL in it: where there are columns the names are read, and no values.
            series = history_of(find(ctx.params.get("run") or LATEST, _base(ctx)), ["\0"]).series
        except OtelMLError:
            return []
        return [CompletionItem(key.name) for key in series if key.name.startswith(incomplete)]


class _ExportersType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """Exporter names separated by commas."""

    name = "exporters"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split the list; whether each name is known is the registry's answer, with its did-you-mean."""
        if isinstance(value, tuple):
            return value
        names = comma_separated(value)
        if not names:
            self.fail(f"{value!r} names no exporter. Write for example: jsonl,tensorboard", param, ctx)
        return names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the last name of the list."""
        # The shell replaces the whole word, so what stands before the last comma is given back.
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{name}") for name in sorted(registered()) if name.startswith(last)]


class _StepsType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """A step, or the first and the last of several."""

    name = "steps"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return the first and the last step."""
        if isinstance(value, tuple):
            return value
        found = _STEPS.fullmatch(value)
        if found is None:
            self.fail(
                f"{value!r} names no steps. Expected one, as in 5, or the first and the last, as in 48-52.", param, ctx
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            self.fail(f"{value!r} ends before it begins. Write {last}-{first}.", param, ctx)
        return first, last


def _base(ctx: click.Context) -> Path:
    return Path(ctx.params.get("base") or DIR.read().value)


RUN = _RunType()
METRIC = _MetricType()
EXPORTERS = _ExportersType()
STEPS = _StepsType()
