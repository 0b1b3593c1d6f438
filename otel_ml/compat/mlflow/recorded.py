"""`mlflow.log_metric()` and the other calls that record.

What MLflow keeps as a file at a path is a text, an image, a table or an artifact of that name here: every backend shows
it, and MLflow's folders say which it is, `texts/notes/a.txt/…`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import otel_ml
from otel_ml._internal.events.config_values import config_value
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.mlflow.runs import STATE, current
from otel_ml.compat.tracking.counts import whole
from otel_ml.compat.tracking.pictures import in_range
from otel_ml.compat.tracking.said import never_raises, not_kept

__all__ = [
    "log_artifact",
    "log_artifacts",
    "log_dict",
    "log_figure",
    "log_image",
    "log_input",
    "log_metric",
    "log_metrics",
    "log_param",
    "log_params",
    "log_table",
    "log_text",
    "set_tag",
    "set_tags",
]


def log_metric(key: str, value: Any, step: int | None = None, **options: Any) -> None:
    """Record a value at `step`; without one, at the run's, or the next where the metric has a value there already.

    Of one rank's values of a metric at a step the last counts. MLflow puts values without a step at step 0.
    """
    del options  # synchronous, timestamp, run_id: recording never blocks, and has its own time
    prefix = current().prefix
    name = f"{prefix}{key}" if prefix else key
    counts = STATE.counts
    counts.log({name: value}, counts.next(name) if step is None else _step(name, step))


@never_raises
def log_metrics(metrics: Mapping[str, Any], step: int | None = None, **options: Any) -> None:
    """Record several values, see `log_metric()`."""
    del options
    prefix = current().prefix
    row = {f"{prefix}{key}": value for key, value in metrics.items()} if prefix else metrics
    counts = STATE.counts
    at = max(map(counts.next, row), default=0) if step is None else _step("log_metrics()", step)
    counts.log(row, at)


def _step(name: str, step: Any) -> int:
    index = whole(step)
    if index is None:
        not_kept(f"step={step!r:.80} of {name!r}", "a step is a whole number from 0 on; the run's own is used.")
        return STATE.counts.next(name)
    return index


def log_param(key: str, value: Any, synchronous: bool | None = None) -> Any:
    """Record a parameter, and return its value. It may be changed, where MLflow raises."""
    del synchronous
    log_params({key: value})
    return value


@never_raises
def log_params(params: Mapping[str, Any], **options: Any) -> None:
    """Record parameters; nested ones too."""
    del options
    active = current()
    active.data.params.update(_texts(params))
    otel_ml.log_params(params, prefix=active.prefix.rstrip("/") or None)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    known = config_value(values)
    return {key: text_of(value) for key, value in known.items()} if isinstance(known, dict) else {}


def set_tag(key: str, value: Any, synchronous: bool | None = None) -> None:
    """Record a tag, as the parameter `tags.<key>`: only `start_run(tags=…)` comes early enough for tags."""
    del synchronous
    set_tags({key: value})


@never_raises
def set_tags(tags: Mapping[str, Any], **options: Any) -> None:
    """Record tags, see `set_tag()`."""
    del options
    active = current()
    active.data.tags.update(_texts(tags))
    otel_ml.log_params(tags, prefix=f"{active.prefix}tags")


@never_raises
def log_artifact(local_path: Any, artifact_path: str | None = None, run_id: str | None = None) -> None:
    """Record a file, or a folder, below `artifact_path`."""
    del run_id
    prefix = current().prefix
    name = f"{artifact_path}/{Path(local_path).name}" if artifact_path else Path(local_path).name
    otel_ml.log_artifact(local_path, name=f"{prefix}{name}")


@never_raises
def log_artifacts(local_dir: Any, artifact_path: str | None = None, run_id: str | None = None) -> None:
    """Record a folder with all its files."""
    del run_id
    prefix = current().prefix
    otel_ml.log_artifact(local_dir, name=f"{prefix}{artifact_path or Path(local_dir).name}", type="folder")


@never_raises
def log_text(text: str, artifact_file: str, run_id: str | None = None) -> None:
    """Record a text."""
    del run_id
    otel_ml.log_text(f"{current().prefix}{artifact_file}", text)


@never_raises
def log_dict(dictionary: Any, artifact_file: str, run_id: str | None = None) -> None:
    """Record a dictionary as a text: YAML where the name ends so, else JSON."""
    del run_id
    text = json.dumps(dictionary, indent=2, default=str)
    if Path(artifact_file).suffix in {".yaml", ".yml"}:
        import yaml

        text = yaml.safe_dump(json.loads(text), sort_keys=False)
    otel_ml.log_text(f"{current().prefix}{artifact_file}", text)


@never_raises
def log_figure(figure: Any, artifact_file: str, *, save_kwargs: Any = None) -> None:
    """Record a matplotlib figure; one of plotly as text."""
    del save_kwargs
    name = f"{current().prefix}{artifact_file}"
    if hasattr(figure, "savefig"):
        otel_ml.log_figure(name, figure)
    else:
        not_kept(f"mlflow.log_figure({artifact_file!r})", "a figure that is not of matplotlib is kept as text.")
        otel_ml.log_text(name, figure.to_json() if hasattr(figure, "to_json") else str(figure))


@never_raises
def log_image(
    image: Any, artifact_file: str | None = None, key: str | None = None, step: int | None = None, **options: Any
) -> None:
    """Record an image as a file, or under `key` at `step`."""
    del options
    name = f"{current().prefix}{key or artifact_file}"
    picture = image.to_pil() if hasattr(image, "to_pil") else in_range(image)
    if step is None:
        otel_ml.log_image(name, picture)
        return
    at = _step(name, step)
    otel_ml.log_image(name, picture, step=at, axis=STATE.counts.axis_of(name, at))


@never_raises
def log_table(data: Any, artifact_file: str, run_id: str | None = None) -> None:
    """Record a table: a dictionary of columns (or of single cells), or a DataFrame."""
    del run_id
    table = data
    if isinstance(data, Mapping):
        is_row = not any(isinstance(value, (list, tuple)) or hasattr(value, "shape") for value in data.values())
        table = {key: [value] for key, value in data.items()} if is_row else data
    otel_ml.log_table(f"{current().prefix}{artifact_file}", table)


@never_raises
def log_input(dataset: Any, context: str | None = None, tags: Any = None, **options: Any) -> None:
    """Record what a data set says of itself as parameters."""
    del tags, options
    said = dataset.to_dict() if hasattr(dataset, "to_dict") else {"name": str(dataset)}
    otel_ml.log_params({context or "dataset": said}, prefix="inputs")
