"""`otel-ml gc`: removes old runs, after asking."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from otel_ml.exceptions import ConfigError
from otel_ml.quantities import size
from otel_ml_service.cli.figures import age
from otel_ml_service.cli.parameters import dir_option, refuse_misspelled
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.env import DIR_MAX
from otel_ml_service.findings.wording import plural
from otel_ml_service.stored_runs.read_records import is_live
from otel_ml_service.stored_runs.remove_run import remove_run
from otel_ml_service.stored_runs.run_folders import RunFolder, run_folders
from otel_ml_service.stored_runs.unfinished import unfinished

__all__ = ["command"]

_UNITS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class _Age(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """A duration in hours, days or weeks."""

    name = "age"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        # click gives `convert` values of its own type, too.
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([hdw])", value.strip())
        if match is None:
            self.fail(f"{value!r} is not an age; expected hours, days or weeks such as 12h, 30d, 4w.", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


@click.command("gc", epilog="Examples: otel-ml gc --older-than 30d · otel-ml gc --keep 20 --yes")
@dir_option
@click.option("--keep", type=click.IntRange(0), help="Keep this many of the newest runs, remove the others.")
@click.option("--older-than", type=_Age(), metavar="AGE", help="Remove runs not written to for 12h, 30d, 4w, …")
@click.option("--undelivered", is_flag=True, help="Also runs that are not finished, or not in all of their backends.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run, for programs.")
def command(
    base: Path, keep: int | None, older_than: float | None, undelivered: bool, yes: bool, as_json: bool
) -> None:
    """Remove old runs from this machine's disk.

    Without an option: the oldest, until all runs together are below OTEL_ML_DIR_MAX. A run that is being recorded
    counts, and is never removed; one that is not finished, or not in all of its backends, only with --undelivered.
    What is in MLflow, in W&B or on another machine stays.
    """
    # Before anything is looked for: of a folder that is not there nothing could be removed, and that would be said.
    refuse_misspelled(base)
    limit = _limit() if keep is None and older_than is None else None
    output = screen(beside_json=as_json)
    found = [run for run in run_folders(base) if _is_ours(run, base)]
    # Asked again before each is removed: its job may go on meanwhile.
    runs = [run for run in found if not is_live(run)]
    sizes = _sizes(found, output)
    idle = sum(sizes[run.path] for run in runs)
    recorded = sum(sizes.values()) - idle
    # Runs that are being recorded stay, so the others have to fit into what these leave of the limit.
    doomed = _beyond(runs, keep, older_than) if limit is None else _beyond_size(runs, sizes, limit - recorded)
    needed = [] if undelivered else _needed(doomed, base)
    doomed = [run for run in doomed if run not in needed]
    rows = {run.path: _described(run, sizes[run.path]) for run in (*needed, *doomed)}  # before they are gone

    def tell(run: RunFolder, result: str, problem: str = "") -> None:
        if as_json:
            click.echo(json.dumps({**rows[run.path], "result": result, "problem": problem}))

    if needed:
        output.line(
            f"{plural(len(needed), 'run')} left alone, not finished or not in all backends: `otel-ml recover` "
            "delivers them, --undelivered removes them, too."
        )
    for run in needed:
        tell(run, "undelivered")
    if not doomed:
        live = len(found) - len(runs)
        beside = f", and {plural(live, 'run')} being recorded" if live else ""
        output.line(f"Nothing to remove: {plural(len(runs), 'run')}, {size(idle)} in {str(base)!r}{beside}.")
        _say_what_stays(idle + recorded, limit, output)
        return
    _print_table(output, doomed, sizes)
    total = size(sum(sizes[run.path] for run in doomed))
    # Beside JSON the question is asked on standard error: standard output is a program's.
    if not yes and not click.confirm(f"Remove {plural(len(doomed), 'run')} ({total})?", err=as_json):
        output.line("Nothing was removed.")
        for run in doomed:
            tell(run, "declined")
        return
    failed = _remove(doomed, output, tell, unfinished=undelivered)
    if failed:
        output.line(f"Removed {plural(len(doomed) - failed, 'run')} of {len(doomed)}.")
        raise click.exceptions.Exit(1)
    output.line(f"Removed {plural(len(doomed), 'run')}, {total}.")
    _say_what_stays(idle + recorded - sum(sizes[run.path] for run in doomed), limit, output)


def _limit() -> int:
    """Return how many bytes all runs may take.

    Raises:
        ConfigError: the setting cannot be read; its default would remove what somebody wants to keep.
    """
    setting = DIR_MAX.read()
    if setting.problem:
        raise ConfigError(setting.problem)
    return setting.value


def _say_what_stays(left: int, limit: int | None, output: Screen) -> None:
    if limit is not None and left > limit:
        why = "it is being recorded, or not in all backends"
        output.line(f"What stays takes {size(left)}, more than {size(limit)} (OTEL_ML_DIR_MAX): {why}.")


def _sizes(runs: Sequence[RunFolder], output: Screen) -> dict[Path, int]:
    found = {}
    with output.working() as now:
        for run in runs:
            now(f"measuring {run.id}")
            found[run.path] = run.size()
    return found


def _needed(runs: Sequence[RunFolder], base: Path) -> list[RunFolder]:
    """Return those of the runs that are not finished, or not in all of their backends."""
    # Resolved, as a run's folder may come from what its processes said, and need not be spelled as `base` is.
    kept = {run.folder.path.resolve() for run in unfinished(base)}
    return [run for run in runs if run.path.resolve() in kept]


def _described(run: RunFolder, count: int) -> dict[str, object]:
    """Return a run as `otel-ml runs --json` does, as far as a run that goes needs it."""
    about = {"id": run.id, "name": run.name, "experiment": run.experiment}
    return {**about, "modified": run.modified, "bytes": count, "dir": str(run.path)}


def _print_table(output: Screen, runs: Sequence[RunFolder], sizes: Mapping[Path, int]) -> None:
    now = time.time()
    output.table(
        ["name", "experiment", "id", "last written", "size"],
        [[run.name, run.experiment, run.id, f"{age(now - run.modified)} ago", size(sizes[run.path])] for run in runs],
        right=["size"],
        shortened=["name", "experiment"],
    )


def _is_ours(run: RunFolder, base: Path) -> bool:
    """Whether a service has made the folder, below `base` itself: a link leads to what others look after."""
    # `--dir` itself may be a link.
    is_linked = run.path.is_symlink() or (run.path.parent.is_symlink() and run.path.parent != base)
    return not is_linked and (run.path / "state").is_dir()


def _remove(
    runs: Sequence[RunFolder], output: Screen, tell: Callable[[RunFolder, str, str], None], *, unfinished: bool
) -> int:
    """Remove folders of runs, and say of each what became of it; return how many are still there."""
    failed = 0
    with output.working() as now:
        for run in runs:
            now(f"removing {run.id}")
            # It looks once more whether a service has the run open: the question may have stood for hours.
            problem = remove_run(run, unfinished=unfinished)
            if problem:
                failed += 1
                output.note(problem)
            tell(run, "failed" if problem else "removed", problem)
    return failed


def _beyond(runs: Sequence[RunFolder], keep: int | None, older_than: float | None) -> list[RunFolder]:
    """Return the runs (given newest first) that the options condemn."""
    # With both options a run goes that is neither among the newest nor younger than the age.
    kept = runs[: keep or 0]
    oldest = time.time() - (older_than or 0.0)
    return [run for run in runs if run not in kept and (older_than is None or run.modified < oldest)]


def _beyond_size(runs: Sequence[RunFolder], sizes: dict[Path, int], most: int) -> list[RunFolder]:
    doomed, total = [], 0
    for run in runs:
        # What goes counts, too, so all that is older than the first run that does not fit goes with it.
        total += sizes[run.path]
        if total > most:
            doomed.append(run)
    return doomed
