"""Log records: texts, tables, media, artifacts, summaries, users' own events (docs/protocol.md §4.9)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from otel_ml.wire import attributes as keys
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml_exporters.records import Artifact, Audio, HistogramValue, Image, JsonValue, Table, Text
from otel_ml_service.aggregation.failures import FAILURE, failed_with, failure_text, who_failed
from otel_ml_service.aggregation.naming import changed, item_name
from otel_ml_service.aggregation.observation import Event
from otel_ml_service.aggregation.output import NamedFile, Output
from otel_ml_service.aggregation.parameters import Parameters
from otel_ml_service.aggregation.summaries import Summaries

__all__ = ["RunEvents"]


_LONGEST_PATH = 1000
"""Characters of a path inside an artifact: with the run's folder before it, it has to be a path on this system."""


class RunEvents:
    """Emits a record for each event; they are not reduced and wait for no step."""

    def __init__(self, output: Output, parameters: Parameters, summaries: Summaries) -> None:
        self._output = output
        self._takers: dict[str, Callable[[Event], None]] = {
            keys.EVENT_PARAMS: parameters.take,
            keys.EVENT_SUMMARY: summaries.take,
            keys.EVENT_TEXT: self._text,
            keys.EVENT_TABLE: self._table,
            keys.EVENT_IMAGE: self._image,
            keys.EVENT_AUDIO: self._audio,
            keys.EVENT_HISTOGRAM: self._histogram,
            keys.EVENT_ARTIFACT: self._artifact,
            keys.EVENT_NOTICE: self._notice,
            keys.EVENT_EXCEPTION: self._exception,
        }

    def take(self, event: Event) -> None:
        """Turn `event` into a record; one whose body is not what its name says is reported, once for its name."""
        try:
            self._takers.get(event.kind, self._own)(event)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            self._output.say(
                "unreadable-event",
                f"An event {event.kind!r} of rank {event.writer.rank} cannot be read and is left out: {error!r}.",
            )

    def _text(self, event: Event) -> None:
        self._output.emit(Text, **self._place(event), text=str(event.body))

    def _table(self, event: Event) -> None:
        body = _mapping(event.body)
        columns = tuple(str(column) for column in _sequence(body["columns"]))
        rows = tuple(tuple(_sequence(row)) for row in _sequence(body["rows"]))
        if any(len(row) != len(columns) for row in rows):
            raise ValueError(f"a row is not as long as the {len(columns)} columns")
        self._output.emit(Table, **self._place(event), columns=columns, rows=rows)

    def _image(self, event: Event) -> None:
        self._output.emit(
            Image,
            **self._place(event),
            png=_bytes(event.body),
            width=_whole(event, "ml.width"),
            height=_whole(event, "ml.height"),
            caption=_caption(event),
        )

    def _audio(self, event: Event) -> None:
        rate = _whole(event, "ml.sample_rate")
        self._output.emit(
            Audio, **self._place(event), wav=_bytes(event.body), sample_rate=rate, caption=_caption(event)
        )

    def _histogram(self, event: Event) -> None:
        body = _mapping(event.body)
        edges, counts = _floats(body["edges"]), _floats(body["counts"])
        if len(edges) != len(counts) + 1:
            raise ValueError(f"{len(counts)} bins have {len(counts) + 1} edges, not {len(edges)}")
        self._output.emit(HistogramValue, **self._place(event), edges=edges, counts=counts)

    def _artifact(self, event: Event) -> None:
        said = event.attributes
        size = said.get("ml.artifact.size")
        aliases = said.get("ml.artifact.aliases")
        checksum = said.get("ml.artifact.sha256")
        path_in = _relative(str(said.get("ml.artifact.path_in") or said.get(keys.NAME) or "artifact"))
        content = _content(event)
        # `seq` 0: it is numbered when it is appended, which is later where its file has to be looked for.
        artifact = Artifact(
            seq=0,
            time=event.time_ns / 1e9,
            name=self._name(event),
            type=str(said.get("ml.artifact.type") or "file"),
            path_in=path_in,
            local=None,
            uri=str(said.get("ml.artifact.uri") or ""),
            size=len(content or b"") if size is None else _number(size),
            sha256=None if checksum is None else str(checksum),
            step=event.step,
            aliases=() if aliases is None else tuple(str(alias) for alias in _sequence(aliases)),
        )
        if content is None:
            kept = str(said.get("ml.artifact.kept") or "")
            self._output.name(NamedFile(artifact, kept, _whole(event, "ml.artifact.modified")))
        else:
            self._output.files[self._output.add(artifact)] = content

    def _notice(self, event: Event) -> None:
        self._output.repeat(str(event.body))

    def _exception(self, event: Event) -> None:
        """What a writer failed with; other exceptions, of a foreign SDK for example, are events as any."""
        if keys.STATUS not in event.attributes:
            self._own(event)
            return
        writer = event.writer
        name = item_name(writer.role, None, FAILURE, writer.rank, with_role=True)
        self._output.emit(Text, **{**self._place(event), "name": name}, text=failure_text(event))
        if (writer.world_size or 1) > 1:  # one alone has just printed it
            who, step = (
                who_failed(writer.role, writer.rank),
                "" if event.step is None else f" at {event.axis} {event.step}",
            )
            self._output.say_first("rank-failed", f"{who} failed{step}: {failed_with(event)}.")

    def _own(self, event: Event) -> None:
        """The user's own event: its name, and what it carries as JSON."""
        # Where it belongs is said by fields of the record, and not once more by attributes of otel_ml.
        carried = {name: value for name, value in event.attributes.items() if not name.startswith("ml.")}
        body = event.body
        if isinstance(body, Mapping):
            carried |= dict(body)
        elif body is not None and not isinstance(body, bytes):
            carried["body"] = body
        text = json.dumps(carried, ensure_ascii=False, default=str)
        self._output.emit(Text, **{**self._place(event), "name": self._name(event, event.kind)}, text=text)

    def _place(self, event: Event) -> dict[str, object]:
        return {
            "time": event.time_ns / 1e9,
            "name": self._name(event),
            "axis": event.axis or DEFAULT_AXIS,
            "step": event.step,
        }

    def _name(self, event: Event, name: str | None = None) -> str:
        writer = event.writer
        axis = event.axis if event.kind != keys.EVENT_ARTIFACT else None
        named = name if name is not None else str(event.attributes.get(keys.NAME) or event.kind)
        if sentence := changed(named):
            self._output.say_first("name-changed", sentence)
        return item_name(writer.role, axis, named, writer.rank, with_role=writer.with_role)


def _relative(path_in: str) -> str:
    r"""Return a path inside an artifact that stays inside, in every backend and on every system.

    Examples:
        >>> _relative("model/weights 1.pt"), _relative("../../etc/passwd"), _relative("C:\\x\n")
        ('model/weights 1.pt', 'etc/passwd', 'C:/x')
    """
    parts = [part.strip() for part in path_in.replace("\\", "/").split("/")]
    # Parts of nothing but dots and spaces, as `..`, are left out.
    shown = ("".join(char if char.isprintable() else "_" for char in part) for part in parts if part.strip(". "))
    return "/".join(shown)[:_LONGEST_PATH].rstrip("/") or "artifact"


def _mapping(body: JsonValue | bytes) -> Mapping[str, JsonValue]:
    if not isinstance(body, Mapping):
        raise TypeError(f"expected a mapping, got {type(body).__name__}")
    return body


def _sequence(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list, got {type(value).__name__}")
    return list(value)


def _floats(value: JsonValue) -> tuple[float, ...]:
    numbers = [float(number) for number in _sequence(value) if isinstance(number, (int, float))]
    if len(numbers) < len(_sequence(value)):
        raise TypeError("expected numbers alone")
    return tuple(numbers)


def _bytes(body: JsonValue | bytes) -> bytes:
    if not isinstance(body, bytes):
        raise TypeError(f"expected bytes, got {type(body).__name__}")
    return body


def _whole(event: Event, name: str) -> int:
    return _number(event.attributes.get(name))


def _number(value: JsonValue) -> int:
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0


def _content(event: Event) -> bytes | None:
    """Return what came with the event: nothing of a large file, which is a reference, and all of an empty one."""
    is_whole = bool(event.body) or event.attributes.get("ml.artifact.size") == 0
    return event.body if isinstance(event.body, bytes) and is_whole else None


def _caption(event: Event) -> str | None:
    caption = event.attributes.get("ml.caption")
    return None if caption is None else str(caption)
