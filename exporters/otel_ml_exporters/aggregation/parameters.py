"""Hyper-parameters of many processes become those of the run: the lowest (role, rank) wins (CONTRACT §4)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from otel_ml_exporters.aggregation.observation import Event
from otel_ml_exporters.aggregation.output import Output
from otel_ml_exporters.records import JsonValue, Params

__all__ = ["Parameters"]

Path = tuple[str, ...]


class Parameters:
    """Remembers who set what.

    Attributes:
        owners: path → (role, rank, value as JSON).
        changed: whether `owners` changed since it was committed.
    """

    def __init__(self, output: Output, most: int = 10_000) -> None:
        self._output = output
        self._most = most
        self.owners: dict[Path, tuple[str, int, str]] = {}
        self.changed = False

    def take(self, event: Event) -> None:
        """Emit what `event` adds or changes; of a nested name all that is known."""
        if not isinstance(event.body, Mapping):
            raise TypeError(f"expected a mapping, got {type(event.body).__name__}")
        role, rank = event.writer.role, event.writer.rank
        accepted: dict[str, JsonValue] = {}
        for path, value in _leaves(event.body):
            text = json.dumps(value, sort_keys=True, default=str)
            owner = self.owners.get(path)
            if owner is None and len(self.owners) >= self._most:
                self._output.say(
                    "too-many-parameters",
                    f"More than {self._most:,} parameters are logged; {'.'.join(path)!r} and others are left out.",
                )
                continue
            if owner is not None and owner[2] != text and owner[:2] != (role, rank):
                self._say(path, *sorted((owner, (role, rank, text))))
            if owner is not None and owner[:2] < (role, rank):
                continue
            if owner is None or owner[2] != text:
                _insert(accepted, path, value)
            self.changed |= owner != (role, rank, text)
            self.owners[path] = (role, rank, text)
        if accepted:
            self._output.emit(Params, time=event.time_ns / 1e9, params=self._whole(accepted))

    def _whole(self, accepted: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return what was accepted, with what is known besides under the same names: backends replace a mapping."""
        nested = {name for name, value in accepted.items() if isinstance(value, dict)}
        whole = {name: value for name, value in accepted.items() if name not in nested}
        if nested:
            for path, (_, _, text) in self.owners.items():
                if len(path) > 1 and path[0] in nested:
                    _insert(whole, path, json.loads(text))
        return whole

    def _say(self, path: Path, kept: tuple[str, int, str], other: tuple[str, int, str]) -> None:
        self._output.say(
            "parameter-conflict",
            f"Parameter {'.'.join(path)!r} is {kept[2]} on rank {kept[1]} of role {kept[0]!r} and {other[2]} on rank "
            f"{other[1]} of role {other[0]!r}; {kept[2]} is kept.",
        )


def _leaves(params: Mapping[str, JsonValue], prefix: Path = ()) -> Iterator[tuple[Path, JsonValue]]:
    for key, value in params.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*prefix, str(key)))
        else:
            yield (*prefix, str(key)), value


def _insert(into: dict[str, JsonValue], path: Path, value: JsonValue) -> None:
    level = into
    for key in path[:-1]:
        below = level.setdefault(key, {})
        if not isinstance(below, dict):
            below = level[key] = {}
        level = below
    level[path[-1]] = value
