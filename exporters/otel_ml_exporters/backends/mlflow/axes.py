"""Which axis the steps of a metric count: MLflow has one step for all, so the run's tags say it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from otel_ml_exporters.backends.mlflow.names import numbered

__all__ = ["AXES", "SUMMARY", "Axes", "axes_in"]

AXES = "otel_ml.axes"
"""Tags `otel_ml.axes.0`, `.1`, …: `{"axis": ["metric", …]}`; metrics that no tag names are on the axis `step`."""

SUMMARY = "(summary)"
"""What the tags say instead of an axis for final values."""

_DEFAULT = "step"
# MLflow's limit of a tag's value is 8,000 characters.
_MAX_LENGTH = 7500


def axes_in(tags: Mapping[str, str]) -> dict[str, str]:
    """Return metric key → axis, as the tags of a run say.

    Examples:
        >>> axes_in({"otel_ml.axes.0": '{"eval": ["eval/accuracy"]}'})
        {'eval/accuracy': 'eval'}
    """
    return {name: axis for part in _parts(tags) for axis, names in part.items() for name in names}


def _parts(tags: Mapping[str, str]) -> list[dict[str, list[str]]]:
    return [_part(tags[key]) for key in numbered(tags, AXES)]


def _part(text: str) -> dict[str, list[str]]:
    try:
        part: dict[str, list[str]] = json.loads(text)
    except ValueError:
        return {}  # one that MLflow has cut: its names count as those of `step`, and the run goes on
    return part


class Axes:
    """Gives every metric of an axis a key of its own, and keeps the tags that say which axis it counts.

    Args:
        tags: the run's, as stored.
        names: the metrics it has.
        fit: returns what MLflow takes instead of a name, the same each time.
    """

    def __init__(self, tags: Mapping[str, str], names: Iterable[str], fit: Callable[[str], str] = str) -> None:
        self._fit = fit
        # Metrics that no tag names are on `step`; those that one names come second, and win.
        self._axis = {**dict.fromkeys(names, _DEFAULT), **axes_in(tags)}
        self._parts = _parts(tags)
        self._changed: set[int] = set()

    def key(self, name: str, axis: str) -> str:
        """Return the metric's key: its name, or `<name>/over_<axis>` where another axis has that name already."""
        return self._own_key(name, axis, after=f"/over_{axis}")

    def summary_key(self, name: str) -> str:
        """Return the key of a final value: its name, or `summary/<name>` where that is a metric of an axis."""
        return self._own_key(name, SUMMARY, before="summary/")

    @property
    def unwritten(self) -> dict[str, str]:
        """Tags to write before the points of new metrics."""
        return {f"{AXES}.{part}": json.dumps(self._parts[part]) for part in sorted(self._changed)}

    def mark_written(self) -> None:
        """Note that `unwritten` is stored."""
        self._changed.clear()

    def _own_key(self, name: str, axis: str, before: str = "", after: str = "") -> str:
        key = self._fit(name)
        while self._axis.get(key, axis) != axis:  # more than once where a metric is called as what is made here
            name = f"{before}{name}{after}"
            key = self._fit(name)
        self._note(key, axis)
        return key

    def _note(self, key: str, axis: str) -> None:
        if key in self._axis:
            return
        self._axis[key] = axis
        if axis == _DEFAULT:
            return
        last = self._parts[-1] if self._parts else {}
        # Its length as it is written: a letter that is not ASCII takes six characters of JSON, or twelve.
        if not last or len(json.dumps({**last, axis: [*last.get(axis, ()), key]})) > _MAX_LENGTH:
            self._parts.append({})
        self._parts[-1].setdefault(axis, []).append(key)
        # A metric is noted in the last tag, so each new one writes one tag again, and never all of them.
        self._changed.add(len(self._parts) - 1)
