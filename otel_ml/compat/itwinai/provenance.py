"""`Prov4MLLogger`: what was logged, as a W3C PROV document and its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import otel_ml
from otel_ml.compat.itwinai import kinds
from otel_ml.compat.itwinai.buffer import Buffer, Noted, not_written
from otel_ml.compat.itwinai.document import Document, written
from otel_ml.compat.itwinai.entry import Entry
from otel_ml.compat.itwinai.logger import Logger
from otel_ml.compat.itwinai.session import Joined
from otel_ml.warn_once import reporter

__all__ = ["Prov4MLLogger"]


_SAVE_AFTER = 100


class Prov4MLLogger(Logger):
    """Records into the run, and writes a W3C PROV document of it when the context is destroyed.

    The documents are in `<provenance_save_dir>/<run id>/` and artifacts of the run: `provenance.json` (PROV-JSON), with
    `create_graph` also `provenance.dot`, with `create_svg` and Graphviz also `provenance.svg`; and one CSV file
    for each metric, `context,step,time,value`, to which the document refers. `log(…, context="validation")` says to
    which part of the experiment something belongs; without it, to `training`.

    Args:
        prov_user_namespace: of the names in the document, an IRI or a host.
        experiment_name: of the run.
        provenance_save_dir: folder of the documents.
        save_after_n_logs: records that are kept in memory before they are written.
        create_graph: also write the graph.
        create_svg: also draw it, where Graphviz is installed.
        log_freq: `"epoch"`, `"batch"` or every n-th batch.
        log_on_workers: a rank, several, -1 for all, or None for none.
    """

    supported_kinds: ClassVar[frozenset[str]] = kinds.PROVENANCE
    elsewhere: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("yprov4ml", "mlflow", "context", "param_context"),
        "otel_ml writes the documents itself. A context is log(…, context=…).",
    )

    def __init__(
        self,
        prov_user_namespace: str = "www.example.org",
        experiment_name: str | None = None,
        provenance_save_dir: str | PathLike[str] = "mllogs/prov_logs",
        save_after_n_logs: int | None = _SAVE_AFTER,
        create_graph: bool | None = True,
        create_svg: bool | None = True,
        log_freq: str | int = "epoch",
        log_on_workers: int | Sequence[int] | None = 0,
    ) -> None:
        super().__init__(provenance_save_dir, log_freq, log_on_workers, experiment_id=experiment_name)
        self.experiment_name = experiment_name
        self.provenance_save_dir: str = str(provenance_save_dir)
        self.prov_user_namespace = prov_user_namespace
        self.save_after_n_logs: int = max(1, int(_SAVE_AFTER if save_after_n_logs is None else save_after_n_logs))
        self.create_graph: bool = bool(create_graph)
        self.create_svg: bool = bool(create_svg)
        self._document: Document | None = None
        self._buffer: Buffer | None = None
        self._folder = Path(provenance_save_dir)

    def begin(self, joined: Joined) -> None:
        """Begin the document."""
        rank = f"worker_{self.worker_rank}" if self.has_several else ""
        self._folder = Path(self.savedir, joined.run.id, rank)
        self._document = Document(self.prov_user_namespace, joined.run, self.worker_rank)
        self._buffer = Buffer(self._folder, self.save_after_n_logs)

    def observe(self, entry: Entry) -> None:
        """Note what is logged."""
        if self._document is None or self._buffer is None:
            return
        context = str(entry.options.get("context") or "training")
        if entry.kind == "metric":
            self._buffer.note(Noted(context, entry.identifier, entry.step, entry.item))
        elif entry.kind in kinds.MEASURED:
            for name, value in entry.named_values(entry.identifier):
                self._buffer.note(Noted(context, name, entry.step, value))
        else:
            self._document.note(context, entry)

    def observe_parameters(self, params: Any) -> None:
        """Note hyper-parameters."""
        if self._document is not None:
            self._document.parameters(params)

    def end(self) -> None:
        """Write the documents, and keep them as artifacts."""
        document, buffer = self._document, self._buffer
        # Before anything that may fail: the next context begins a new document.
        self._document = self._buffer = None
        if document is None or buffer is None:
            return
        for summary in buffer.close():
            document.metric(summary)
        try:
            paths = written(document.finished(), self._folder, graph=self.create_graph, svg=self.create_svg)
        except OSError as error:
            reporter.say("itwinai-provenance", not_written(self._folder, error))
            return
        for path in (*paths, *buffer.paths):
            otel_ml.log_artifact(path, name=f"provenance/{path.relative_to(self._folder)}", type="provenance")
