"""Our records → SwanLab's protobuf messages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from otel_ml.exceptions import MissingDependencyError
from otel_ml_exporters.backends.swanlab.keys import identifier
from otel_ml_exporters.records import Image, RunInfo, RunStatus, Text

__all__ = ["Messages"]

_START, _FINISH, _CONFIG = -1, -2, -3
"""Numbers that SwanLab gives to messages of which there is one."""

_MOST_TAGS = 30
_LONGEST_TEXT = 512
_LONGEST_NOTES = 1024
_ERRORS = {"failed": "the run failed", "killed": "the run was killed"}


class Messages:
    """Makes the messages of one run.

    Args:
        folder: of the run; media and config are files in it.

    Raises:
        MissingDependencyError: SwanLab is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from swanlab.proto.swanlab.metric.column.v1 import column_pb2
            from swanlab.proto.swanlab.metric.data.v1 import data_pb2
            from swanlab.proto.swanlab.record.v1 import record_pb2
            from swanlab.proto.swanlab.run.v1 import run_pb2
            from swanlab.proto.swanlab.save.v1 import save_pb2
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                "Exporter 'swanlab'", package=(error.name or "swanlab").partition(".")[0], extra="swanlab"
            ) from error
        self._folder = folder
        self._column, self._data, self._record = column_pb2, data_pb2, record_pb2
        self._run, self._save = run_pb2, save_pb2

    def start(self, run: RunInfo) -> bytes:
        """Return the first message of a file."""
        started = self._run.StartRecord(
            project=identifier(run.experiment),
            name=(run.name or run.id)[:_LONGEST_TEXT],
            description=(run.notes or "")[:_LONGEST_NOTES],
            tags=[tag[:_LONGEST_TEXT] for tag in run.tags[:_MOST_TAGS]],
            id=identifier(run.id),
            resume=self._run.RESUME_MODE_ALLOW,
        )
        _set_time(started.started_at, run.started_at)
        return self._message(_START, run.started_at, start=started)

    def scalar(self, number: int, key: str, step: int, time: float, value: float) -> bytes:
        """Return a value at a step."""
        scalar = self._data.ScalarRecord(
            key=key, step=step, type=self._column.COLUMN_TYPE_SCALAR, value=self._data.ScalarValue(number=value)
        )
        _set_time(scalar.timestamp, time)
        return self._message(number, time, scalar=scalar)

    def media(self, number: int, key: str, record: Text | Image) -> bytes:
        """Write a text or an image to its file, whose name a replay repeats, and return the message that names it."""
        step = record.step or 0
        if isinstance(record, Text):
            kind, content, caption, suffix, column = "text", record.text.encode(), None, "txt", "COLUMN_TYPE_TEXT"
        else:
            kind, content, caption, suffix, column = "image", record.png, record.caption, "png", "COLUMN_TYPE_IMAGE"
        # The name has the content in it, so a replay writes the same file, and two images of a step are two.
        digest = hashlib.sha256(content).hexdigest()
        file = self._folder / "media" / kind / f"{step:03d}-{digest[:8]}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        item = self._data.MediaItem(filename=file.name, sha256=digest, size=len(content), caption=caption or "")
        media = self._data.MediaRecord(
            key=key, step=step, type=getattr(self._column, column), value=self._data.MediaValue(items=[item])
        )
        _set_time(media.timestamp, record.time)
        return self._message(number, record.time, media=media)

    def config(self, params: Mapping[str, object], time: float) -> bytes:
        """Write all parameters to `config.yaml`, and return the message that names it."""
        file = self._folder / "files" / "config.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {key: {"value": value, "desc": "", "sort": at} for at, (key, value) in enumerate(params.items())}
        file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
        saved = self._save.SaveRecord(
            name="config", source_path=file.absolute().as_posix(), type=self._save.SAVE_TYPE_CONFIG
        )
        return self._message(_CONFIG, time, save=saved)

    def finish(self, status: RunStatus) -> bytes:
        """Return the last message of a run that has ended."""
        states = {
            "finished": self._run.RUN_STATE_FINISHED,
            "failed": self._run.RUN_STATE_CRASHED,
            "killed": self._run.RUN_STATE_ABORTED,
        }
        finished = self._run.FinishRecord(state=states[status.status], error=_ERRORS.get(status.status, ""))
        _set_time(finished.finished_at, status.time)
        return self._message(_FINISH, status.time, finish=finished)

    def _message(self, number: int, time: float, **content: Any) -> bytes:
        message = self._record.Record(num=number, **content)
        _set_time(message.timestamp, time)
        serialized: bytes = message.SerializeToString()
        return serialized


def _set_time(stamp: Any, seconds: float) -> None:
    stamp.FromNanoseconds(round(seconds * 1e9))
