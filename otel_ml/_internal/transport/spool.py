"""What was encoded and no one has acknowledged yet: an append-only file of this writer, bounded.

The file (`otel_ml.wire.spool_format`) is what survives a `kill -9`: the next process of the job on the host, the
embedded service or `otel-ml recover` sends it. In steady state it is truncated about once a second. Only the
worker's background thread calls anything here.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from otel_ml._internal.error_reporting import Say
from otel_ml._internal.transport.spool_segments import FileSegment, MemorySegment, Segment, TakenError
from otel_ml._internal.yield_interpreter import yield_interpreter
from otel_ml.wire.spool_format import FRAME, SUFFIX, Frame, Kind, encode_frame

__all__ = ["SPOOL_FULL", "SPOOL_UNREADABLE", "Held", "Lost", "PendingFrame", "Spool", "StepPoints"]

SPOOL_FULL, SPOOL_UNREADABLE, SPOOL_NOT_WRITTEN = "spool_full", "spool_unreadable", "spool_not_written"
"""Reasons under which losses are counted."""

StepPoints = tuple[str, int, int]
"""(axis, step, points): what a frame holds of a step, for the watermark if the frame has to go."""

SEGMENT_BYTES = 4 * 2**20
"""Size after which a new file begins: the oldest file is what goes when the spool is full."""

TOGETHER_BYTES = 64 * 2**10
"""Frames that are written at once: of a usual look all, of a large one each by itself, so that the bounds hold."""

_FOLDER_TRIES = 1000
"""How often the folder is made again, some 20 µs each: each time another service would have to end just then."""

MEMORY_BYTES = 16 * 2**20
"""Bound where no file can be written: an unwritable disk must not fill the memory instead."""

DISK_AGAIN_S = 1.0
"""How often a file is tried again while none can be written: what is in memory only dies with the process."""


Held = tuple[Frame, Sequence[StepPoints]]
"""A frame, and what it holds of which step."""


class PendingFrame(NamedTuple):
    """A frame in the spool; `steps` says what it holds of which step."""

    segment: Segment
    offset: int
    length: int
    kind: Kind
    points: int
    steps: Sequence[StepPoints]

    def payload(self) -> bytes:
        """Read it back."""
        return self.segment.read(self.offset, self.length)


@dataclass(slots=True)
class Lost:
    """What had to go.

    Attributes:
        reason: under which it is counted: the spool was full, or could not be read back.
        points: metric points.
        steps: those of steps.
        frames: how many of each kind; one of kind `L` is an event, one of `S` holds spans.
    """

    reason: str
    points: int = 0
    steps: list[StepPoints] = field(default_factory=list)
    frames: Counter[Kind] = field(default_factory=Counter)

    def add(self, frame: PendingFrame) -> None:
        """Count a frame."""
        self.points += frame.points
        self.steps.extend(frame.steps)
        self.frames[frame.kind] += 1


class Spool:
    """This writer's unacknowledged frames, oldest first.

    Args:
        folder: where the files are; made again where the service of an earlier life of the job has just removed it.
        writer: names the files.
        resource: the encoded Resource that every file begins with.
        limit: most bytes kept; beyond it the oldest file goes.
        endpoint: noted in every file, for who finds it: where a user has said that this is sent to.
        variable: in which the user has said it; noted beside it.
        say: told once if the folder cannot be written.

    Attributes:
        on_lost: told what went from a full spool, and that something went which others have sent.
    """

    def __init__(
        self,
        folder: Path,
        writer: str,
        resource: bytes,
        *,
        limit: int,
        say: Say,
        endpoint: str = "",
        variable: str = "",
    ) -> None:
        self._folder = folder
        self._writer = writer
        self._resource = resource
        self._limit = limit
        self._sent_to = endpoint, variable
        self.on_lost: Callable[[Lost], None] = lambda lost: None
        self._say = say
        self._segments: deque[Segment] = deque()
        self._number = 0
        self._in_memory = False
        self._disk_tried_at = 0.0
        self.pending: deque[PendingFrame] = deque()

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(segment.size for segment in self._segments)

    @property
    def is_nearly_full(self) -> bool:
        """Whether five eighths of what it may hold are there: what is under way has room in the rest."""
        return self.size > 5 * self.bound // 8

    @property
    def is_in_memory(self) -> bool:
        """Whether no file can be written."""
        return self._in_memory

    @property
    def bound(self) -> int:
        """Bytes it may hold."""
        return min(self._limit, MEMORY_BYTES) if self._in_memory else self._limit

    def append(self, frame: Frame, steps: Sequence[StepPoints] = ()) -> None:
        """Keep a frame until it is acknowledged; the oldest go if the spool is full."""
        self.extend([(frame, steps)])

    def extend(self, frames: Sequence[Held]) -> None:
        """Do as `append()` with each frame and what it holds of which step, small ones in one write.

        With cold caches a write takes 60 µs.
        """
        group: list[Held] = []
        size = 0
        for held in frames:
            length = len(held[0].payload)
            if group and size + length > TOGETHER_BYTES:
                self._write(group)
                group, size = [], 0
            group.append(held)
            size += length
        if group:
            self._write(group)

    def _write(self, frames: Sequence[Held]) -> None:
        parts = [part for frame, _ in frames for part in (encode_frame(frame), frame.payload)]
        if not self._in_memory or time.monotonic() - self._disk_tried_at >= DISK_AGAIN_S:
            self._bring_to_disk()
        segment = self._open_segment()
        try:
            offset = segment.append(parts)
        except OSError as error:
            segment = self._move_to_memory(error)
            offset = segment.append(parts)
        for frame, steps in frames:
            # A frame is a header and a payload; `PendingFrame.offset` is that of the payload.
            offset += FRAME.size
            self.pending.append(PendingFrame(segment, offset, len(frame.payload), frame.kind, frame.points, steps))
            offset += len(frame.payload)
        # Whole files go, never parts of one: dropping the front of a file means rewriting it, and a full disk is when
        # one cannot.
        while len(self._segments) > 1 and self.size > self.bound:
            self._drop_oldest()

    def acknowledge(self, count: int, *, but: Kind | None = None) -> None:
        """Forget the `count` oldest frames: they have arrived, or never will; those of kind `but` are kept."""
        oldest = [self.pending.popleft() for _ in range(count)]
        # extendleft() turns the order round, and so puts these back as they were.
        self.pending.extendleft(frame for frame in reversed(oldest) if frame.kind == but)
        first = self.pending[0].segment if self.pending else None
        while self._segments and self._segments[0] is not first:
            # The last file is emptied, not deleted: in steady state this happens every second, and creating a file
            # costs more.
            if len(self._segments) == 1:
                with suppress(OSError):  # it cannot be used again: another one begins
                    self._segments[0].clear()
                    return
            self._segments.popleft().delete()

    def give_up_unreadable(self, error: OSError) -> None:
        """Forget the frames that cannot be read back, and count them as lost, but for those that others have sent."""
        lost, kept = Lost(SPOOL_UNREADABLE), deque[PendingFrame]()
        for frame in self.pending:
            try:
                frame.payload()
            except TakenError:
                continue
            except OSError:
                lost.add(frame)
            else:
                kept.append(frame)
        is_less = len(kept) < len(self.pending)
        self.pending = kept
        used = [frame.segment for frame in kept]
        for segment in self._segments:
            if segment not in used:
                segment.delete()  # or another process would send what is counted here
        self._segments = deque(segment for segment in self._segments if segment in used)
        self._new_segment()  # where a file was cut, what is appended would not be where we think it is
        if lost.frames:
            self._say("spool-not-read", f"What was kept to be sent cannot be read again ({error}); it is lost.")
        if is_less:
            self.on_lost(lost)

    def secure(self) -> Lost:
        """Bring everything to the disk as far as it can be; return what ends with this process."""
        self._bring_to_disk()
        gone = Lost(SPOOL_NOT_WRITTEN)
        kept = [segment for segment in self._segments if segment.is_on_disk()]
        for frame in self.pending:
            if frame.segment not in kept:
                gone.add(frame)
        return gone

    def renew(self, resource: bytes) -> None:
        """Begin a new file with another resource (the run's identity has been decided)."""
        self._resource = resource
        # The next frame begins a file, with the resource of then.
        if not self.pending:
            self.delete()
        elif not self._in_memory:
            self._new_segment()

    def delete(self) -> None:
        """Delete all files: everything was acknowledged, or is given up."""
        self.pending.clear()
        while self._segments:
            self._segments.popleft().delete()

    def remove_folder(self) -> None:
        """Remove the folder of all writers' files and that of the run, where nothing is left in them."""
        with suppress(OSError):
            self._folder.rmdir()
            self._folder.parent.rmdir()

    def close(self) -> None:
        """Let go of the files; what is in them stays for others to send."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
        self.pending.clear()

    def _open_segment(self) -> Segment:
        # A file goes as a whole when the spool is full: of a small spool no more than about a quarter at a time.
        if not self._segments or self._segments[-1].size > min(SEGMENT_BYTES, self._limit // 4):
            self._new_segment()
        return self._segments[-1]

    def _new_segment(self) -> None:
        if self._in_memory:
            self._segments.append(MemorySegment())
            return
        try:
            self._segments.append(self._new_file())
        except OSError as error:
            self._move_to_memory(error)

    def _new_file(self) -> Segment:
        path = self._folder / f"{self._writer}-{self._number:06d}{SUFFIX}"
        self._number += 1
        for _ in range(_FOLDER_TRIES):
            with suppress(FileNotFoundError):
                return FileSegment(path, self._resource, *self._sent_to)
            # FileExistsError: it was there for mkdir, and removed before mkdir looked whether it is a folder.
            with suppress(FileNotFoundError, FileExistsError):
                for folder in (self._folder.parent, self._folder):
                    folder.mkdir(mode=0o700, exist_ok=True)
        return FileSegment(path, self._resource, *self._sent_to)

    def _move_to_memory(self, error: OSError) -> Segment:
        self._in_memory = True
        self._disk_tried_at = time.monotonic()
        self._say(
            "spool-not-written", f"{self._folder} cannot be written ({error}); what is not sent yet is kept in memory."
        )
        self._segments.append(MemorySegment())
        return self._segments[-1]

    def _bring_to_disk(self) -> None:
        """Write anew what is in memory, or in files that others have deleted, moved or cut; if files can be written."""
        kept = [segment for segment in self._segments if segment.is_on_disk()]
        # The usual case: one stat() for each file, and nothing to move.
        if len(kept) == len(self._segments) and not self._in_memory:
            return
        self._disk_tried_at = time.monotonic()
        fresh: list[Segment] = []
        lost = Lost(SPOOL_UNREADABLE)
        try:
            moved = self._written_anew(kept, fresh, lost)
            last = fresh[-1] if fresh else self._new_file()
        except OSError as error:
            for segment in fresh:
                segment.delete()
            if not self._in_memory:
                self._move_to_memory(error)
            return
        self._in_memory = False
        is_less = len(moved) < len(self.pending)
        self._use(moved, last)
        if lost.frames:
            self._say("spool-not-read", f"Files in {self._folder} were cut by another program: what they held is lost.")
        if is_less:
            self.on_lost(lost)

    def _written_anew(self, kept: Sequence[Segment], fresh: list[Segment], lost: Lost) -> deque[PendingFrame]:
        """Return all frames, those that do not lie in `kept` in new files; what cannot be read is added to `lost`."""
        moved: deque[PendingFrame] = deque()
        target: Segment | None = None
        for pending in self.pending:
            if pending.segment in kept:
                target = None  # files hold what follows each other: the oldest go, one by one
                moved.append(pending)
                continue
            try:
                frame = Frame(pending.kind, pending.payload(), pending.points)
            except TakenError:
                continue  # the receiver has it, and misses its running number where it has not
            except OSError:
                lost.add(pending)
                continue
            if target is None or target.size > SEGMENT_BYTES:
                target = self._new_file()
                fresh.append(target)
            offset = target.append([encode_frame(frame), frame.payload]) + FRAME.size
            moved.append(pending._replace(segment=target, offset=offset))
            yield_interpreter()
        return moved

    def _use(self, frames: deque[PendingFrame], last: Segment) -> None:
        """Go on with these frames, in the files in which they lie; what follows them goes into `last`."""
        used = dict.fromkeys([*(frame.segment for frame in frames), last])
        for segment in self._segments:
            if segment not in used:
                segment.delete()
        self.pending = frames
        self._segments = deque(used)

    def _drop_oldest(self) -> None:
        oldest = self._segments.popleft()
        lost = Lost(SPOOL_FULL)
        while self.pending and self.pending[0].segment is oldest:
            lost.add(self.pending.popleft())
        oldest.delete()
        self.on_lost(lost)
