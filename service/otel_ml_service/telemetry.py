"""The service's metrics about itself: the catalogue, the counters, and their Prometheus text.

Names exist in this file only, so that they cannot drift between `/metrics`, a run and the docs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["CATALOGUE", "Labels", "Measure", "Telemetry"]

CATALOGUE: Final[Mapping[str, tuple[str, str]]] = {
    "requests": ("counter", "OTLP requests acknowledged, by signal."),
    "refused": ("counter", "OTLP requests not accepted, by reason."),
    "slowed": ("counter", "Times a connection asked faster than it may, and was read later."),
    "rejected": ("counter", "Points that will never be accepted (partial success), by reason."),
    "probes": ("counter", "Questions of `otel-ml doctor` that were answered, and belong to no run."),
    "received": ("counter", "Points that arrived, duplicates included."),
    "ranks": ("gauge", "Ranks of which something was heard, of the newest attempt of each role."),
    "ranks_expected": ("gauge", "Ranks there are, by what those that were heard say."),
    "recorded": ("counter", "Values recorded by the users' programs."),
    "superseded": ("counter", "Of these, values that a later attempt of the job recorded again."),
    "unreceived": ("gauge", "Of these, values that were sent, have not arrived, and are waited for."),
    "duplicate": ("counter", "Points that arrived again and changed nothing."),
    "too_late": ("counter", "Points that came after the fold state of their step was gone; kept in late.otlp."),
    "amended": ("counter", "Values that changed after they were exported."),
    "dropped": ("counter", "Values lost, by reason."),
    "delivered": ("gauge", "Newest record an exporter's backend holds, by exporter."),
    "lost": ("counter", "Values an exporter's backend does not take, by exporter."),
    "lag": ("gauge", "Records an exporter has still to write, by exporter."),
    "open_steps": ("gauge", "Steps that wait for a rank."),
    "overhead_s": ("gauge", "Seconds the users' threads spent recording, of processes that have ended."),
    "build_info": ("gauge", "1, with the version of the service."),
    "journal_bytes": ("gauge", "Bytes acknowledged and not yet decided."),
}
"""Name → (Prometheus type, meaning).

In a run they are called `otel_ml/<name>`, in Prometheus `otel_ml_<name>`, with `_total` and `_seconds` as it has them.
"""

MAX_LABELS = 100
"""Label sets of one counter: reasons quote what was sent, and a sender may send something else each time."""

_OTHER = "other"

Labels = tuple[tuple[str, str], ...]

Measure = tuple[str, Labels, float]
"""(name of the catalogue, labels, value)."""


class Telemetry:
    """Counters that any thread may add to."""

    def __init__(self) -> None:
        # Guards _values: receivers, the engine's and the exporters' threads all count.
        self._lock = threading.Lock()
        self._values: dict[tuple[str, Labels], float] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter of the catalogue."""
        key = (_known(name), tuple(sorted(labels.items())))
        with self._lock:
            if key not in self._values and sum(of == name for of, _ in self._values) >= MAX_LABELS:
                key = (name, tuple((label, _OTHER) for label, _ in key[1]))
            self._values[key] = self._values.get(key, 0) + amount

    def value(self, name: str, **labels: str) -> float:
        """Return one value, 0 where nothing was counted."""
        with self._lock:
            return self._values.get((_known(name), tuple(sorted(labels.items()))), 0)

    def prometheus(self, measured: Iterable[Measure] = ()) -> str:
        """Return everything in the Prometheus text format.

        Args:
            measured: what is not counted but looked up when it is asked for.

        Examples:
            >>> telemetry = Telemetry()
            >>> telemetry.count("requests", 2, signal="metrics")
            >>> print(telemetry.prometheus(), end="")
            # HELP otel_ml_requests_total OTLP requests acknowledged, by signal.
            # TYPE otel_ml_requests_total counter
            otel_ml_requests_total{signal="metrics"} 2
        """
        with self._lock:
            values = dict(self._values)
        values |= {(_known(name), tuple(sorted(labels))): value for name, labels, value in measured}
        lines = []
        for name, (kind, meaning) in CATALOGUE.items():
            full = _in_prometheus(name, kind)
            found = [(labels, value) for (of, labels), value in values.items() if of == name]
            if found:
                lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}"]
                lines += [f"{full}{_braced(labels)} {value:.17g}" for labels, value in sorted(found)]
        return "".join(f"{line}\n" for line in lines)


def _in_prometheus(name: str, kind: str) -> str:
    """Return a name as Prometheus has it, which writes units out.

    Examples:
        >>> _in_prometheus("requests", "counter"), _in_prometheus("overhead_s", "gauge")
        ('otel_ml_requests_total', 'otel_ml_overhead_seconds')
    """
    spelled = f"{name.removesuffix('_s')}_seconds" if name.endswith("_s") else name
    return f"otel_ml_{spelled}_total" if kind == "counter" else f"otel_ml_{spelled}"


def _known(name: str) -> str:
    if name not in CATALOGUE:
        raise KeyError(f"{name!r} is not in the catalogue of self-telemetry: {', '.join(CATALOGUE)}.")
    return name


def _braced(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{key}="{_escaped(value)}"' for key, value in labels)
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
