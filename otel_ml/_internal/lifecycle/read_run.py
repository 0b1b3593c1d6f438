"""Read a run back from its folder: for tests and checks in CI."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from otel_ml._internal.error_reporting import refusing
from otel_ml._internal.lifecycle.run import Run
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.signature import public
from otel_ml.config import Config
from otel_ml.exceptions import OtelMLError
from otel_ml.explanation import explained
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml.wire.columns import Column, believed, beside
from otel_ml.wire.folder_content import inside
from otel_ml.wire.published_name import ascii_spelling, sanitized
from otel_ml.wire.readable_name import readable_name
from otel_ml.wire.step_line import MetricFinder

__all__ = ["Series", "metric_rows", "metrics_file", "name_of", "read", "record_lines"]

Series = tuple[list[int], list[float]]
"""Steps, ascending, and the value at each."""

_NAMED = 20
"""Metrics that a message lists."""

Newest = dict[int, tuple[int, int, float]]
"""Step → (attempt, seq, value)."""


@public
@refusing(OtelMLError)
def read(run: Run | str | PathLike[str], *names: str) -> Mapping[str, Series]:
    """Return {published name: (steps, values)} of a run, from the file that exporter `jsonl` wrote.

    A correction supersedes the value it amends; of a step done in several attempts, the newest counts. Of a name that
    is on two axes, the axis `step` keeps it, else the one that had it first; on the other it is `<name>/over_<axis>`.
    A name that is published otherwise than it was written, as in runs of older versions, is found by both.

    Args:
        run: a `Run`, its folder, its `metrics.jsonl`, or of a run below `OTEL_ML_DIR` its id, its name,
            either after `"experiment/"`, or `"latest"`: the one that was written to last, also of several of a name.
        names: of the metrics to read, as they were written; all without any. Of a long run a few take half of the
            time and a fraction of the memory. What the run does not have is not there.

    Raises:
        OtelMLError: there is no such file; says where it was looked for.
    """
    newest: dict[str, dict[str, Newest]] = {}
    for name in names:
        if not isinstance(name, str):
            raise OtelMLError(f"read(): expected names of metrics, got {safe_repr(name)}.", slug="no-metrics")
    path = metrics_file(run)
    covered = _read_columns(path, names, newest)
    for row in _rows_with(path, names, covered) if names else metric_rows(path, covered):
        # The attempt tells first; within one, the row that was written later.
        rank = (int(row.get("attempt", 0)), int(row.get("seq", 0)))
        axis, step = str(row.get("axis", DEFAULT_AXIS)), int(row["step"])
        for name, value in row.get("values", {}).items():
            steps = newest.setdefault(name, {}).setdefault(axis, {})
            before = steps.get(step)
            # Of equal ones the line that stands later in the file counts.
            if before is None or before[:2] <= rank:
                steps[step] = (*rank, float(value))
    for name in list(newest):  # what a run recorded before and after names stayed as they were written is one series
        earlier = newest.pop(ascii_spelling(name), {}) if ascii_spelling(name) != name else {}
        for axis, steps in earlier.items():
            # At a step that both spellings have, the value under the name as it was written counts.
            newest[name][axis] = {**steps, **newest[name].get(axis, {})}
    found = {shown: steps for name, axes in newest.items() for shown, steps in _by_axis(name, axes)}
    return _Found(
        (name, (sorted(steps), [steps[step][2] for step in sorted(steps)])) for name, steps in sorted(found.items())
    )


def _read_columns(path: Path, names: Sequence[str], newest: dict[str, dict[str, Newest]]) -> int:
    """Read what is kept by series beside the file; return of how many of its bytes that is."""
    covered, wanted = 0, set(_spellings(names))
    if not beside(path).is_file():
        return 0
    with suppress(OSError, ValueError, TypeError), beside(path).open("rb") as file:
        for chunk in believed(path, file):
            keys = [key for key in chunk.series if not wanted or key.name in wanted]
            for key, column in [(key, chunk.column(key)) for key in keys]:
                _take(column, newest.setdefault(key.name, {}).setdefault(key.axis, {}))
            covered = chunk.end
    return covered


def _take(column: Column, steps: Newest) -> None:
    for step, value, seq, attempt in zip(column.steps, column.values, column.seqs, column.attempts, strict=True):
        before = steps.get(step)
        if before is None or before[:2] <= (attempt, seq):
            steps[step] = attempt, seq, value


class _Found(dict[str, Series]):
    """Series by published name, and by the name that was written where that is published otherwise."""

    def __missing__(self, name: str) -> Series:
        published = self._published(name)
        if published == name:
            near = difflib.get_close_matches(name, self, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            here = _listed(list(self)) or "none yet; its steps may still be on their way"
            raise KeyError(explained(f"The run has no metric {name!r}.{hint} Here are: {here}.", "unknown-metric"))
        return self[published]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(self._published(name))

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(self._published(name), default)

    def _published(self, name: str) -> str:
        spellings = (name, sanitized(name), ascii_spelling(name))
        return next((one for one in spellings if super(_Found, self).__contains__(one)), name)


def _listed(names: Sequence[str]) -> str:
    own = [name for name in names if "otel_ml/" not in name]
    return ", ".join(own[:_NAMED]) + (", …" if len(own) > _NAMED else "")


def _by_axis(name: str, axes: Mapping[str, Newest]) -> Iterator[tuple[str, Newest]]:
    keeps = DEFAULT_AXIS if DEFAULT_AXIS in axes else next(iter(axes))
    for axis, steps in axes.items():
        yield name if axis == keeps else sanitized(f"{name}/over_{axis}"), steps


def metrics_file(run: Run | str | PathLike[str]) -> Path:
    """Return the file of a run that `read()` reads; the argument is that of `read()`."""
    if isinstance(run, Run):
        if run.dir is None:
            raise OtelMLError(
                f"The folder of run {run.id!r} is where the service is. Pass that folder to read().", slug="no-metrics"
            )
        given = run.dir
    else:
        given = _as_path(run)
    instances = sorted(given.glob("jsonl-*/metrics.jsonl"))  # of a service with `jsonl/<name>` in its configuration
    candidates = [given, given / "metrics.jsonl", given / "jsonl" / "metrics.jsonl", *instances]
    # `<id>`, `<name>`, or either after `<experiment>/`.
    if len(given.parts) <= 2:
        candidates += _below(Config.from_env().dir, str(given))
    for path in candidates:
        if path.is_file():
            return path
    if isinstance(run, Run):
        raise OtelMLError(
            f"No metrics of run {run.id!r} yet: {str(given / 'metrics.jsonl')!r} is not there. Exporter 'jsonl' writes "
            "it when the first step closes: read it a moment later, or begin the run with that exporter.",
            slug="no-metrics",
        )
    looked = ", ".join(str(path) for path in candidates[1:])
    raise OtelMLError(
        f"No metrics of {str(given)!r}: looked for {looked}, and for such a run in {str(Config.from_env().dir)!r}. "
        "Exporter 'jsonl' writes them. Pass a run, its folder, id or name, or 'latest'; `otel-ml runs` lists them.",
        slug="no-metrics",
    )


def _as_path(run: str | PathLike[str]) -> Path:
    try:
        given = Path(fspath(run))
        given.exists()  # a name that is too long, or no text of the file system's, raises
    except Exception as error:
        raise OtelMLError(
            f"read(): expected a run, its folder, id or name, or 'latest', got {safe_repr(run)}. `otel-ml runs` lists "
            "them.",
            slug="no-metrics",
        ) from error
    return given


def _below(base: Path, run: str) -> list[Path]:
    """Return the files of the runs that are meant, the one that was written to last first; an id before a name."""
    written: dict[Path, int] = {}
    for folder in (path for experiment in inside(base) for path in inside(experiment)):
        with suppress(OSError):  # there is none, or it has just been removed
            file = folder / "metrics.jsonl"
            written[file] = file.stat().st_mtime_ns
    newest_first = sorted(written, key=written.__getitem__, reverse=True)
    if run == "latest":
        return newest_first
    folders = {path: path.parent for path in newest_first}
    by_id = [path for path, folder in folders.items() if _is_meant(run, folder, folder.name)]
    return by_id or [path for path, folder in folders.items() if _is_meant(run, folder, name_of(folder))]


def _is_meant(run: str, folder: Path, name: str) -> bool:
    return run in {name, f"{folder.parent.name}/{name}"}


def name_of(folder: Path) -> str:
    """Return what the run of a folder is called."""
    try:
        return (folder / "state" / "name").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return readable_name(folder.name)


def _spellings(names: Sequence[str]) -> Sequence[str]:
    return list(dict.fromkeys(one for name in names for one in (name, sanitized(name), ascii_spelling(name))))


def _rows_with(path: Path, names: Sequence[str], begin: int) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of steps that have one of the metrics, with these only, from this byte on."""
    finders = [MetricFinder(name) for name in _spellings(names)]
    with path.open("rb") as file:
        file.seek(begin)
        for line in file:
            if not line.endswith(b"\n"):
                return  # being written
            found = {finder.name: point for finder in finders if (point := finder.find(line)) is not None}
            if found:
                # Points of one line differ in their value alone.
                place = next(iter(found.values()))._asdict()
                yield {**place, "values": {name: point.value for name, point in found.items()}}


def metric_rows(path: Path, begin: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of steps that are complete in the file, from this byte on."""
    for row in record_lines(path, begin):
        if "step" in row and isinstance(row.get("values"), dict):
            yield row


def record_lines(path: Path, begin: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the records that are complete in the file, from this byte on."""
    with path.open("rb") as file:
        file.seek(begin)
        for line in file:
            if not line.endswith(b"\n"):
                return  # being written
            row = json.loads(line)
            if isinstance(row, dict):
                yield row
