"""Texts, tables, images, audio, histograms and files → W&B's own types."""

from __future__ import annotations

import html
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otel_ml_exporters.backends.wandb.names import identifier
from otel_ml_exporters.records import Artifact, Audio, HistogramValue, Image, JsonValue, Table, Text

__all__ = ["MAX_BINS", "artifact", "media"]

MAX_BINS = 512
"""`wandb.Histogram.MAX_LENGTH`; one more and the whole row is lost."""


def media(record: Text | Table | Image | Audio | HistogramValue, folder: Path) -> Any:
    """Return the value to log; files it needs until then are written to `folder`."""
    import wandb

    match record:
        case Text():
            return wandb.Html(f"<pre>{html.escape(record.text)}</pre>", inject=False)
        case Table():
            # W&B's tables hold plain values: what is nested goes in as JSON.
            rows = [[_cell(cell) for cell in row] for row in record.rows]
            # Else the first row decides the type of a column, and one cell of another type costs the table.
            return wandb.Table(columns=list(record.columns), data=rows, allow_mixed_types=True)
        case Image():
            path = folder / f"{record.seq}.png"
            path.write_bytes(record.png)
            return wandb.Image(str(path), caption=record.caption)
        case Audio():
            path = folder / f"{record.seq}.wav"
            path.write_bytes(record.wav)
            return wandb.Audio(str(path), sample_rate=record.sample_rate, caption=record.caption)
        case HistogramValue():
            fitting = record.merged(MAX_BINS)
            return wandb.Histogram(np_histogram=(list(fitting.counts), list(fitting.edges)))


def artifact(files: Sequence[Artifact], *, continued: bool) -> Any:
    """Return one W&B artifact of all files of one name; `continued` adds to the version logged just before."""
    import wandb

    first = files[0]
    described = {file.path_in: {"uri": file.uri, "size": file.size, "sha256": file.sha256} for file in files}
    made = wandb.Artifact(
        identifier(first.name, 128),
        identifier(first.type or "artifact", 128),
        metadata={"name": first.name, "step": first.step, "files": described},
        incremental=continued,
    )
    for file in files:
        if file.local is not None and file.local.is_file():
            # Immutable: uploaded from where it is instead of from a copy.
            made.add_file(str(file.local), name=file.path_in, policy="immutable", skip_cache=True)
        else:
            _add_reference(made, file)
    return made


def _add_reference(made: Any, file: Artifact) -> None:
    with tempfile.TemporaryDirectory(prefix="otel-ml-") as folder:
        path = Path(folder, "reference.json")
        path.write_text(json.dumps({"uri": file.uri, "size": file.size, "sha256": file.sha256}))
        made.add_file(str(path), name=f"{file.path_in}.reference.json", policy="mutable", skip_cache=True)


def _cell(value: JsonValue) -> Any:
    return json.dumps(value, default=str) if isinstance(value, (list, tuple, dict)) else value
