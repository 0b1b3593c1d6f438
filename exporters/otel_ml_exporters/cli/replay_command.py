"""`otel-ml replay SOURCE --to …`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click
from rich.progress import Progress

from otel_ml.exceptions import ConfigError
from otel_ml.wire.rendezvous import run_folder
from otel_ml_exporters.cli.figures import plural
from otel_ml_exporters.cli.parameters import EXPORTERS, RUN, dir_option
from otel_ml_exporters.cli.screen import screen
from otel_ml_exporters.config import ServiceConfig
from otel_ml_exporters.experiments.exporters import exporter_makers
from otel_ml_exporters.runs.folders import find
from otel_ml_exporters.runs.late import with_late
from otel_ml_exporters.runs.replay import replay, run_info
from otel_ml_exporters.runs.source import records

__all__ = ["command"]


@click.command("replay", epilog="Example: otel-ml replay latest --to wandb,mlflow")
@click.argument("source", type=RUN)
@click.option("--to", "exporters", type=EXPORTERS, required=True, help="Exporters, comma-separated.")
@dir_option
@click.option(
    "--experiment", metavar="NAME", help="Write under another experiment: a W&B project, an MLflow experiment."
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
def command(
    source: str, exporters: tuple[str, ...], base: Path, experiment: str | None, file: Path | None, timeout: float
) -> None:
    """Write SOURCE (a run, its folder, or its metrics.jsonl) again, to the exporters given by --to.

    Scalars that a backend holds already are not written again: a replay completes it. Values that came too late for
    the service (late.otlp) are merged in. Nothing of SOURCE is changed.
    """
    output = screen()
    run = find(source, base)
    merged = with_late(list(records(run)), run.path / "late.otlp")
    recorded = merged.records
    info = run_info(run, recorded)
    if experiment is not None:
        info = replace(info, experiment=experiment, dir=run_folder(base.absolute(), experiment, info.id))
    options = ServiceConfig.load(exporters=exporters, file=file).exporters
    makers, problems = exporter_makers(options)
    if problems:
        raise ConfigError(*problems)
    if merged.values:
        output.line(f"late.otlp: {plural(merged.values, 'value')} merged")
    if merged.left:
        output.line(f"late.otlp: not merged, the step's own records would be needed: {', '.join(merged.left)}")
    with Progress(console=output.err, transient=True, disable=not output.is_terminal) as bar:
        tasks = {name: bar.add_task(name, total=recorded[-1].seq if recorded else 0) for name in makers}

        def show(delivered: Mapping[str, int]) -> None:
            for name, seq in delivered.items():
                bar.update(tasks[name], completed=seq)

        results = replay(recorded, info, makers, timeout=timeout, progress=show)
    for result in results:
        lost = sum(result.lost.values())
        missing = f", {lost} not taken: {', '.join(result.lost)}" if lost else ""
        kept = plural(len(recorded) - lost, "record")
        output.line(f"{result.name}: {kept}{missing} → {result.url or info.dir}")
    if any(result.lost for result in results):
        raise click.exceptions.Exit(1)
