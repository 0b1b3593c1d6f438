"""A run of MLflow's, and what it says of itself."""

from __future__ import annotations

import contextlib
import getpass
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace, TracebackType
from typing import Any, TypeAlias

import otel_ml
from otel_ml._internal.safe_repr import text_of

__all__ = ["NOTE", "PARENT", "RUN_NAME", "ActiveRun", "Facts", "now"]

RUN_NAME = "mlflow.runName"
NOTE = "mlflow.note.content"
PARENT = "mlflow.parentRunId"

_MOST_TEXTS = 100
"""Of one run that stay in memory."""


class Facts(SimpleNamespace):
    """What MLflow's entities say by attributes, and as pairs."""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(vars(self).items())

    def to_dictionary(self) -> dict[str, Any]:
        """Return it as a dictionary."""
        return dict(self)


class ActiveRun:
    """A run of MLflow's: `info`, `data`, and a context manager that ends it.

    Attributes:
        data: what this process has recorded: `params`, `tags`, and the last value of each of `metrics`.
        outputs: models that it has made: none is known here.
        tables: the newest of each name.
        texts: what texts and dictionaries were logged under a path, the newest 100 paths.
        prefix: what names recorded in it begin with: empty, or a nested run's own.
        parent: the run that a nested one is a part of.
        is_owner: whether ending it ends the run of the process.
    """

    def __init__(
        self,
        run: otel_ml.Run,
        run_id: str,
        name: str,
        prefix: str,
        *,
        is_owner: bool,
        tags: Mapping[str, Any],
        end: End,
    ) -> None:
        self.info: Facts = Facts(
            run_id=run_id,
            run_uuid=run_id,
            run_name=name,
            experiment_id=run.experiment,
            status="RUNNING",
            lifecycle_stage="active",
            user_id=_user(),
            start_time=now(),
            end_time=None,
            artifact_uri=str(run.dir / "artifacts") if run.dir is not None else "",
        )
        self.data: Facts = Facts(
            params={}, metrics={}, tags={**_system_tags(name), **{key: text_of(value) for key, value in tags.items()}}
        )
        self.inputs: Facts = Facts(dataset_inputs=[], model_inputs=[])
        self.outputs: Facts = Facts(model_outputs=[])
        self.tables: dict[str, deque[Any]] = {}
        self.texts: dict[str, str] = {}
        self.parent: ActiveRun | None = None
        self.run = run
        self.prefix = prefix
        self.is_owner = is_owner
        self._end = end

    def to_dictionary(self) -> dict[str, Any]:
        """Return what it says of itself as dictionaries."""
        inputs = {kind: list(map(dict, found)) for kind, found in self.inputs}
        return {"info": self.info.to_dictionary(), "data": self.data.to_dictionary(), "inputs": inputs}

    def goes_on_from(self, before: ActiveRun) -> None:
        """Keep what a run of the same id has recorded before."""
        self.data = Facts(
            params={**before.data.params, **self.data.params},
            metrics={**before.data.metrics, **self.data.metrics},
            tags={**before.data.tags, **self.data.tags},
        )
        self.inputs = before.inputs
        self.tables = before.tables
        self.texts = before.texts

    def keep_text(self, path: str, text: str) -> None:
        """Keep a text for `mlflow.artifacts.load_text()`."""
        # Taken out first, so that a path that is written again is the newest one, and the first of the dictionary the
        # oldest.
        self.texts.pop(path, None)
        self.texts[path] = text
        if len(self.texts) > _MOST_TEXTS:
            del self.texts[next(iter(self.texts))]

    def __enter__(self) -> ActiveRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self, kind, error)


End: TypeAlias = Callable[[ActiveRun, type[BaseException] | None, BaseException | None], None]
"""Ends a run: of an exception, or well."""


def _user() -> str:
    with contextlib.suppress(OSError, KeyError, ImportError):  # a container's user may have no name
        return getpass.getuser()
    return ""


def _system_tags(name: str) -> dict[str, str]:
    """Return what MLflow says of each run that begins."""
    said = {RUN_NAME: name, "mlflow.user": _user(), "mlflow.source.name": sys.argv[0], "mlflow.source.type": "LOCAL"}
    return {key: value for key, value in said.items() if value}


def now() -> int:
    """Return the time as MLflow has it, in milliseconds since 1970."""
    return int(time.time() * 1000)
