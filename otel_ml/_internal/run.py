"""What `init()` returns."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from otel_ml._internal.events import log_summary
from otel_ml.printable import printable

__all__ = ["Run"]


class Lifecycle(Protocol):
    """Who ends the run."""

    def enter(self, run: Run) -> None:
        """Note that a block of the run begins; within it, a library's `with init()` ends nothing."""

    def leave(self, run: Run, status: str) -> None:
        """End the run with its outermost block, if it is still the active one."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The experiment run this process records into; a context manager, of which the outermost block ends it.

    Attributes:
        id: keep it in checkpoints: `init(id=…)` continues the run.
        name: display name.
        experiment: W&B project, MLflow experiment, folder.
        dir: the run's folder, or None where the service is elsewhere.
        role: of this process.
        rank: of this process.
    """

    id: str
    name: str
    experiment: str
    dir: Path | None
    role: str
    rank: int
    _lifecycle: Lifecycle
    _status: Callable[[], Mapping[str, Any] | None]

    @property
    def urls(self) -> Mapping[str, str]:
        """Where to look, by exporter; empty while the service does not answer. Asks the service."""
        exporters = (self._status() or {}).get("exporters") or {}
        return {name: str(state["url"]) for name, state in exporters.items() if state.get("url")}

    def summary(self, values: Mapping[str, float]) -> None:
        """Record final scalars: W&B summary, MLflow metric, TensorBoard hparams metric.

        Equal values of several ranks are one entry, that of the lowest; one that differs is `<name>/rank_<r>`, decided
        at the end of the run.
        """
        log_summary(values)

    def __enter__(self) -> Run:
        self._lifecycle.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        is_interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        is_fine = kind is None or (isinstance(error, SystemExit) and error.code in {None, 0})
        self._lifecycle.leave(self, "killed" if is_interrupted else "finished" if is_fine else "failed")

    def __repr__(self) -> str:
        return f"Run({self.experiment}/{self.id}, role={self.role!r}, rank={self.rank})"

    def _repr_html_(self) -> str:
        links = "".join(f"<li>{_shown(name)}: {_link(url)}</li>" for name, url in sorted(self.urls.items()))
        folder = f"<br><code>{_shown(str(self.dir))}</code>" if self.dir else ""
        title = f"<b>{_shown(self.experiment)}</b> / {_shown(self.name)}"
        return f"<div>otel_ml run {title}{folder}<ul>{links}</ul></div>"


def _shown(text: str) -> str:
    return html.escape(printable(text))


def _link(url: str) -> str:
    shown = _shown(url)
    return f'<a href="{shown}" target="_blank">{shown}</a>' if url.startswith(("http://", "https://")) else shown
