"""`otel-ml replay SOURCE --to …`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import click

from otel_ml.exceptions import ConfigError
from otel_ml.quantities import seconds, size
from otel_ml.wire.rendezvous import run_folder
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import Record, RunInfo, SpanBatch, StepRecord
from otel_ml_exporters.registry import split_name
from otel_ml_service.cli.figures import thousands
from otel_ml_service.cli.parameters import EXPORTERS, RUN, dir_option
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.config import ServiceConfig
from otel_ml_service.delivery.self_telemetry_filter import everything
from otel_ml_service.env import FULL, SELF
from otel_ml_service.exporter_makers import exporter_makers
from otel_ml_service.findings.wording import plural
from otel_ml_service.stored_runs.collector_recording import RecordedRun, is_recording, read_recording
from otel_ml_service.stored_runs.extra_reductions import ExtraReductions
from otel_ml_service.stored_runs.merge_late import Merged, with_late
from otel_ml_service.stored_runs.read_records import (
    RunInUseError,
    RunUnreadableError,
    is_live,
    is_over_within,
    whole_records,
)
from otel_ml_service.stored_runs.replay import Replayed, replay, run_info
from otel_ml_service.stored_runs.run_folders import RunFolder, find

__all__ = ["command"]

_TIMEOUT_S = 10.0
"""How long the service of a job that has just ended may take to leave: usually 3 s."""

_TAKE_SPANS = frozenset({"otlp", "traces"})

_READS = 5
"""How often a run is read anew that a service has opened meanwhile."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run to write again: what the exporters are started for, and its records with what came late.

    Attributes:
        spans_file: its `spans.jsonl`, which may have spans that no record has; None of a recording.
    """

    info: RunInfo
    merged: Merged
    spans_file: Path | None = None

    @property
    def records(self) -> Sequence[Record]:
        return self.merged.records

    def spans_left(self) -> int:
        """Return how many spans only `spans.jsonl` has: all without `run.db`, else what the disk limit took."""
        if self.spans_file is None or not self.spans_file.exists():
            return 0
        with self.spans_file.open("rb") as lines:
            return max(
                0, sum(1 for _ in lines) - sum(len(one.spans) for one in self.records if isinstance(one, SpanBatch))
            )


@click.command("replay", epilog="Example: otel-ml replay latest --to wandb,mlflow")
@click.argument("source", type=RUN)
@click.option("--to", "exporters", type=EXPORTERS, required=True, help="Exporters, comma-separated.")
@dir_option
@click.option(
    "--experiment", metavar="NAME", help="Write under another experiment: a W&B project, an MLflow experiment."
)
@click.option(
    "--reduce",
    "rules",
    metavar="NAME=REDUCTION",
    multiple=True,
    help="Of a recording: reduce NAME (a glob) so too, e.g. loss=rank. May be given several times.",
)
@click.option(
    "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="otel-ml.yaml with options of exporters."
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=120.0,
    show_default=True,
    help="Seconds without progress after which an exporter is given up.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run and exporter, for programs.")
def command(
    source: str,
    exporters: tuple[str, ...],
    base: Path,
    experiment: str | None,
    rules: tuple[str, ...],
    file: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Write SOURCE again, to the exporters given by --to.

    SOURCE is a run, its folder, its metrics.jsonl, or a recording of the Collector (collector-config/record.yaml), of
    which every run is written. Scalars that a backend holds already are not written again: a replay completes it.
    Values that came too late for the service (late.otlp) are merged in. Nothing of SOURCE is changed.
    """
    output = screen(beside_json=as_json)
    makers, left_out = exporter_makers(ServiceConfig.load(exporters=exporters, file=file).exporters)
    # All exporters that are named are wanted: with one of them missing nothing is written.
    if left_out.problems:
        raise ConfigError(*left_out.problems)
    runs = _runs_of(source, base, ExtraReductions(rules), output)
    takes_spans = any(split_name(name)[0] in _TAKE_SPANS for name in exporters)
    lost = False
    for found in runs:
        run = found if experiment is None else _moved(found, base, experiment)
        if takes_spans and (left := run.spans_left()):
            output.note(f"spans.jsonl: {plural(left, 'span')} left out: no record of the run has them.")
        results = _delivered(run, makers, timeout, output)
        _report(run, results, output)
        if as_json:
            _print_json(run, results)
        lost = lost or any(result.lost for result in results)
    if lost:
        raise click.exceptions.Exit(1)


def _moved(run: _Run, base: Path, experiment: str) -> _Run:
    # Beside the run's own folder: files of exporters go below the other experiment.
    folder = run_folder(base.absolute(), experiment, run.info.id)
    return replace(run, info=replace(run.info, experiment=experiment, dir=folder))


def _runs_of(source: str, base: Path, extra: ExtraReductions, output: Screen) -> list[_Run]:
    path = Path(source)
    # Before it is looked for as a run: a file of a Collector has no folder of a run around it.
    if is_recording(path):
        return [_recorded_run(run, base) for run in _recording(path, extra, output)]
    if extra:
        raise click.UsageError(
            f"--reduce needs a recording of the Collector (collector-config/record.yaml); "
            f"the records of {source!r} are reduced already."
        )
    run = find(source, base)
    merged = with_late(_recorded(run, output), run.path / "late.otlp")
    if merged.values:
        output.line(f"late.otlp: {plural(merged.values, 'value')} merged")
    if merged.left:
        output.line(f"late.otlp: not merged, the step's own records would be needed: {', '.join(merged.left)}")
    if merged.torn:
        output.note(f"late.otlp: its last {size(merged.torn)} are left out: the service was killed in mid-write.")
    if merged.damaged:
        them = "cannot be read and is left out" if merged.damaged == 1 else "cannot be read and are left out"
        output.note(f"late.otlp: {plural(merged.damaged, 'request')} {them}: the file is damaged.")
    return [_Run(run_info(run, merged.records), merged, run.path / "spans.jsonl")]


def _recorded(run: RunFolder, output: Screen) -> Sequence[Record]:
    """Return all records of a run, once no service has it open: `metrics.jsonl` alone may lack some."""
    for _ in range(_READS):
        _wait_until_over(run, output)
        with output.working() as now, suppress(RunInUseError):
            now(f"reading {run.id}")
            # All of it inside of the block: what a generator raises comes as it is read.
            return list(whole_records(run))
    raise _not_over(run)


def _wait_until_over(run: RunFolder, output: Screen) -> None:
    if is_live(run):
        output.note(f"The service of run {run.id} is still at work: waiting for it.")
    if not is_over_within(run, _TIMEOUT_S):
        raise _not_over(run)


def _not_over(run: RunFolder) -> RunUnreadableError:
    return RunUnreadableError(
        f"A service has run {run.id!r} open: it is being recorded, or ended less than a minute ago. "
        "Replay it when it is over."
    )


def _recording(path: Path, extra: ExtraReductions, output: Screen) -> Sequence[RecordedRun]:
    with output.working() as now:
        recording = read_recording(path, extra, _percent_of(path, now))
    if recording.unreadable:
        output.note(
            f"{plural(recording.unreadable, 'line')} of {str(path)!r} cannot be read and left out: "
            "the Collector was killed while it wrote, or the file is damaged."
        )
    return recording.runs


def _percent_of(path: Path, now: Callable[[str], None]) -> Callable[[int], None]:
    """Return what is told of each line how many bytes it has, and says each further percent."""
    size, read, said = path.stat().st_size, 0, -1

    def add(count: int) -> None:
        nonlocal read, said
        read += count
        # Only told of lines, so an empty file divides by nothing.
        percent = 100 * read // size
        if percent > said:
            said = percent
            now(f"reading {path.name}: {percent} %")

    return add


def _recorded_run(run: RecordedRun, base: Path) -> _Run:
    experiment = run.facts.experiment_name or "default"
    steps = (record.time for record in run.records if isinstance(record, StepRecord))
    # The time of the first step; of a recording without steps, that of what it begins with.
    started_at = min(steps, default=run.facts.started_at)
    info = RunInfo(
        id=run.id,
        experiment=experiment,
        name=run.facts.run_name or run.id,
        dir=run_folder(base.absolute(), experiment, run.id),
        started_at=started_at,
        tags=run.facts.tags,
        notes=run.facts.notes,
    )
    return _Run(info, Merged(run.records))


def _delivered(
    run: _Run, makers: Mapping[str, Callable[[], Exporter]], timeout: float, output: Screen
) -> Sequence[Replayed]:
    # The last `seq` and not the number of records, as progress is told in `seq`.
    count = thousands(run.records[-1].seq if run.records else 0)
    with output.working() as now:
        now(f"writing {run.info.id}: {count} records")

        def show(delivered: Mapping[str, int]) -> None:
            parts = (f"{name} {thousands(seq)}" for name, seq in delivered.items())
            now(f"writing {run.info.id}: {', '.join(parts)} of {count} records")

        def waits_for(name: str) -> None:
            most = f"{seconds(timeout)} without progress (--timeout)"
            output.note(f"{run.info.id}: waits for {name}, for at most {most}")

        select = everything if SELF.read().value == FULL else None
        return replay(run.records, run.info, makers, timeout=timeout, progress=show, failing=waits_for, select=select)


def _report(run: _Run, results: Sequence[Replayed], output: Screen) -> None:
    for result in results:
        lost = sum(result.lost.values())
        missing = f", without {plural(lost, 'value')} that it does not take: {', '.join(result.lost)}" if lost else ""
        where = f"→ {result.url}" if result.url else "given to the exporter"  # which may have no page of the run
        output.line(f"{result.name}: {plural(len(run.records), 'record')} {where}{missing}")


def _print_json(run: _Run, results: Sequence[Replayed]) -> None:
    merged = run.merged
    damage = {"torn_bytes": merged.torn, "damaged_requests": merged.damaged}
    late = {"values": merged.values, "not_merged": list(merged.left), **damage}
    about = {"id": run.info.id, "experiment": run.info.experiment, "dir": str(run.info.dir)}
    for result in results:
        found = {"exporter": result.name, "records": len(run.records), "lost": dict(result.lost), "url": result.url}
        click.echo(json.dumps({**about, **found, "late": late}))
