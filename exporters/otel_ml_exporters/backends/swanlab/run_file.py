"""The log of an offline run, appended to so that it can be gone on with.

SwanLab's own writer begins a new file in every process, keeps what it has in memory, and allows one run a process.
`swanlab sync` checks the header and the checksums.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from otel_ml.wire.versions import require
from otel_ml_exporters.file_identity import OpenFile
from otel_ml_exporters.leveldb_log import framed

__all__ = ["HEADER", "Mark", "RunFile"]

_FORM = 1
"""Of the mark beside the file; another one is to be written to it as `form`."""

# Mark, the lower half of the CRC-32 of "SwanLab", and the version of the form: what SwanLab's own writer begins with.
HEADER = struct.pack("<4sHB", b":SWL", 0xE1D6, 2)


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the file is good.

    Attributes:
        seq: of the last of our records that is in it.
        size: bytes up to there; what follows is torn, or the run's end.
        number: messages in it.
        amended: `<metric>@<step>` → how often it was amended.
        params: the config so far.
    """

    seq: int = 0
    size: int = 0
    number: int = 0
    amended: Mapping[str, int] = field(default_factory=dict)
    params: Mapping[str, object] = field(default_factory=dict)


class RunFile(OpenFile):
    """One `run-<id>.swanlab`, and beside it the mark up to which it is good."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._mark_path = path.with_name("otel_ml.json")
        self.mark = Mark()

    def open(self) -> None:
        """Open the file and cut off what comes after the mark; without a usable mark it begins anew."""
        self.mark = self._read_mark()
        file = self._open()
        if os.fstat(file).st_size < self.mark.size or not self.mark.size:
            self.mark = Mark()  # lost with the machine's power: the pipeline has all of it, and gives it again
        self.cut(self.mark.size)
        if not self.mark.size:
            self.write(HEADER)
            self.mark = Mark(size=self.size)

    def append(self, messages: Iterable[bytes], mark: Mark) -> None:
        """Append serialized messages, then note `mark`; its size is filled in here."""
        self._write_behind_mark(messages)
        mark = replace(mark, size=self.size)
        unfinished = self._mark_path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(mark)), encoding="utf-8")
        unfinished.replace(self._mark_path)
        self.mark = mark

    def end(self, message: bytes) -> None:
        """Append the run's end, behind the mark: the next start takes it away again."""
        self._write_behind_mark([message])

    def _write_behind_mark(self, messages: Iterable[bytes]) -> None:
        self.cut(self.mark.size)  # what is behind it was not noted
        self.write(framed(messages, self.size))

    def _read_mark(self) -> Mark:
        try:
            saved = json.loads(self._mark_path.read_text(encoding="utf-8"))
            require(self._mark_path, saved.pop("form", _FORM), _FORM)
            return Mark(**saved)
        except (FileNotFoundError, ValueError, TypeError):
            return Mark()
