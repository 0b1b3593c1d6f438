"""The run's row in the HPARAMS tab: parameters, metrics of the summary, how the run ended.

TensorBoard reads these from the metadata of a tag, and only of the tag's first value. So that later parameters and a
run that goes on after its end are shown too, they are not appended to: each change writes a small event file of its
own anew, under the next number, and removes the one before.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from otel_ml.flatten import leaves
from otel_ml.wire.protobuf import double, field, integer, text
from otel_ml_exporters.backends.tensorboard.event_file import frame
from otel_ml_exporters.backends.tensorboard.exporter_state import ExporterState
from otel_ml_exporters.backends.tensorboard.summary import event, plugin_value, version_event
from otel_ml_exporters.records import JsonValue, RunInfo

__all__ = ["SUMMARY_PREFIX", "flat_params", "write_hparams"]

SUMMARY_PREFIX = "summary/"
"""Before the tags of the summary's values: a summary may have the name of a series, whose tag must not step back."""

_STRING, _BOOL, _NUMBER = 1, 2, 3  # hparams.DataType
# TensorBoard knows no run that was killed.
_STATUS = {"finished": 1, "failed": 2, "killed": 2}  # hparams.Status: SUCCESS, FAILURE
_EMPTY_TENSOR = integer(1, 1) + field(2, field(2, integer(1, 0)))  # float, shape (0,)
_FILE = "events.out.tfevents.0.hparams"  # sorts before the run's own file: loaders that leave a file go on to that one


def flat_params(params: Mapping[str, JsonValue]) -> dict[str, bool | float | str]:
    """Return nested parameters under dotted keys, as numbers, truth values or text.

    Examples:
        >>> flat_params({"optimizer": {"lr": 0.1, "betas": [0.9, 0.99]}, "amp": True, "seed": None})
        {'optimizer.lr': 0.1, 'optimizer.betas': '[0.9, 0.99]', 'amp': True, 'seed': 'None'}
    """
    return {name: _plain(value) for name, value in leaves(params)}


def _plain(value: JsonValue) -> bool | float | str:
    # A truth value is an int of Python, too, and stays one in the tab.
    if isinstance(value, (bool, str)):
        return value
    with contextlib.suppress(OverflowError):  # a whole number that no double can hold
        if isinstance(value, (int, float)) and math.isfinite(value):
            return float(value)
    return json.dumps(value) if isinstance(value, (Sequence, Mapping)) else str(value)


def write_hparams(folder: Path, run: RunInfo, notes: ExporterState) -> None:
    """Write the run's row as version `notes.version` and remove older ones.

    The version is part of the file's name, so that a TensorBoard that is looking on finds the new file. It shows every
    scalar as a metric of the run until there is a summary.
    """
    values = [_value("session_start_info", 3, _start(run, notes.params))]
    if notes.metrics:
        values.append(_value("experiment", 2, _experiment(notes.params, notes.metrics)))
    if notes.end is not None:
        status, time = notes.end
        values.append(_value("session_end_info", 4, integer(1, _STATUS[status]) + double(2, time)))
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{_FILE}.{notes.version}"
    temporary = folder / "hparams.part"
    temporary.write_bytes(frame(version_event(run.started_at)) + frame(event(run.started_at, 0, b"".join(values))))
    temporary.replace(new)
    # Only now: killed in between, both are there, and the newer one has all.
    for old in folder.glob(f"{_FILE}.*"):
        if old != new:
            old.unlink(missing_ok=True)


def _value(tag: str, number: int, message: bytes) -> bytes:
    return plugin_value(f"_hparams_/{tag}", "hparams", _EMPTY_TENSOR, content=field(number, message))


def _start(run: RunInfo, params: Mapping[str, bool | float | str]) -> bytes:
    # Numbers of fields are those of `tensorboard/plugins/hparams/{api,plugin_data}.proto`.
    entries = b"".join(field(1, text(1, name) + field(2, _protobuf_value(value))) for name, value in params.items())
    return entries + text(4, run.id) + double(5, run.started_at)


def _protobuf_value(value: bool | float | str) -> bytes:
    """Return a google.protobuf.Value."""
    if isinstance(value, bool):
        return integer(4, value)
    if isinstance(value, str):
        return field(3, value.encode("utf-8", "replace"))  # an empty one, too: it says which kind the value is of
    return double(2, value)


def _experiment(params: Mapping[str, bool | float | str], metrics: Iterable[str]) -> bytes:
    columns = b"".join(field(4, text(1, name) + integer(4, _type(value))) for name, value in params.items())
    shown = b"".join(field(5, field(1, text(2, SUMMARY_PREFIX + name)) + text(3, name)) for name in metrics)
    return columns + shown


def _type(value: bool | float | str) -> int:
    if isinstance(value, bool):
        return _BOOL
    return _STRING if isinstance(value, str) else _NUMBER
