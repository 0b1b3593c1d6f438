r"""The file format of a worker's spool: telemetry that no one has acknowledged yet.

::

    <rendezvous folder>/spool/<writer>-<number>.spool
    header   "otel_ml spool <version>\n"; another version may add a space and which otel_ml it was
    frame    kind (1 byte) · points (u32) · length (u32) · CRC-32 of the payload (u32) · payload
             R  the encoded OTLP Resource of the writer, first in every file
             M  one ScopeMetrics, S  one ScopeSpans, L  one ScopeLogs: each with its protobuf tag, so that
                `resource + payloads` of one kind is the body of a ResourceMetrics, ResourceSpans, ResourceLogs

A live writer holds an exclusive `flock` on its files: who gets the lock may send and delete them.
A file may end inside a frame where its writer was killed; what is before is good.
"""

from __future__ import annotations

import re
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from otel_ml.exceptions import WireError
from otel_ml.wire.attributes import LEFT_FOR
from otel_ml.wire.protobuf import field, key_values
from otel_ml.wire.versions import SPOOL, require

__all__ = [
    "FRAME",
    "HEADER",
    "PATHS",
    "SUFFIX",
    "Frame",
    "Kind",
    "Leftover",
    "encode_frame",
    "read_spool",
    "request_body",
]

Kind = Literal["R", "M", "S", "L"]

HEADER = b"otel_ml spool %d\n" % SPOOL
_HEADER = re.compile(rb"otel_ml spool (\d{1,9})(?: ([\w.+!-]{1,100}))?\n")
SUFFIX = ".spool"
PATHS: dict[Kind, str] = {"M": "/v1/metrics", "S": "/v1/traces", "L": "/v1/logs"}
"""Where each kind is posted (OTLP/HTTP)."""

FRAME = struct.Struct("<cIII")


class Frame(NamedTuple):
    """One encoded piece of telemetry."""

    kind: Kind
    payload: bytes
    points: int = 0


class Leftover(NamedTuple):
    """What a spool file holds; the resource says for how long nothing was added to it."""

    resource: bytes
    frames: tuple[Frame, ...]


def encode_frame(frame: Frame) -> bytes:
    """Return the frame's header; the payload follows it in the file."""
    return FRAME.pack(frame.kind.encode(), frame.points, len(frame.payload), zlib.crc32(frame.payload))


def read_spool(path: Path) -> Leftover:
    """Read a spool file up to its first incomplete frame; a file without a resource holds nothing.

    Raises:
        VersionError: newer code has written it.
        WireError: it is not a spool, or a damaged one.
    """
    content = path.read_bytes()
    frames = list(_frames(content, _body(path, content)))
    if not frames or frames[0].kind != "R":
        return Leftover(b"", ())
    # By the kernel's clock, which wrote the file's time: a process' own may have been set since.
    left_for = max(0, time.clock_gettime_ns(time.CLOCK_REALTIME) - path.stat().st_mtime_ns) // 1_000_000
    resource = frames[0].payload + key_values(1, {LEFT_FOR: left_for})
    return Leftover(resource, tuple(frame for frame in frames if frame.kind in PATHS))


def _body(path: Path, content: bytes) -> int:
    """Return where the frames of a spool begin: at its end where its writer was killed inside the header."""
    header = _HEADER.match(content)
    if header is not None:
        require(path, int(header[1]), SPOOL, (header[2] or b"").decode("ascii", "replace"))
        return header.end()
    if not HEADER.startswith(content):
        raise WireError(f"{str(path)!r} does not begin as a spool of otel_ml does.")
    return len(content)


def _frames(content: bytes, position: int) -> Iterator[Frame]:
    while position + FRAME.size <= len(content):
        kind, points, length, checksum = FRAME.unpack_from(content, position)
        position += FRAME.size
        payload = content[position : position + length]
        # A process may be killed in the middle of a write, so a broken end is normal. What follows it is not looked
        # for: there is no mark by which a frame's beginning could be told from data.
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield Frame(kind.decode("latin-1"), payload, points)
        position += length


def request_body(resource: bytes, payloads: Iterable[bytes]) -> bytes:
    """Return the body of an OTLP export request of one resource, which is then written once.

    The same for all signals: field 1 of the request is the `Resource…`, field 1 of that the resource.
    """
    return field(1, field(1, resource) + b"".join(payloads))
