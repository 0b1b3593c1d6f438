"""What a script's `wandb.define_metric(…, step_metric=…)` said: which metric is drawn over which other one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from otel_ml.flatten import leaves
from otel_ml.wire.attributes import DEFAULT_AXIS, STEP_METRICS_PARAM
from otel_ml.wire.published_name import matches
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
        # Key → what it is drawn over: each row asks for each of its metrics, and globs are matched once.
        self._found: dict[str, str | None] = {}
        with contextlib.suppress(OSError, ValueError):
            self._take(json.loads(memory.read_text(encoding="utf-8")))

    def learn(self, params: Mapping[str, JsonValue]) -> None:
        """Take what parameters say of it; nothing, where they say nothing."""
        said = dict(leaves(params)).get(STEP_METRICS_PARAM)
        if said is None:
            return
        self._take(said)
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        self._memory.write_text(json.dumps(self._defined), encoding="utf-8")

    def _take(self, said: object) -> None:
        pairs = said if isinstance(said, (list, tuple)) else ()
        self._defined = [
            (str(pair[0]), str(pair[1])) for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2
        ]
        self._found.clear()

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
            globs = (over for name, over in reversed(self._defined) if matches(key, name))
            over = exact or next(globs, None)
            self._found[key] = None if over == key else over
        return self._found[key]
