"""`mlflow.log_metric()` and the other calls that record.

What MLflow keeps as a file at a path is a text, an image, a table or an artifact of that name here: every backend shows
it, and MLflow's folders say which it is, `texts/notes/a.txt/…`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import otel_ml
from otel_ml._internal.events.config_values import config_value
from otel_ml._internal.events.temporary_folder import TemporaryFolder
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml.compat.mlflow.active_run import NOTE, RUN_NAME, ActiveRun, Facts
from otel_ml.compat.mlflow.open_runs import STATE, current, run_of
from otel_ml.compat.tracking.as_number import in_memory, plain_float, scalars
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept
from otel_ml.compat.tracking.pictures import in_range
from otel_ml.compat.tracking.step_axes import whole
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable

__all__ = [
    "answer",
    "delete_tag",
    "flush_artifact_async_logging",
    "flush_async_logging",
    "flush_trace_async_logging",
    "load_table",
    "log_artifact",
    "log_artifacts",
    "log_dict",
    "log_figure",
    "log_image",
    "log_input",
    "log_inputs",
    "log_metric",
    "log_metrics",
    "log_param",
    "log_params",
    "log_stream",
    "log_table",
    "log_text",
    "set_tag",
    "set_tags",
]


MOST_TABLES = 100
"""Of one name that `load_table()` can have: a table stays in memory for it."""


class Recorded:
    """What MLflow returns for `synchronous=False`: here all is recorded when the call returns."""

    def wait(self) -> None:
        """Return at once."""


_RECORDED = Recorded()


def answer(synchronous: bool | None) -> Recorded | None:
    """Return what a call gives back that was told `synchronous=`."""
    return _RECORDED if synchronous is False else None


def log_metric(
    key: str,
    value: Any,
    step: int | None = None,
    synchronous: bool | None = None,
    timestamp: int | None = None,
    run_id: str | None = None,
    model_id: str | None = None,
    dataset: Any = None,
) -> Recorded | None:
    """Record a value at `step`; without one, at the run's, or the next where the metric has a value there already.

    Of one rank's values of a metric at a step the last counts. MLflow puts values without a step at step 0.
    """
    if timestamp is not None or model_id is not None or dataset is not None:
        _say_unused("log_metric", timestamp=timestamp, model_id=model_id, dataset=dataset)
    # The usual call does without the block, which would cost time at each value.
    if run_id is None:
        _log_metric(current(), key, value, step)
    else:
        with run_of("log_metric", run_id) as active:
            _log_metric(active, key, value, step)
    return answer(synchronous)


@reports_unrecordable
def _log_metric(active: ActiveRun, key: str, value: Any, step: int | None) -> None:
    prefix = active.prefix
    name = f"{prefix}{key}" if prefix else key
    counts = STATE.counts
    row = scalars({name: value})
    _remember(active, row)
    counts.log(row, counts.next(name) if step is None else _step(name, step))


def _remember(active: ActiveRun, row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        number = plain_float(in_memory(value))
        if number is not None and name != active.prefix and isinstance(name, str):
            active.data.metrics[name.removeprefix(active.prefix)] = number


def log_metrics(
    metrics: Mapping[str, Any],
    step: int | None = None,
    synchronous: bool | None = None,
    run_id: str | None = None,
    timestamp: int | None = None,
    model_id: str | None = None,
    dataset: Any = None,
) -> Recorded | None:
    """Record several values, see `log_metric()`."""
    if timestamp is not None or model_id is not None or dataset is not None:
        _say_unused("log_metrics", timestamp=timestamp, model_id=model_id, dataset=dataset)
    if run_id is None:
        _log_metrics(current(), metrics, step)
    else:
        with run_of("log_metrics", run_id) as active:
            _log_metrics(active, metrics, step)
    return answer(synchronous)


@reports_unrecordable
def _log_metrics(active: ActiveRun, metrics: Mapping[str, Any], step: int | None) -> None:
    prefix = active.prefix
    row = scalars({f"{prefix}{key}": value for key, value in metrics.items()} if prefix else metrics)
    counts = STATE.counts
    # One row has one step: the first one that none of its names has a value at.
    at = max(map(counts.next, row), default=0) if step is None else _step("log_metrics()", step)
    _remember(active, row)
    counts.log(row, at)


def _say_unused(call: str, **given: Any) -> None:
    """Say which arguments are not kept: the time, a model, a data set."""
    for name in (name for name, value in given.items() if value is not None):
        not_kept(f"mlflow.{call}({name}=…)", "it means nothing to otel_ml; the value is recorded without it.")


def _step(name: str, step: Any) -> int:
    index = whole(step)
    if index is None:
        of = f"of {safe_repr(name)}"
        not_kept(f"step={safe_repr(step)} {of}", "a step is a whole number from 0 on; the run's own is used.", of)
        return STATE.counts.next(name)
    return index


def log_param(key: str, value: Any, synchronous: bool | None = None) -> Any:
    """Record a parameter, and return its value. It may be changed, where MLflow raises."""
    _log_params(current(), {key: value})
    return _RECORDED if synchronous is False else value


def log_params(
    params: Mapping[str, Any], synchronous: bool | None = None, run_id: str | None = None
) -> Recorded | None:
    """Record parameters; nested ones too."""
    with run_of("log_params", run_id) as active:
        _log_params(active, params)
    return answer(synchronous)


@reports_unrecordable
def _log_params(active: ActiveRun, params: Mapping[str, Any]) -> None:
    active.data.params.update(_texts(params))
    otel_ml.log_params(params, prefix=active.prefix.rstrip("/") or None)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    known = config_value(values)
    return {key: text_of(value) for key, value in known.items()} if isinstance(known, dict) else {}


def set_tag(key: str, value: Any, synchronous: bool | None = None, run_id: str | None = None) -> Recorded | None:
    """Record a tag, as the parameter `tags.<key>`: only `start_run(tags=…)` comes early enough for tags."""
    return set_tags({key: value}, synchronous, run_id)


def set_tags(tags: Mapping[str, Any], synchronous: bool | None = None, run_id: str | None = None) -> Recorded | None:
    """Record tags, see `set_tag()`."""
    _set_tags(tags, run_id)
    return answer(synchronous)


@reports_unrecordable
def _set_tags(tags: Mapping[str, Any], run_id: str | None) -> None:
    with run_of("set_tags", run_id) as active:
        active.data.tags.update(_texts(tags))
        _describe(active, {field: text_of(tags[tag]) for tag, field in _DESCRIBED.items() if tags.get(tag) is not None})
        otel_ml.log_params(tags, prefix=f"{active.prefix}tags")


_DESCRIBED = {RUN_NAME: "name", NOTE: "notes"}
"""Tags that are not only tags in MLflow, and what they say of the run."""


def _describe(active: ActiveRun, said: Mapping[str, str]) -> None:
    """Have the run called and described anew; a nested one is a part of its run, which keeps its own."""
    active.info.run_name = said.get("name", active.info.run_name)
    # Not `active.run`: inside of run_of() the named run is the current one.
    session = RUNTIME.current
    if said and not active.prefix and session is not None:
        session.describe(**said)


def delete_tag(key: str, run_id: str | None = None) -> None:
    """Forget a tag in this process; what is written stays."""
    with run_of("delete_tag", run_id) as active:
        was = active.data.tags.pop(key, None)
    none = f"MlflowException: No tag with name: {key} in this run."
    stays = "this process forgets it; what is written already stays."
    not_kept(f"mlflow.delete_tag({key!r})", none if was is None else stays)


def flush_async_logging() -> None:
    """Return at once: the background thread sends."""


def flush_trace_async_logging(terminate: bool = False) -> None:
    """Return at once: traces are MLflow's own."""
    del terminate


flush_artifact_async_logging = flush_async_logging


@reports_unrecordable
def log_artifact(local_path: Any, artifact_path: str | None = None, run_id: str | None = None) -> None:
    """Record a file, or a folder, below `artifact_path`."""
    name = f"{artifact_path}/{Path(local_path).name}" if artifact_path else Path(local_path).name
    with run_of("log_artifact", run_id) as active:
        otel_ml.log_artifact(local_path, name=f"{active.prefix}{name}")


@reports_unrecordable
def log_artifacts(local_dir: Any, artifact_path: str | None = None, run_id: str | None = None) -> None:
    """Record a folder with all its files."""
    with run_of("log_artifacts", run_id) as active:
        name = f"{active.prefix}{artifact_path or Path(local_dir).name}"
        otel_ml.log_artifact(local_dir, name=name, type="folder")


@reports_unrecordable
def log_text(text: str, artifact_file: str, run_id: str | None = None) -> None:
    """Record a text."""
    with run_of("log_text", run_id) as active:
        active.keep_text(artifact_file, text)
        otel_ml.log_text(f"{active.prefix}{artifact_file}", text)


@reports_unrecordable
def log_dict(dictionary: Any, artifact_file: str, run_id: str | None = None) -> None:
    """Record a dictionary as a text: YAML where the name ends so, else JSON."""
    text = json.dumps(dictionary, indent=2, default=str)
    if Path(artifact_file).suffix in {".yaml", ".yml"}:
        import yaml

        text = yaml.safe_dump(json.loads(text), sort_keys=False)
    with run_of("log_dict", run_id) as active:
        active.keep_text(artifact_file, text)
        otel_ml.log_text(f"{active.prefix}{artifact_file}", text)


@reports_unrecordable
def log_figure(figure: Any, artifact_file: str, *, save_kwargs: Any = None, run_id: str | None = None) -> None:
    """Record a matplotlib figure; one of plotly as text."""
    options_not_kept("mlflow.log_figure", "the figure is a PNG of its own size.", save_kwargs=save_kwargs)
    with run_of("log_figure", run_id) as active:
        name = f"{active.prefix}{artifact_file}"
        if hasattr(figure, "savefig"):
            otel_ml.log_figure(name, figure)
        else:
            not_kept(f"mlflow.log_figure({artifact_file!r})", "a figure that is not of matplotlib is kept as text.")
            otel_ml.log_text(name, figure.to_json() if hasattr(figure, "to_json") else str(figure))


@reports_unrecordable
def log_image(
    image: Any,
    artifact_file: str | None = None,
    key: str | None = None,
    step: int | None = None,
    timestamp: int | None = None,
    synchronous: bool | None = None,
    run_id: str | None = None,
) -> None:
    """Record an image as a file, or under `key` at `step`."""
    del synchronous  # nothing waits, in either case
    options_not_kept("mlflow.log_image", "a picture has the time of its call.", timestamp=timestamp)
    if artifact_file is not None and (key is not None or step is not None):
        wrong = "TypeError: artifact_file cannot be used with key, step or timestamp"
        not_kept(f"mlflow.log_image({artifact_file!r})", f"{wrong}. It is kept as {key or artifact_file!r}.")
    if key is None and artifact_file is None:
        wrong = "TypeError: Please specify exactly one of artifact_file or key"
        not_kept("mlflow.log_image()", f"{wrong}. It is kept as 'image'.")
    picture = image.to_pil() if hasattr(image, "to_pil") else in_range(image)
    with run_of("log_image", run_id) as active:
        name = f"{active.prefix}{key or artifact_file or 'image'}"
        if step is None:
            otel_ml.log_image(name, picture)
        else:
            at = _step(name, step)
            otel_ml.log_image(name, picture, step=at, axis=STATE.counts.axis_beside(name))


@reports_unrecordable
def log_table(data: Any, artifact_file: str, run_id: str | None = None) -> None:
    """Record a table: a dictionary of columns or of single cells, or a DataFrame; `load_table()` joins them."""
    table = _columns(data) if isinstance(data, Mapping) else data
    with run_of("log_table", run_id) as active:
        active.tables.setdefault(artifact_file, deque(maxlen=MOST_TABLES)).append(table)
        otel_ml.log_table(f"{active.prefix}{artifact_file}", table)


def _columns(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table by its columns; a single cell is repeated for each row, as pandas does for MLflow."""
    # The first column says how many rows there are; without one there is one row.
    rows = next((len(value) for value in data.values() if _is_column(value)), 1)
    return {key: value if _is_column(value) else [value] * rows for key, value in data.items()}


def _is_column(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or bool(getattr(value, "shape", None))  # a number of numpy has the shape ()


@reports_unrecordable
def log_input(dataset: Any = None, context: str | None = None, tags: Any = None, model: Any = None) -> None:
    """Record what a data set says of itself as parameters."""
    options_not_kept("mlflow.log_input", "what the data set says of itself is recorded.", tags=tags, model=model)
    if dataset is None:
        return
    said = dataset.to_dict() if hasattr(dataset, "to_dict") else {"name": str(dataset)}
    labels = [Facts(key=key, value=str(value)) for key, value in (tags or {}).items()]
    labels += [Facts(key="mlflow.data.context", value=context)] if context else []
    current().inputs.dataset_inputs.append(Facts(dataset=Facts(**said), tags=labels))
    otel_ml.log_params({context or "dataset": said}, prefix="inputs")


@reports_unrecordable
def log_inputs(
    datasets: Sequence[Any] | None = None,
    contexts: Sequence[str | None] | None = None,
    tags_list: Sequence[Any] | None = None,
    models: Sequence[Any] | None = None,
) -> None:
    """Record what several data sets say of themselves, see `log_input()`."""
    options_not_kept(
        "mlflow.log_inputs", "what the data sets say of themselves is recorded.", tags_list=tags_list, models=models
    )
    for number, dataset in enumerate(datasets or ()):
        log_input(dataset, contexts[number] if contexts else None)


@reports_unrecordable
def log_stream(stream: Any, artifact_file: str, run_id: str | None = None) -> None:
    """Record what a stream has as a file."""
    folder = TemporaryFolder("stream")
    path = folder.path / Path(artifact_file).name
    path.write_bytes(stream.read())
    with run_of("log_stream", run_id) as active:
        otel_ml.log_artifact(path, name=f"{active.prefix}{artifact_file}")


def load_table(artifact_file: str, run_ids: Any = None, extra_columns: Any = None) -> Any:
    """Return as a DataFrame what runs of this process have logged under that name, the newest 100 tables of each.

    Args:
        artifact_file: as `log_table()` was given it.
        run_ids: of the runs; by default the active one.
        extra_columns: what is said of the run beside: `run_id`, or another of its `info`.
    """
    import pandas as pd  # type: ignore[import-untyped] # its stubs are another package

    runs = [STATE.known(run_id) for run_id in run_ids] if run_ids else [current()]
    frames = []
    for run in (run for run in runs if run is not None):
        for table in run.tables.get(artifact_file, ()):
            frame = pd.DataFrame(table)
            frames.append(frame.assign(**{name: getattr(run.info, name, None) for name in extra_columns or ()}))
    if frames:
        return pd.concat(frames, ignore_index=True)
    not_kept(f"mlflow.load_table({artifact_file!r})", "no run of this process has logged it. Use the package 'mlflow'.")
    return pd.DataFrame()
