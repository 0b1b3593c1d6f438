"""What a script's `wandb.define_metric()` said: which metric is drawn over which other one, which has no summary."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from otel_ml.flatten import leaves
from otel_ml.wire.attributes import DEFAULT_AXIS, HIDDEN_SUMMARIES_PARAM, STEP_METRICS_PARAM
from otel_ml.wire.published_name import matches_beginning
from otel_ml_exporters.records import JsonValue

__all__ = ["StepMetrics"]


class StepMetrics:
    """Remembers it in a file, for the exporter that goes on after this one: a parameter comes once.

    Args:
        memory: the file.
    """

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._defined: list[tuple[str, str]] = []
        self._hidden: list[tuple[str, bool]] = []
        # Key → what it is drawn over: each row asks for each of its metrics, and globs are matched once.
        self._found: dict[str, str | None] = {}
        with contextlib.suppress(OSError, ValueError):
            remembered = json.loads(memory.read_text(encoding="utf-8"))
            # A list is that of an older version, which knows of no summaries.
            self._take(remembered if isinstance(remembered, dict) else {STEP_METRICS_PARAM: remembered})

    def learn(self, params: Mapping[str, JsonValue]) -> bool:
        """Take what parameters say of it; return whether they say something."""
        known = dict(leaves(params))
        said: dict[str, object] = {
            name: known[name] for name in (STEP_METRICS_PARAM, HIDDEN_SUMMARIES_PARAM) if name in known
        }
        if said:
            self._take(said)
            remembered = {STEP_METRICS_PARAM: self._defined, HIDDEN_SUMMARIES_PARAM: self._hidden}
            self._memory.parent.mkdir(parents=True, exist_ok=True)
            self._memory.write_text(json.dumps(remembered), encoding="utf-8")
        return bool(said)

    def _take(self, said: Mapping[str, object]) -> None:
        if STEP_METRICS_PARAM in said:
            self._defined = [(str(name), str(over)) for name, over in _pairs(said[STEP_METRICS_PARAM])]
            self._found.clear()
        if HIDDEN_SUMMARIES_PARAM in said:
            self._hidden = [(str(name), is_hidden is True) for name, is_hidden in _pairs(said[HIDDEN_SUMMARIES_PARAM])]

    def hides(self, key: str) -> bool:
        """Return whether W&B's summary shall have nothing of a metric; which definition counts is as below."""
        globs = (is_hidden for name, is_hidden in reversed(self._hidden) if matches_beginning(key, name))
        return dict(self._hidden).get(key, next(globs, False))

    def drawn(self, axis: str, row: Collection[str]) -> dict[str, str]:
        """Return metric → what it is drawn over, of those of a row; not where the row has no value of that.

        A row of another axis than that of the run has one: its index.
        """
        if not self._defined:
            return {}
        over = {key: one for key in row if (one := self._of(key)) is not None}
        return {key: one for key, one in over.items() if axis != DEFAULT_AXIS or one in row}

    def _of(self, key: str) -> str | None:
        """Return what W&B would: an exact name wins over globs, a later glob over those before."""
        if key not in self._found:
            exact = dict(self._defined).get(key)
            globs = (over for name, over in reversed(self._defined) if matches_beginning(key, name))
            over = exact or next(globs, None)
            self._found[key] = None if over == key else over
        return self._found[key]


def _pairs(said: object) -> Iterator[tuple[object, object]]:
    for pair in said if isinstance(said, (list, tuple)) else ():
        if isinstance(pair, (list, tuple)) and len(pair) == 2:
            yield pair[0], pair[1]
