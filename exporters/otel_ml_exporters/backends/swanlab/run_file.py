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
from otel_ml_exporters.backends.swanlab.corrections import Corrections
from otel_ml_exporters.file_identity import OpenFile
from otel_ml_exporters.leveldb_log import framed

__all__ = ["HEADER", "Mark", "RunFile"]

_FORM = 2
"""Of the mark beside the file. The first one did not say it, and held the corrections itself: `amended`."""

# Mark, the lower half of the CRC-32 of "SwanLab", and the version of the form: what SwanLab's own writer begins with.
HEADER = struct.pack("<4sHB", b":SWL", 0xE1D6, 2)


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the file is good.

    Attributes:
        seq: of the last of our records that is in it.
        size: bytes up to there; what follows is torn, or the run's end.
        number: messages in it.
        corrected: bytes up to which the file of corrections is good.
        params: the config so far.
    """

    seq: int = 0
    size: int = 0
    number: int = 0
    corrected: int = 0
    params: Mapping[str, object] = field(default_factory=dict)


class RunFile(OpenFile):
    """One `run-<id>.swanlab`, and beside it its corrections, and the mark up to which both are good."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._mark_path = path.with_name("otel_ml.json")
        self.mark = Mark()
        self.corrections = Corrections(path.with_name("otel_ml.corrections"))

    def open(self) -> None:
        """Open the file and cut off what comes after the mark; without a usable mark it begins anew."""
        self.mark, amended = self._read_mark()
        file = self._open()
        is_whole = os.fstat(file).st_size >= self.mark.size and self.corrections.open(self.mark.corrected)
        if not is_whole or not self.mark.size:
            # Lost with the machine's power: the pipeline has all of it, and gives it again.
            self.mark, amended = Mark(), {}
        self.cut(self.mark.size)
        # Corrections of a mark of the first form go into the file beside it, and `_note` writes a mark of the second.
        self.corrections.add(amended.items())
        if amended:
            self._note(self.mark)
        if not self.mark.size:
            self.write(HEADER)
            self.mark = Mark(size=self.size)

    def append(self, messages: Iterable[bytes], mark: Mark) -> None:
        """Append serialized messages and new corrections, then note `mark`; its sizes are filled in here."""
        self._write_behind_mark(messages)
        self._note(mark)

    def end(self, message: bytes) -> None:
        """Append the run's end, behind the mark: the next start takes it away again."""
        self._write_behind_mark([message])

    @property
    def is_intact(self) -> bool:
        """Whether both files have their names, and all that was appended."""
        return super().is_intact and self.corrections.is_intact

    def sync(self) -> None:
        """Wait until the disk has what was appended."""
        self.corrections.sync()
        super().sync()

    def close(self) -> None:
        """Close both files; again is fine."""
        self.corrections.close()
        super().close()

    def _note(self, mark: Mark) -> None:
        mark = replace(mark, size=self.size, corrected=self.corrections.append(self.mark.corrected))
        unfinished = self._mark_path.with_suffix(".unfinished")
        # Behind both files: a kill before the new mark has its name leaves the old one, and what follows that is cut
        # off.
        unfinished.write_text(json.dumps({"form": _FORM, **asdict(mark)}), encoding="utf-8")
        unfinished.replace(self._mark_path)
        self.corrections.keep_new()
        self.mark = mark

    def _write_behind_mark(self, messages: Iterable[bytes]) -> None:
        self.cut(self.mark.size)  # what is behind it was not noted
        self.write(framed(messages, self.size))

    def _read_mark(self) -> tuple[Mark, dict[str, int]]:
        """Return the mark, and the corrections that one of the first form holds."""
        try:
            saved = json.loads(self._mark_path.read_text(encoding="utf-8"))
            require(self._mark_path, saved.pop("form", 1), _FORM)
            amended = saved.pop("amended", {})
            return Mark(**saved), dict(amended)
        except (FileNotFoundError, ValueError, TypeError):
            return Mark(), {}
