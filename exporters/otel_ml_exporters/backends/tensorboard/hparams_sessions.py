"""Further rows of the HPARAMS tab: what a writer's second `add_hparams()` and those after gave, each in a sub-run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from otel_ml.wire.attributes import SESSIONS_PARAM
from otel_ml_exporters.backends.tensorboard.exporter_state import ExporterState

__all__ = ["MAIN", "Sessions"]

MAIN = ""
"""The run's own row."""

_TAKEN = frozenset({"time", "amended"})
"""Sub-runs of the exporter."""

_LONGEST = 250
"""Bytes of a folder's name: file systems take 255."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions that a run names; their parameters begin with `<name>.`, their metrics with `<name>/`."""

    names: tuple[str, ...]

    @classmethod
    def named_in(cls, params: Mapping[str, object]) -> Sessions:
        """Return those that a run's flat parameters name.

        Examples:
            >>> Sessions.named_in({"otel_ml.sessions": '["trial1", "a/b"]'}).folders
            {'trial1': 'trial1', 'a/b': 'a_b-c14cdd'}
        """
        try:
            found = json.loads(str(params.get(SESSIONS_PARAM, "[]")))
        except ValueError:
            found = []
        return cls(tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ())

    @property
    def folders(self) -> dict[str, str]:
        """Name → folder in the run's: the name, where it can be one."""
        return {name: _folder(name) for name in self.names}

    def by_folder(self, metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Return folder → metric → value; `MAIN` is what belongs to no other session."""
        found: dict[str, dict[str, float]] = {}
        for name, value in metrics.items():
            session = self._of(name, "/")
            place, inner = (MAIN, name) if session is None else (_folder(session), name[len(session) + 1 :])
            found.setdefault(place, {})[inner] = value
        return found

    def notes(self, notes: ExporterState) -> Iterator[tuple[str, ExporterState]]:
        """Yield folder and notes of each session, the run's own first."""
        params = {name: value for name, value in notes.params.items() if self._of(name, ".") is None}
        # The list of sessions is for us, and not a parameter of the run.
        params.pop(SESSIONS_PARAM, None)
        yield (
            MAIN,
            replace(notes, params=params, metrics=[name for name in notes.metrics if self._of(name, "/") is None]),
        )
        for session in self.names:
            at = len(session) + 1
            params = {name[at:]: value for name, value in notes.params.items() if self._of(name, ".") == session}
            metrics = [name[at:] for name in notes.metrics if self._of(name, "/") == session]
            yield _folder(session), replace(notes, params=params, metrics=metrics)

    def _of(self, name: str, separator: str) -> str | None:
        # The longest: `lr1.5.decay` is the parameter `decay` of a session `lr1.5`, and not `5.decay` of `lr1`.
        return max((session for session in self.names if name.startswith(session + separator)), key=len, default=None)


def _folder(session: str) -> str:
    clean = re.sub(r"[^\w.+=-]", "_", session).strip(".")
    # What was changed ends in a digest: `a/b` and `a_b` are two sessions.
    if clean == session and clean not in _TAKEN and len(clean.encode()) <= _LONGEST:
        return clean
    begin = clean[:100].encode()[: _LONGEST - 7].decode("utf-8", "ignore")
    return f"{begin}-{hashlib.sha256(session.encode('utf-8', 'replace')).hexdigest()[:6]}"
