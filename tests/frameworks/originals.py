"""A program without otel_ml, and what W&B's client and TensorBoard's writer wrote for it by themselves."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from otel_ml_exporters.backends.wandb.transaction_log import records
from tests.e2e.jobs import Scalars

__all__ = [
    "as_tensorboard_keeps_it",
    "scalars_of_tensorboard",
    "scalars_of_wandb",
    "tables_of_wandb",
    "without_otel_ml",
]

_OF_WANDB = {"_step", "_timestamp", "_runtime"}


def without_otel_ml(program: Path, folder: Path, *first: str) -> Path:
    """Write the program without the lines that end with `# otel_ml`, and with these lines first; return where."""
    kept = [line for line in program.read_text().splitlines() if not line.endswith("# otel_ml")]
    place = next(number for number, line in enumerate(kept) if line.startswith("from __future__")) + 1
    written = folder / program.name
    written.write_text("\n".join([*kept[:place], *first, *kept[place:], ""]))
    return written


def scalars_of_tensorboard(folder: Path) -> Scalars:
    """Return tag → step → value of all event files below a folder."""
    shown: Scalars = {}
    for place in sorted({file.parent for file in folder.rglob("events.out.tfevents.*")}):
        events = EventAccumulator(str(place), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            shown.setdefault(tag, {}).update({event.step: event.value for event in events.Scalars(tag)})
    return shown


def scalars_of_wandb(folder: Path) -> Scalars:
    """Return key → W&B's step → value of all numbers in the history of the one offline run below a folder."""
    shown: Scalars = {}
    for step, key, value in _history(_file(folder)):
        if isinstance(value, (int, float)):
            shown.setdefault(key, {})[step] = float(value)
    return shown


def tables_of_wandb(folder: Path) -> list[list[object]]:
    """Return key, W&B's step, columns and rows of all tables in the history of the one offline run below a folder."""
    file = _file(folder)
    shown: list[list[object]] = []
    for step, key, value in _history(file):
        if isinstance(value, dict) and value.get("_type") == "table-file":
            table = json.loads((file.parent / "files" / value["path"]).read_text())
            shown.append([key, step, table["columns"], table["data"]])
    return shown


def _file(folder: Path) -> Path:
    [file] = folder.rglob("offline-run-*/run-*.wandb")
    return file


def _history(file: Path) -> Iterator[tuple[int, str, Any]]:
    for _, content in records(file):
        message = wandb_internal_pb2.Record.FromString(content)
        if message.WhichOneof("record_type") == "history":
            row: dict[str, Any] = {}
            for item in message.history.item:
                *outer, key = item.nested_key or [item.key]
                place = row
                for part in outer:
                    place = place.setdefault(part, {})
                place[key] = json.loads(item.value_json)
            yield from ((row["_step"], key, value) for key, value in row.items() if key not in _OF_WANDB)


def as_tensorboard_keeps_it(values: Scalars) -> Scalars:
    """Return the values in 32 bits, as TensorBoard keeps them."""
    return {
        name: {step: struct.unpack("f", struct.pack("f", value))[0] for step, value in at.items()}
        for name, at in values.items()
    }
