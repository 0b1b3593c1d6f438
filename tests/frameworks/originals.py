"""A program without otel_ml, and what W&B's client and TensorBoard's writer wrote for it by themselves."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from otel_ml_exporters.backends.wandb.transaction_log import records
from tests.e2e.jobs import Scalars

__all__ = [
    "as_tensorboard_keeps_it",
    "histograms_of_wandb",
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


def scalars_of_wandb(folder: Path, over: Mapping[str, str] = MappingProxyType({})) -> Scalars:
    """Return key → step → value of all numbers in the histories of the offline runs below a folder.

    Args:
        folder: where W&B has written.
        over: what a key, or all that match, are drawn over; what none of it matches is at W&B's own step.
    """
    shown: Scalars = {}
    own = {*_OF_WANDB, *over.values()}
    for _, row in _history(folder):
        for key, value in row.items():
            if isinstance(value, (int, float)) and key not in own:
                index = next((row[metric] for match, metric in over.items() if fnmatchcase(key, match)), row["_step"])
                shown.setdefault(key, {})[int(index)] = float(value)
    return shown


def tables_of_wandb(folder: Path) -> list[list[object]]:
    """Return key, W&B's step, columns and rows of all tables in the histories of the offline runs below a folder."""
    shown: list[list[object]] = []
    for files, row in _history(folder):
        for key, value in row.items():
            if isinstance(value, dict) and value.get("_type") == "table-file":
                table = json.loads((files / value["path"]).read_text())
                shown.append([key, row["_step"], table["columns"], table["data"]])
    return shown


def histograms_of_wandb(folder: Path) -> dict[str, dict[int, tuple[list[float], list[float]]]]:
    """Return key → W&B's step → (counts, edges) of all histograms of the offline runs below a folder."""
    shown: dict[str, dict[int, tuple[list[float], list[float]]]] = {}
    for _, row in _history(folder):
        for key, value in row.items():
            if isinstance(value, dict) and value.get("_type") == "histogram":
                shown.setdefault(key, {})[row["_step"]] = (value["values"], value["bins"])
    return shown


def _history(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield (the folder of a run's files, a row) of all rows below a folder."""
    for file in sorted(folder.rglob("offline-run-*/run-*.wandb")):
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
                yield file.parent / "files", row


def as_tensorboard_keeps_it(values: Scalars) -> Scalars:
    """Return the values in 32 bits, as TensorBoard keeps them."""
    return {
        name: {step: struct.unpack("f", struct.pack("f", value))[0] for step, value in at.items()}
        for name, at in values.items()
    }
