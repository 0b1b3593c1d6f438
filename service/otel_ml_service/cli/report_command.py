"""`otel-ml report RUN…`: one HTML file of one run, or of several side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from otel_ml.exceptions import OtelMLError
from otel_ml.quantities import size
from otel_ml_service.cli.parameters import RUN, dir_option
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.cli.whole_file import whole_file
from otel_ml_service.report.contents import read_contents, without_collecting
from otel_ml_service.report.named_steps import named_steps
from otel_ml_service.report.page import page
from otel_ml_service.stored_runs.run_folders import LATEST, RunFolder, find

__all__ = ["ReportError", "command"]


class ReportError(OtelMLError):
    """The file cannot be written."""

    slug = "report-not-written"


@click.command("report", epilog="Examples: otel-ml report latest · otel-ml report run-4 run-8 --out scaling.html")
@click.argument("runs", metavar="[RUN]...", type=RUN, nargs=-1)
@dir_option
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; by default report.html in the run's folder, or here for several runs.",
)
@click.option(
    "--attach",
    is_flag=True,
    help="Also make the file an artifact, 'report', of each RUN, in the backends it was written to. They must be over.",
)
@click.option(
    "--timeout", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds --attach may take for a run."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def command(runs: Sequence[str], base: Path, out: Path | None, attach: bool, timeout: float, as_json: bool) -> None:
    """Write one HTML file that shows RUNs (the newest by default): curves, timers, slow ranks, samples, files.

    It needs no network and no server: send it to somebody, or open it on a phone.
    """
    output = screen()
    folders: list[RunFolder] = []
    for folder in (find(text, base) for text in (runs or [LATEST])):
        # One run may be named twice, as by its id and `latest`.
        if folder not in folders:
            folders.append(folder)
    with without_collecting(), output.working() as now:
        content = _page(folders, now)
    file = out or (folders[0].path / "report.html" if len(folders) == 1 else Path("report.html"))
    try:
        # What a name holds that is not a character (half a surrogate pair) must not cost the page.
        whole = content.encode("utf-8", errors="replace")
        with whole_file(file) as place:
            place.write_bytes(whole)
    except OSError as error:
        raise ReportError(
            f"The report cannot be written to {str(file)!r}: {error.strerror or error}. Write it elsewhere with --out."
        ) from error
    count = len(whole)
    output.note(f"{size(count)}; open it in any browser")
    # Behind the file, which is what is attached.
    attached = {folder: _attach(folder, file, timeout, output) for folder in folders if attach}
    if as_json:
        rows = [_described(folder, attached.get(folder, ())) for folder in folders]
        click.echo(json.dumps({"file": str(file), "bytes": count, "runs": rows}))
    else:
        output.line(str(file))


def _page(folders: Sequence[RunFolder], now: Callable[[str], None]) -> str:
    contents = []
    for folder in folders:
        now(f"reading {folder.id}")
        contents.append(read_contents(folder))
    now("drawing")
    return page(contents, named_steps(folders[0], contents[0]) if len(folders) == 1 else {})


def _described(run: RunFolder, exporters: Sequence[str]) -> dict[str, object]:
    return {"id": run.id, "experiment": run.experiment, "attached_to": list(exporters)}


def _attach(folder: RunFolder, file: Path, timeout: float, output: Screen) -> tuple[str, ...]:
    from otel_ml_service.stored_runs.attach_artifact import attach  # a service is not needed to write a file

    with output.working() as now:
        now(f"attaching the report to {folder.id}")
        exporters = attach(folder, file, name="report", kind="report", timeout=timeout)
    output.note(f"artifact 'report' of {folder.id}, in {', '.join(exporters)}")
    return exporters
