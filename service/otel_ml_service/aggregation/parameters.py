"""Hyper-parameters of many processes become those of the run: the lowest (role, rank) wins (docs/protocol.md §2.12)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from otel_ml_exporters.records import JsonValue, Params
from otel_ml_service.aggregation.observation import Event
from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.writers import Writers

__all__ = ["Owner", "Parameters"]

Path = tuple[str, ...]


class Owner(NamedTuple):
    """Who set a parameter to what (as JSON); `instance` of a former version's state is not known."""

    role: str
    rank: int
    text: str
    instance: str = ""

    @property
    def shown(self) -> tuple[str, int, str]:
        """Return what people see of it."""
        return self.role, self.rank, self.text


class Parameters:
    """Remembers who set what.

    Attributes:
        owners: path → who set it to what.
        changed: whether `owners` changed since it was committed.
    """

    def __init__(self, output: Output, writers: Writers, most: int = 10_000) -> None:
        self._output = output
        self._writers = writers
        self._most = most
        self._unsaid: dict[Path, Owner] = {}
        self._groups: Counter[Path] = Counter()
        self.owners: dict[Path, Owner] = {}
        self.changed = False

    def restore(self, owners: Mapping[Path, Owner]) -> None:
        """Know again who had set what."""
        for path, owner in owners.items():
            self._own(path, owner)

    def note_committed(self) -> None:
        """Note that every owner is committed."""
        self.changed = False

    def take(self, event: Event) -> None:
        """Emit what `event` adds or changes; of a nested name all that is known."""
        if not isinstance(event.body, Mapping):
            raise TypeError(f"expected a mapping, got {type(event.body).__name__}")
        accepted: dict[str, JsonValue] = {}
        for path, value in _leaves(event.body):
            text = json.dumps(value, sort_keys=True, default=str)
            said = Owner(event.writer.role, event.writer.rank, text, event.writer.instance)
            owner = self.owners.get(path)
            if owner is None and not self._makes_way_for(path, said, event):
                continue
            if owner is None and len(self.owners) >= self._most:
                self._output.say_first(  # a sentence for each would leave no room for what else is to be said
                    "too-many-parameters",
                    f"More than {self._most:,} parameters are logged; {'.'.join(path)!r} and others are left out.",
                )
                continue
            if owner is not None:
                self._compare(path, owner, said, event)
                # A lower (role, rank) has set it, and that one counts.
                if owner[:2] < said[:2]:
                    continue
            if owner is None or owner.text != text:
                _insert(accepted, path, value)
            self.changed |= owner != said
            self._own(path, said)
        if accepted:
            self._output.emit(Params, time=event.time_ns / 1e9, params=self._whole(accepted))

    def _own(self, path: Path, owner: Owner) -> None:
        if path not in self.owners:
            self._groups.update(path[:end] for end in range(1, len(path)))
        self.owners[path] = owner

    def _disown(self, path: Path) -> None:
        del self.owners[path]
        self._groups.subtract(path[:end] for end in range(1, len(path)))
        self.changed = True

    def _makes_way_for(self, path: Path, said: Owner, event: Event) -> bool:
        """Forget the names that cannot be beside a new one; False where a lower (role, rank) has set one of them."""
        there = [path[:end] for end in range(1, len(path)) if path[:end] in self.owners]
        # Looked for only where there are any: `a` takes the place of `a.b` and `a.c`.
        if self._groups[path]:
            there += [other for other in self.owners if other[: len(path)] == path]
        for other in there:
            owner = self.owners[other]
            if owner[:2] == said[:2] or self._is_restarted(event, owner):
                continue
            shorter = min(path, other, key=len)
            sides = (
                side.shown if name == shorter else (*side[:2], "a group of others")
                for name, side in ((other, owner), (path, said))
            )
            self._say(shorter, *sorted(sides))
        if any(self.owners[other][:2] < said[:2] for other in there):
            return False
        for other in there:
            self._disown(other)
        return True

    def _compare(self, path: Path, owner: Owner, said: Owner, event: Event) -> None:
        """Say that two ranks disagree, those of one life: a restart may change what it likes."""
        other = owner
        if owner[:2] == said[:2]:
            # The owner speaks again, and what a rank of its next life had said before it is compared now.
            other = self._unsaid.pop(path, owner)
        if other[:2] == said[:2] or other.text == said.text:
            return
        if other is owner and self._is_restarted(event, owner):
            self._unsaid[path] = said  # until the owner's successor has its say
        else:
            self._say(path, *sorted((other.shown, said.shown)))

    def _is_restarted(self, event: Event, owner: Owner) -> bool:
        """Whether the sender has followed one of its rank, and began after the owner had lived."""
        state, former = self._writers.of(event.writer), self._writers.named(owner.role, owner.instance)
        if former is None or self._writers.predecessor(state) is None:
            return False
        return former.ended or self._writers.began_after(state, former)

    def _whole(self, accepted: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return what was accepted, with what is known besides under the same names: backends replace a mapping."""
        nested = {name for name, value in accepted.items() if isinstance(value, dict)}
        whole = {name: value for name, value in accepted.items() if name not in nested}
        if nested:
            for path, owner in self.owners.items():
                if len(path) > 1 and path[0] in nested:
                    _insert(whole, path, json.loads(owner.text))
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
            # `a` was a value, and `a.b` comes: the group takes the place of the value.
            below = level[key] = {}
        level = below
    level[path[-1]] = value
