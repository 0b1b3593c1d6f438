"""`MlflowClient`: what is asked of a run that this process has begun is answered here, all else by MLflow's own."""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from otel_ml._internal.lifecycle.read_run import metric_rows, metrics_file, read, record_lines
from otel_ml.compat.mlflow import recorded
from otel_ml.compat.mlflow.active_run import ActiveRun, Facts
from otel_ml.compat.mlflow.open_runs import STATE
from otel_ml.compat.mlflow.runs import get_parent_run, get_run, of_mlflow
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.recorded_files import copied
from otel_ml.exceptions import OtelMLError
from otel_ml.explanation import explained

__all__ = ["MlflowClient"]


class MlflowClient:
    """MLflow's client.

    Of a run that this process has begun, it records into that run, and reads what the run has in its own folder. Every
    other run, and every other method, is that of the client of the package `mlflow`.
    """

    def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        self._where = {"tracking_uri": tracking_uri, "registry_uri": registry_uri}
        self._mlflows: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy that is being made
            raise AttributeError(name)
        is_of_a_run = name in _OF_A_RUN or name in _NOT_KEPT
        return functools.partial(self._call, name) if is_of_a_run else getattr(self._of_mlflow(), name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_OF_A_RUN, *_NOT_KEPT]

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        run_id = args[0] if args else kwargs.get("run_id")
        known = STATE.known(run_id) if isinstance(run_id, str) else None
        if known is None or (name in _OF_ITS_FILE and _is_elsewhere(known)):
            return getattr(self._of_mlflow(), name)(*args, **kwargs)
        if name in _NOT_KEPT:
            return not_kept(f"MlflowClient.{name}({run_id!r})", _NOT_KEPT[name])
        return _OF_A_RUN[name](*args, **kwargs)

    def _of_mlflow(self) -> Any:
        if self._mlflows is None:
            self._mlflows = of_mlflow("MlflowClient", is_of_the_server=True)(**self._where)
        return self._mlflows


def get_metric_history(run_id: str, key: str) -> list[Facts]:
    """Return the values that are written of a metric, by step."""
    run = _of(run_id)
    name = f"{run.prefix}{key}"
    try:
        steps, values = read(run.run, name).get(name, ((), ()))
        # The values of read() are those after corrections; it has no times, which the rows have.
        times = {row["step"]: row["time"] for row in metric_rows(metrics_file(run.run)) if name in row["values"]}
    except OtelMLError as error:
        not_kept(f"MlflowClient.get_metric_history({key!r})", f"the history is empty: {error}")
        return []
    return [
        Facts(key=key, value=value, step=step, timestamp=int(times.get(step, 0) * 1000), run_id=run_id)
        for step, value in zip(steps, values, strict=True)
    ]


def list_artifacts(run_id: str, path: str | None = None) -> list[Facts]:
    """Return the files and folders of a folder of artifacts; not of texts, images and tables."""
    prefix = f"{path.rstrip('/')}/" if path else ""
    found: dict[str, Facts] = {}
    for place, (_, size) in _artifacts(run_id).items():
        if place.startswith(prefix):
            # Of `a/b.txt` and `a/c.txt` the folder without a path has one entry: the folder `a`.
            first, _, rest = place[len(prefix) :].partition("/")
            below = f"{prefix}{first}"
            found[below] = Facts(path=below, is_dir=bool(rest), file_size=None if rest else size)
    return [found[below] for below in sorted(found)]


def download_artifacts(run_id: str, path: str, dst_path: str | None = None) -> str:
    """Copy a file or a folder of artifacts to a folder, by default a new one, and return where it is.

    Raises:
        OSError: as MLflow's: there is none of that path.
        ValueError: the name of a file leads out of the folder.
    """
    asked = path.strip("/")
    wanted = {
        place: local
        for place, (local, _) in _artifacts(run_id).items()
        # With the slash, or `model` would also be the beginning of `model2`. Without a path it is everything.
        if f"{place}/".startswith(f"{asked}/" * bool(asked))
    }
    if not wanted:
        raise FileNotFoundError(explained(f"Run {run_id!r} has no artifact {path!r} in its own folder.", "not-kept"))
    top = Path(dst_path or tempfile.mkdtemp(prefix="otel-ml-artifacts-"))
    for place, local in wanted.items():
        copied(local, top, place)
    return str(top / asked)


def log_metric(
    run_id: str,
    key: str,
    value: Any,
    timestamp: int | None = None,
    step: int | None = None,
    synchronous: bool | None = None,
    dataset_name: str | None = None,
    dataset_digest: str | None = None,
    model_id: str | None = None,
) -> Any:
    """Record a value, see `mlflow.log_metric()`."""
    dataset = dataset_name or dataset_digest
    return recorded.log_metric(key, value, step, synchronous, timestamp, run_id, model_id, dataset)


def log_batch(
    run_id: str,
    metrics: Iterable[Any] = (),
    params: Iterable[Any] = (),
    tags: Iterable[Any] = (),
    synchronous: bool | None = None,
) -> Any:
    """Record values at their steps, parameters and tags."""
    for metric in metrics:
        recorded.log_metric(metric.key, metric.value, metric.step, run_id=run_id)
    recorded.log_params({param.key: param.value for param in params}, run_id=run_id)
    recorded.set_tags({tag.key: tag.value for tag in tags}, run_id=run_id)
    return recorded.answer(synchronous)


def log_param(run_id: str, key: str, value: Any, synchronous: bool | None = None) -> Any:
    """Record a parameter, and return its value."""
    recorded.log_params({key: value}, run_id=run_id)
    # As in MLflow: the value, and only for `synchronous=False` what can be waited for.
    return value if synchronous is not False else recorded.answer(synchronous)


def _of_a_run(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of `mlflow` as its client has it: the run comes first."""

    @functools.wraps(call)
    def named(run_id: str, *args: Any, **kwargs: Any) -> Any:
        return call(*args, run_id=run_id, **kwargs)

    of_call = inspect.signature(call)
    # help() and inspect.signature() show it as it has to be called.
    run = of_call.parameters["run_id"].replace(default=inspect.Parameter.empty, kind=_PLACED)
    rest = [parameter for name, parameter in of_call.parameters.items() if name != "run_id"]
    named.__signature__ = of_call.replace(parameters=[run, *rest])  # type: ignore[attr-defined]
    return named


_PLACED = inspect.Parameter.POSITIONAL_OR_KEYWORD

_AS_THERE = (
    *(recorded.delete_tag, recorded.log_artifact, recorded.log_artifacts, recorded.log_dict, recorded.log_figure),
    *(recorded.log_image, recorded.log_table, recorded.log_text, recorded.set_tag),
)
"""Calls that the client has with the run before their arguments, and that are the same otherwise."""

_OF_A_RUN: Mapping[str, Callable[..., Any]] = {
    **{call.__name__: _of_a_run(call) for call in _AS_THERE},
    **{
        call.__name__: call
        for call in (
            *(download_artifacts, get_metric_history, get_parent_run, get_run, list_artifacts),
            *(log_batch, log_metric, log_param),
        )
    },
}

_NOT_KEPT = {
    "delete_run": "nothing is deleted.",
    "log_inputs": "mlflow.log_input() records what a data set says of itself.",
    "log_outputs": "what a run has to do with models is not recorded.",
    "log_stream": "log_artifact() records a file.",
    "restore_run": "nothing was deleted.",
    "set_terminated": "mlflow.end_run() ends it.",
    "update_run": "set_tag() with 'mlflow.runName' names it, and mlflow.end_run() ends it.",
}
"""Methods for which MLflow would have to have the run, and what to do instead."""

_OF_ITS_FILE = frozenset({"download_artifacts", "get_metric_history", "list_artifacts"})


def _is_elsewhere(run: ActiveRun) -> bool:
    """Whether only MLflow has what was written of the run."""
    # MLflow can only be asked where it is; a run in a service elsewhere has no file here.
    return STATE.where is not None and not _has_file(run)


def _has_file(run: ActiveRun) -> bool:
    try:
        return metrics_file(run.run).is_file()
    except OtelMLError:
        return False


def _of(run_id: str) -> ActiveRun:
    found = STATE.known(run_id)
    assert found is not None, run_id
    return found


def _artifacts(run_id: str) -> dict[str, tuple[str, int]]:
    """Return path → (file, size) of what was recorded as files, as `log_artifact()` was given it; the newest counts."""
    run = _of(run_id)
    try:
        rows = [row for row in record_lines(metrics_file(run.run)) if row.get("type") == "artifact"]
    except OtelMLError as error:
        not_kept("MlflowClient.list_artifacts()", f"there are none: {error}")
        return {}
    files = {_place(row): (row["local"], row["size"]) for row in rows if row["local"]}
    return {name.removeprefix(run.prefix): file for name, file in files.items() if name.startswith(run.prefix)}


def _place(row: Mapping[str, Any]) -> str:
    """Return the path of a file: its name, or its place in the folder of that name."""
    name, inside = row["name"], row["path_in"]
    return name if PurePosixPath(name).name == inside else f"{name}/{inside}"
