"""A W3C PROV document of a run, its graph, and the picture of it."""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_ml import Run
from otel_ml.compat.itwinai.buffer import Summary
from otel_ml.compat.itwinai.entry import Entry
from otel_ml.exceptions import MissingDependencyError
from otel_ml.redaction import redacted_values
from otel_ml.warn_once import reporter

__all__ = ["Document", "written"]

_DRAWING_TIMEOUT_S = 20.0
"""Graphviz takes minutes for a graph of thousands of nodes, which nobody can read."""


class Document:
    """Collects what a run used and generated.

    The run is an activity, informed by one activity for each context (`training`, `validation`). Parameters and data
    sets are entities that the run used; metrics, models and measurements are entities that a context generated.

    Args:
        namespace: of the names: an IRI or a host.
        run: the run.
        rank: of this worker.

    Raises:
        MissingDependencyError: `prov` is not installed.
    """

    def __init__(self, namespace: str, run: Run, rank: int) -> None:
        try:
            from prov.model import ProvDocument
        except ImportError as error:
            raise MissingDependencyError("Prov4MLLogger", package="prov", extra="provenance") from error
        self._document = ProvDocument()
        self._names = self._document.add_namespace("ex", _iri(namespace))
        self._number = 0
        self._contexts: dict[str, Any] = {}
        self._run = self._document.activity(
            self._names["run"],
            startTime=_now(),
            other_attributes={
                self._names["run_id"]: run.id,
                self._names["experiment"]: run.experiment,
                self._names["rank"]: rank,
            },
        )
        agent = self._document.agent(
            self._names["otel_ml"],
            other_attributes={"prov:type": self._document.valid_qualified_name("prov:SoftwareAgent")},
        )
        self._run.wasAssociatedWith(agent)

    def note(self, context: str, entry: Entry) -> None:
        """Note one thing that was logged and is not a metric."""
        # Of anything else the class alone: a document of PROV is text, and a model or a tensor has no place in it.
        value = entry.item if isinstance(entry.item, (bool, int, float, str)) else type(entry.item).__qualname__
        attributes = {"kind": entry.kind, "value": value, "step": entry.step}
        node = self._entity(entry.identifier, attributes)
        if entry.kind in {"param", "dataset"} or (entry.kind == "torch" and hasattr(entry.item, "batch_size")):
            self._run.used(node)
        else:
            node.wasGeneratedBy(self._activity(context), time=_now())

    def parameters(self, params: Any) -> None:
        """Note hyper-parameters."""
        given = params if isinstance(params, Mapping) else vars(params)
        for name, value in redacted_values(dict(given)).items():
            self._run.used(self._entity(str(name), {"kind": "param", "value": json.dumps(value, default=str)}))

    def metric(self, summary: Summary) -> None:
        """Note a metric, with what its file holds."""
        attributes = {
            "kind": "metric",
            "count": summary.count,
            "first_step": summary.first_step,
            "last_step": summary.last_step,
            "last": summary.last,
            "min": summary.min,
            "max": summary.max,
            "file": str(summary.path),
        }
        self._entity(summary.name, attributes).wasGeneratedBy(self._activity(summary.context), time=_now())

    def finished(self) -> Any:
        """Return the document, the activities ended."""
        for activity in (self._run, *self._contexts.values()):
            activity.set_time(endTime=_now())
        return self._document

    def _activity(self, context: str) -> Any:
        found = self._contexts.get(context)
        if found is None:
            label = {"prov:label": context}
            found = self._document.activity(self._names[_local(context)], startTime=_now(), other_attributes=label)
            self._contexts[context] = found
            self._run.wasInformedBy(found)
        return found

    def _entity(self, label: str, attributes: Mapping[str, Any]) -> Any:
        # One thing may be logged many times under one name, and each is an entity; their identifiers differ by this
        # number.
        self._number += 1
        own = {self._names[key]: value for key, value in attributes.items() if value is not None}
        name = self._names[f"{_local(label)}.{self._number}"]
        return self._document.entity(name, {"prov:label": label, **own})


def written(document: Any, folder: Path, *, graph: bool, svg: bool) -> list[Path]:
    """Write a document as PROV-JSON and, where asked for, as a graph and its picture; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "provenance.json"]
    document.serialize(str(paths[0]), format="json")
    if not (graph or svg):
        return paths
    drawn = _dot(document)
    if drawn is None:
        return paths
    dot = folder / "provenance.dot"
    dot.write_text(drawn, encoding="utf-8")
    if graph:
        paths.append(dot)
    picture = _picture(dot) if svg else None
    return [*paths, picture] if picture is not None else paths


def _dot(document: Any) -> str | None:
    try:
        from prov.dot import prov_to_dot
    except ImportError:
        reporter.say(
            "itwinai-provenance",
            "Prov4MLLogger: no graph is written, the package 'pydot' is not installed. The document is there. Expected "
            "both: pip install 'otel-ml[provenance]'.",
        )
        return None
    return str(prov_to_dot(document).to_string())


def _picture(dot: Path) -> Path | None:
    program = shutil.which("dot")
    picture = dot.with_suffix(".svg")
    if program is None:
        reporter.say(
            "itwinai-provenance",
            f"Prov4MLLogger: no picture is drawn, Graphviz is not installed. The graph is {str(dot)!r}. Expected the "
            "program dot: install the package graphviz, then run dot -Tsvg on it.",
        )
        return None
    command = [program, "-Tsvg", str(dot), "-o", str(picture)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_DRAWING_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        reporter.say(
            "itwinai-provenance",
            f"Prov4MLLogger: the graph {str(dot)!r} cannot be drawn: {type(error).__name__}. The graph is there as "
            "text; draw it with dot -Tsvg.",
        )
        return None
    return picture


def _iri(namespace: str) -> str:
    full = namespace if "://" in namespace else f"http://{namespace}"
    return full if full.endswith(("/", "#")) else f"{full}/"


def _local(name: str) -> str:
    from otel_ml.wire.published_name import ascii_spelling

    return ascii_spelling(name).replace("/", ".")


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
