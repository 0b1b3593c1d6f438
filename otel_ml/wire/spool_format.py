r"""The file format of a worker's spool: telemetry that no one has acknowledged yet.

::

    <rendezvous folder>/spool/<writer>-<number>.spool
    header   "otel_ml spool <version>\n"; another version may add a space and which otel_ml it was
    frame    kind (1 byte) · points (u32) · length (u32) · CRC-32 of the payload (u32) · payload
             R  the encoded OTLP Resource of the writer, first in every file; where a user has named the endpoint of the
                job, a second one, its address without credentials, and a third, its variable (older readers pass over)
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
    "UNREADABLE",
    "Frame",
    "Kind",
    "Leftover",
    "encode_frame",
    "encode_head",
    "read_spool",
    "request_body",
]

Kind = Literal["R", "M", "S", "L"]

HEADER = b"otel_ml spool %d\n" % SPOOL
_HEADER = re.compile(rb"otel_ml spool (\d{1,9})(?: ([\w.+!-]{1,100}))?\n")
SUFFIX, UNREADABLE = ".spool", ".unreadable"
"""Of a spool, and of one in which something is damaged: it is kept for people."""
PATHS: dict[Kind, str] = {"M": "/v1/metrics", "S": "/v1/traces", "L": "/v1/logs"}
"""Where each kind is posted (OTLP/HTTP)."""

FRAME = struct.Struct("<cIII")
_KINDS = {b"R", *(kind.encode() for kind in PATHS)}


class Frame(NamedTuple):
    """One encoded piece of telemetry."""

    kind: Kind
    payload: bytes
    points: int = 0


class Leftover(NamedTuple):
    """What a spool file holds; the resource says for how long nothing was added to it.

    Attributes:
        damaged: bytes of frames that were written whole and are not what was written.
        endpoint: where its writer sent to, as a user has said; "" where otel_ml chose that itself.
        variable: in which the user has said it; "" where an older writer did not note that.
    """

    resource: bytes
    frames: tuple[Frame, ...]
    damaged: int = 0
    endpoint: str = ""
    variable: str = ""


def encode_frame(frame: Frame) -> bytes:
    """Return the frame's header; the payload follows it in the file."""
    return FRAME.pack(frame.kind.encode(), frame.points, len(frame.payload), zlib.crc32(frame.payload))


def encode_head(resource: bytes, endpoint: str = "", variable: str = "") -> list[bytes]:
    """Return what a file begins with, in parts.

    Args:
        resource: of its writer, encoded.
        endpoint: that a user has named, without credentials; "" where otel_ml chose it itself.
        variable: in which the user has named it.
    """
    named = [Frame("R", endpoint.encode()), Frame("R", variable.encode())] if endpoint else []
    frames = [Frame("R", resource), *named]
    return [HEADER, *(part for frame in frames for part in (encode_frame(frame), frame.payload))]


def read_spool(path: Path) -> Leftover:
    """Read a spool file up to its first incomplete frame, without damaged ones; one without a resource holds nothing.

    Raises:
        VersionError: newer code has written it.
        WireError: it is not a spool, or a damaged one.
    """
    content = path.read_bytes()
    damaged: list[int] = []
    frames = list(_frames(content, _body(path, content), damaged))
    if not frames or frames[0].kind != "R":
        return Leftover(b"", (), sum(damaged))
    # By the kernel's clock, which wrote the file's time: a process' own may have been set since.
    left_for = max(0, time.clock_gettime_ns(time.CLOCK_REALTIME) - path.stat().st_mtime_ns) // 1_000_000
    # A field more at the end of an encoded message belongs to it: the resource needs no decoding.
    resource = frames[0].payload + key_values(1, {LEFT_FOR: left_for})
    said = [frame.payload.decode("utf-8", "replace") for frame in frames[1:3] if frame.kind == "R"]
    # `said` is endpoint and variable, the endpoint alone, or nothing.
    return Leftover(resource, tuple(frame for frame in frames if frame.kind in PATHS), sum(damaged), *said)


def _body(path: Path, content: bytes) -> int:
    """Return where the frames of a spool begin: at its end where its writer was killed inside the header."""
    header = _HEADER.match(content)
    if header is not None:
        require(path, int(header[1]), SPOOL, (header[2] or b"").decode("ascii", "replace"))
        return header.end()
    if not HEADER.startswith(content):
        raise WireError(f"{str(path)!r} does not begin as a spool of otel_ml does.")
    return len(content)


def _frames(content: bytes, position: int, damaged: list[int]) -> Iterator[Frame]:
    """Yield whole frames; the sizes of what is damaged are added to `damaged`."""
    while position + FRAME.size <= len(content):
        kind, points, length, checksum = FRAME.unpack_from(content, position)
        begin, position = position, position + FRAME.size + length
        if kind not in _KINDS:
            # There is no mark by which the beginning of the next one could be told from data. Nothing but zeros is what
            # a host leaves that lost its power.
            if content.count(0, begin) < len(content) - begin:
                damaged.append(len(content) - begin)
            return
        if position > len(content):
            return  # a process may be killed in the middle of a write: a broken end is normal
        payload = content[position - length : position]
        if zlib.crc32(payload) == checksum:
            yield Frame(kind.decode("latin-1"), payload, points)
        else:
            damaged.append(position - begin)


def request_body(resource: bytes, payloads: Iterable[bytes]) -> bytes:
    """Return the body of an OTLP export request of one resource, which is then written once.

    The same for all signals: field 1 of the request is the `Resource…`, field 1 of that the resource.
    """
    return field(1, field(1, resource) + b"".join(payloads))
