"""An engine's memory as former versions wrote it, put into the form of this one (ADR 0030).

Each function takes a state from one version to the next; a change of the form adds one, and none is ever changed.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from otel_ml_exporters.json_text import plain_json
from otel_ml_service.versions import RUN

__all__ = ["in_this_form", "version_of"]

State = Mapping[str, bytes]

_SHUTDOWN, _PLAIN = 2, 5
"""Places in the entry of a writer."""

_FLOOR, _BOOT_NS = 1, 20
"""Places in the list of its plain values."""

_REDUCTIONS = 4
"""Place in the entry of a stream."""

_STREAM_KEY, _WITHOUT_SCOPE = 0, 5
"""Place in the entry of a stream, and how long its key was before streams had a scope."""


_TOGETHER, _STATISTICS = 256, 7
"""Streams in an entry of version 10, and what is kept of each."""

_STEPS = 64
"""Of the clock of training, in an entry of version 11."""

_OF_POINTS = 2
"""Slashes in the key of a window's points."""


def version_of(state: State) -> int:
    """Return the version of the form in which a state was written."""
    return int(json.loads(state["run"])["version"])


def in_this_form(state: State) -> State:
    """Return a state of any former version as this one would have written it."""
    for version in range(version_of(state), RUN):
        state = dict(_NEXT[version](state))
    return state


def _from_1(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the forms that were written before they had versions."""
    for key, data in state.items():
        kind = key.partition("/")[0]
        if kind == "run":
            yield key, plain_json({**json.loads(data), "version": 2})
        elif kind == "writer":
            yield key, plain_json(_with_boot_time(json.loads(data)))
        elif kind == "stream":
            yield _with_scope(json.loads(data))
        else:
            yield key, data


def _with_boot_time(entry: list[Any]) -> list[Any]:
    if len(entry[_PLAIN]) == _BOOT_NS:
        entry[_PLAIN].append(0)
    return entry


def _with_scope(entry: list[Any]) -> tuple[str, bytes]:
    """Return the entry of a stream under its name, which was made of how Python shows its key."""
    writer, *rest = entry[_STREAM_KEY]
    if len(entry[_STREAM_KEY]) == _WITHOUT_SCOPE:
        entry[_STREAM_KEY] = [writer, None, *rest]
    return f"stream/{_digest_of(entry[_STREAM_KEY])}", plain_json(entry)


def _digest_of(key: object) -> str:
    return blake2b(plain_json(key), digest_size=12).hexdigest()


def _from_2(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which writers had no ledger: what arrived of them is taken to be all they had sent."""
    for key, data in state.items():
        kind = key.partition("/")[0]
        if kind == "run":
            yield key, plain_json({**json.loads(data), "version": 3, "account": [0, 0, False, False]})
        elif kind == "writer":
            yield key, plain_json(_with_ledger(json.loads(data)))
        else:
            yield key, data


def _with_ledger(entry: list[Any]) -> list[Any]:
    if entry[_SHUTDOWN] is not None:
        entry[_SHUTDOWN] += [None, None, None]
    said, nothing = [0, [0, 0, 0, 0]], [0, 0, 0]
    return [*entry, [*said, nothing, nothing, [], [], entry[_PLAIN][_FLOOR], None, None, True]]


def _from_3(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which nothing was kept of closed steps beyond those in memory, not even what was exported.

    There were no defaults among reductions either, and each stream had its own.
    """
    chunks = Counter(key.split("/")[1] for key in state if key.startswith("unit/") and key.count("/") == _OF_POINTS)
    shapes = [int(key.partition("/")[2]) for key in state if key.startswith("shape/")]
    streams: list[list[Any]] = []
    for key, data in state.items():
        kind, _, rest = key.partition("/")
        if kind == "unit" and "/" in rest:
            number, _, chunk = rest.partition("/")
            yield f"disk/points/{int(number):010d}/{chunk}", _with_defaults(data)
        elif kind == "unit":
            yield key, plain_json({**json.loads(data), "forgotten": [], "chunks": chunks[rest]})
        elif kind == "lane":
            attempt = json.loads(data)
            # What was exported at closed steps up to the horizon was not kept in that form.
            yield key, plain_json({**attempt, "unknown": attempt["horizon"]})
        elif kind == "track":
            streams.append(json.loads(data))
            yield key, plain_json(streams[-1][:_REDUCTIONS])
        elif kind == "run":
            added = {"version": 4, "next_shape": max(shapes, default=-1) + 1, "closed": [0, 0, 0]}
            yield key, plain_json({**json.loads(data), **added})
        else:
            yield key, data
    if streams:
        yield "reductions", plain_json(_by_role(streams))


def _from_4(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which nobody had declared what timers measure."""
    for key, data in state.items():
        if key == "run":
            yield key, plain_json({**json.loads(data), "version": 5})
        elif key == "findings":
            yield key, plain_json({"watches": json.loads(data), "kinds": {}})
        else:
            yield key, data


def _from_5(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which findings were about a rank, a stage or nobody: no places, no pauses."""
    for key, data in state.items():
        yield key, plain_json({**json.loads(data), "version": 6}) if key == "run" else data


def _from_6(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which nothing was packed."""
    for key, data in state.items():
        yield key, plain_json({**json.loads(data), "version": 7}) if key == "run" else data


def _from_7(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which findings did not say of what ranks are given more, or times go with."""
    for key, data in state.items():
        yield key, plain_json({**json.loads(data), "version": 8}) if key == "run" else data


def _from_8(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which findings did not say whether others wait for a rank."""
    for key, data in state.items():
        yield key, plain_json({**json.loads(data), "version": 9}) if key == "run" else data


def _from_9(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which each point had a digest, and each stream that accumulates an entry.

    Buckets with bounds were kept spread over exponential ones, and stay so until the next point of their stream.
    """
    meters: dict[tuple[Any, ...], list[list[Any]]] = {}
    for key, data in state.items():
        if key.startswith("stream/"):
            (writer, scope, metric, attributes, axis, step), stream = json.loads(data)
            meters.setdefault((writer, scope, axis, step), []).append([[metric, attributes], *stream])
        elif key == "run":
            yield key, plain_json(_with_moments(json.loads(data)))
        else:
            yield key, data
    for meter, streams in meters.items():
        for chunk in range(0, len(streams), _TOGETHER):
            number, some = chunk // _TOGETHER, streams[chunk : chunk + _TOGETHER]
            yield f"stream/{_digest_of(meter)}/{number}", _as_columns(meter, number, some)


def _from_10(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which the clock of training was written anew with each commit."""
    for key, data in state.items():
        if key == "run":
            run = json.loads(data)
            role, steps = run["training"]
            yield key, plain_json({**run, "version": 11, "training": role})
            for first in range(0, len(steps), _STEPS):
                yield f"training/{first // _STEPS}", plain_json(steps[first : first + _STEPS])
        else:
            yield key, data


def _from_11(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which nobody said who had started a writer, and each owed a shutdown message."""
    for key, data in state.items():
        kind = key.partition("/")[0]
        if key == "run":
            yield key, plain_json({**json.loads(data), "version": 12})
        elif kind == "who":
            yield key, plain_json([*json.loads(data), None])
        elif kind == "writer":
            entry = json.loads(data)
            entry[_PLAIN].append(False)
            yield key, plain_json(entry)
        else:
            yield key, data


def _from_12(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which nobody knew, of a run that goes on, what an end had told."""
    for key, data in state.items():
        yield key, plain_json({**json.loads(data), "version": 13, "told": None}) if key == "run" else data


def _from_13(state: State) -> Iterator[tuple[str, bytes]]:
    """Take the form in which spans were stored as whole lines: the engine's memory is the same."""
    for key, data in state.items():
        yield key, plain_json({**json.loads(data), "version": 14}) if key == "run" else data


def _as_columns(meter: tuple[Any, ...], number: int, streams: Sequence[list[Any]]) -> bytes:
    names, starts, times, stats, buckets, received = zip(*streams, strict=True)
    head = plain_json([meter, number, names])
    # Of each stream so many statistics: what an older version did not keep is NaN.
    kept = [value for row in stats for value in (*row, *[math.nan] * _STATISTICS)[:_STATISTICS]]
    numbers = struct.pack(f"<{len(names)}Q", *starts) + struct.pack(f"<{len(names)}q", *times)
    numbers += struct.pack(f"<{len(kept)}d", *kept) + struct.pack(f"<{len(names)}d", *received)
    return head + b"\n" + plain_json(buckets if any(buckets) else None) + b"\n" + numbers


def _with_moments(run: dict[str, Any]) -> dict[str, Any]:
    generation, began = run["recent"]
    return {**run, "version": 10, "recent": [generation, began, generation + 1], "moments": [0, None]}


def _with_defaults(pieces: bytes) -> bytes:
    line, _, columns = pieces.partition(b"\n")
    headers = [{**header, "reduction": [header["reduction"], ""]} for header in json.loads(line)]
    return json.dumps(headers, separators=(",", ":")).encode() + b"\n" + columns


def _by_role(streams: list[list[Any]]) -> list[object]:
    """Return what was known of metrics: all of it was taken to be asked for."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for role, _axis, _counts, _published, reductions in streams:
        for name, ranks in reductions.items():
            found.setdefault(role, {}).setdefault(name, {}).update(ranks)
    return [
        [role, [[name, [[text, "", rank] for text, rank in ranks.items()]] for name, ranks in known.items()], [], {}]
        for role, known in found.items()
    ]


_NEXT: Mapping[int, Callable[[State], Iterator[tuple[str, bytes]]]] = {
    1: _from_1, 2: _from_2, 3: _from_3, 4: _from_4, 5: _from_5, 6: _from_6, 7: _from_7, 8: _from_8, 9: _from_9,
    10: _from_10, 11: _from_11, 12: _from_12, 13: _from_13,
}  # fmt: skip
