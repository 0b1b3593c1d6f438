"""The backend `file`: a line of JSON for each step, where verl writes it."""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.as_number import is_in_memory
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.printed import print_line
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.warn_once import reporter

__all__ = ["FileLogger"]


class FileLogger:
    """Writes `{"step": 1, "data": {"loss": 0.5}}` a line, in a thread of its own.

    The file is `VERL_FILE_LOGGER_PATH`, or `<VERL_FILE_LOGGER_ROOT or .>/<project>/<experiment>.jsonl`. A job that
    resumes appends to it; verl empties it.
    """

    def __init__(self, project_name: str, experiment_name: str) -> None:
        self.project_name = project_name
        self.experiment_name = experiment_name
        self.filepath: str = os.environ.get("VERL_FILE_LOGGER_PATH") or _default_path(project_name, experiment_name)
        self._is_closed = False
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="otel_ml-verl-file")
        print_line(f"Creating file logger at {os.path.abspath(self.filepath)}")  # noqa: PTH100 (verl's own line)
        # Nothing, so that the file is there from the start, as in verl, which opens it here.
        self._writer.submit(_append, Path(self.filepath), "")

    @reports_unrecordable
    def log(self, data: Mapping[str, Any], step: Any) -> None:
        """Write a step; what JSON cannot hold is left out, which is reported."""
        if self._is_closed:
            raise ValueError("finish() has closed its file")
        known = {name: _json_value(value) for name, value in data.items() if _is_readable(value)}
        if len(known) < len(data):
            left_out = ", ".join(safe_repr(name, 40) for name in data if name not in known)
            not_kept(
                f"FileLogger.log({left_out})", "JSON has no such values: its file is without them.", "FileLogger.log"
            )
        # In the caller's thread, as the program may change its values right after the call.
        line = json.dumps({"step": _json_value(step), "data": known}) + "\n"
        self._writer.submit(_append, Path(self.filepath), line)

    def finish(self) -> None:
        """Wait until all lines are written."""
        self._is_closed = True
        self._writer.shutdown()


def _default_path(project: str, experiment: str) -> str:
    root = Path(os.environ.get("VERL_FILE_LOGGER_ROOT", ".")).expanduser()
    return str(root / project / f"{experiment}.jsonl")


def _append(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        why = error.strerror or error
        reporter.say("dump-not-written", f"{str(path)!r} is not written: {why}. Make room, or choose another file.")


def _is_readable(value: Any) -> bool:
    """Whether there is anything of it that JSON takes; None is, as the `null` that verl writes for NaN, too."""
    return value is None or isinstance(value, numbers.Real) or _json_value(value) is not None


def _json_value(value: Any) -> Any:
    """Return what JSON takes, in place of numpy's; a tensor on a device is left out, reading it would wait for it."""
    # Before `Real`, of which bool and int are, too.
    if isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, numbers.Real):
        number = value.item() if hasattr(value, "item") else float(value)
        # JSON has neither NaN nor the infinities; orjson writes `null` for them.
        return number if number == number and abs(number) != float("inf") else None
    if isinstance(value, Mapping):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if isinstance(value, (Enum, UUID, date, time)) or (is_dataclass(value) and not isinstance(value, type)):
        return _json_value(_as_orjson_has(value))
    return _json_value(value.tolist()) if is_in_memory(value) and hasattr(value, "tolist") else None


def _as_orjson_has(value: Any) -> Any:
    """Return what the library with which verl writes takes, and Python's does not, as that library writes it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    return {one.name: getattr(value, one.name) for one in fields(value)}
