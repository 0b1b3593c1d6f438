"""Each kind of thing → what records it in otel_ml."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import otel_ml
from otel_ml.compat.itwinai import measure
from otel_ml.compat.itwinai.entry import Entry
from otel_ml.compat.itwinai.files import described, is_path, model_file
from otel_ml.compat.itwinai.kinds import KINDS, MEASURED
from otel_ml.compat.itwinai.session import Joined
from otel_ml.compat.tracking.step_axes import WITHIN
from otel_ml.integrations.several_numbers import as_one
from otel_ml.warn_once import RecordingError, reporter

__all__ = ["measured", "record"]

SECONDS = "seconds"
"""The axis of what has no step of training: whole seconds since the context was created."""


def measured(entry: Entry) -> Entry | None:
    """Return `entry` with what its kind measures as its item; None where nothing measures it or that fails, as said."""
    if entry.kind not in MEASURED:
        return entry
    try:
        found = replace(entry, item=_MEASURES[entry.kind](entry))
    except RecordingError:
        raise
    except Exception as error:  # noqa: BLE001 (users' models)
        _say_failed(entry, error)
        return None
    return None if found.item is None and entry.kind == "carbon" else found


def record(entry: Entry, kinds: Collection[str]) -> None:
    """Record `entry` as its kind says, if it is one of `kinds`, else as an artifact; what fails is counted and said."""
    try:
        (_RECORDERS[entry.kind] if entry.kind in kinds else _keep)(entry)
    except RecordingError:
        raise
    except Exception as error:  # noqa: BLE001 (users' models, objects that cannot be pickled, full disks)
        _say_failed(entry, error)


def _say_failed(entry: Entry, error: Exception) -> None:
    reporter.drop(
        "bad_event",
        f"log({entry.identifier!r}, kind={entry.kind!r}) failed with {type(error).__name__}: {error}. Expected "
        "something of that kind; it is not recorded, and training goes on.",
    )


def _keep(entry: Entry) -> None:
    """Keep what no logger has a place for as an artifact, and say so once."""
    known = "" if entry.kind in KINDS else f" Expected one of {', '.join(sorted(KINDS))}."
    reporter.say(
        "itwinai-artifact",
        f"{' and '.join(entry.loggers)}: no place for kind={entry.kind!r}. What is logged so, such as "
        f"{entry.identifier!r}, is kept as an artifact.{known}",
    )
    _artifact(entry, entry.files.kept(entry.item, entry.identifier), entry.kind)


def _number(entry: Entry, name: str, value: Any, *, axis: str | None = None, step: int | None = None) -> None:
    options = {key: entry.options[key] for key in ("reduce", "within", "weight", "over") if key in entry.options}
    value = _plain(value)
    if not options:
        # Without options it is logged as in itwinai: one number of a name at a step, of which the last counts.
        value, options["within"] = as_one(value), WITHIN
    if entry.has_several:
        # Beside the mean each worker's own curve, as itwinai has runs of each worker.
        options.setdefault("reduce", ("mean", "rank"))
    at = entry.joined.rows.step_of((name,), entry.step) if axis is None else step
    otel_ml.record(name, value, step=at, axis=axis, **options)


def _plain(value: Any) -> Any:
    """Return a TensorFlow tensor as an array; everything else is known."""
    return value.numpy() if type(value).__module__.startswith("tensorflow") else value


def _metric(entry: Entry) -> None:
    _number(entry, entry.name, entry.item)


def _param(entry: Entry) -> None:
    prefix = entry.joined.prefix
    if entry.has_several:
        # Of one name the lowest rank's value counts; each worker's own is kept under its number.
        otel_ml.log_params({entry.identifier: entry.item}, prefix=entry.joined.named(f"worker_{entry.rank}"))
    if not entry.has_several or entry.rank == 0:
        otel_ml.log_params({entry.identifier: entry.item}, prefix=prefix)


def _text(entry: Entry) -> None:
    otel_ml.log_text(entry.name, str(entry.item), step=entry.step)


def _image(entry: Entry) -> None:
    otel_ml.log_image(entry.name, _plain(entry.item), step=entry.step)


def _figure(entry: Entry) -> None:
    if hasattr(entry.item, "savefig"):
        otel_ml.log_figure(entry.name, entry.item, step=entry.step)
    else:
        _artifact(entry, entry.files.kept(entry.item, entry.identifier), "figure")


def _dict(entry: Entry) -> None:
    _artifact(entry, entry.files.as_mapping(entry.item, entry.identifier), "dict")


def _file(entry: Entry) -> None:
    if isinstance(entry.item, str) and not is_path(entry.item):
        _artifact(entry, entry.item, "file")  # a path without a file: counted and said there
    else:
        _artifact(entry, entry.files.kept(entry.item, entry.identifier), "file")


def _torch(entry: Entry) -> None:
    if hasattr(entry.item, "named_modules"):
        otel_ml.log_text(entry.name, f"```text\n{entry.item}\n```", step=entry.step)
    _artifact(entry, entry.files.as_torch(entry.item, entry.identifier), "torch")


def _model(entry: Entry) -> None:
    for_mlflow = "MLFlowLogger" in entry.loggers
    aliases = ("latest", "best") if entry.kind == "best_model" else ("latest",)
    path = model_file(entry.item, entry.identifier, entry.files, for_mlflow=for_mlflow)
    otel_ml.log_artifact(path, name=entry.name, type="model", step=entry.step, aliases=aliases)


def _dataset(entry: Entry) -> None:
    identifier = entry.identifier.removesuffix(".json")
    _artifact(entry, entry.files.as_mapping(described(entry.item), f"{identifier}.json"), "dataset")


def _watch(entry: Entry) -> None:
    options = {key: entry.options[key] for key in ("log", "log_freq") if key in entry.options}
    _watch_gradients(entry.item, entry.joined, **options)


def _flops(count: Callable[[Any, Any], int]) -> Callable[[Entry], Any]:
    def operations(entry: Entry) -> Any:
        counted = isinstance(entry.item, (tuple, list)) and len(entry.item) == 2
        return count(*entry.item) if counted else entry.item

    return operations


def _system(entry: Entry) -> Any:
    return measure.system() if entry.item is None else entry.item


def _carbon(entry: Entry) -> Any:
    if entry.item is not None:
        return entry.item
    joules = entry.energy.joules()
    if joules is None:
        reporter.say(
            "itwinai-no-energy",
            f"log(None, {entry.identifier!r}, kind='carbon'): nothing measures energy here; it is not recorded. "
            "Expected a readable Intel RAPL counter or an NVIDIA GPU; or log the number that you measured.",
        )
        return None
    kwh = joules / 3.6e6
    intensity = float(entry.options.get("g_per_kwh", measure.CARBON_INTENSITY))
    return {"energy_kWh": kwh, "emissions_kg": kwh * intensity / 1000}


def _execution_time(entry: Entry) -> Any:
    return entry.seconds if entry.item is None else entry.item


def _timed_values(entry: Entry) -> None:
    """Record a number, or several below the name; without a step at the second since the context was created."""
    at_second = entry.step is None
    for name, value in entry.named_values(entry.name):
        if at_second:
            _number(entry, name, value, axis=SECONDS, step=int(entry.seconds))
        else:
            _number(entry, name, value)


def _documents(entry: Entry) -> None:
    paths = [entry.item] if isinstance(entry.item, str) or not isinstance(entry.item, (list, tuple)) else entry.item
    for path in paths:
        _artifact(entry, path, "provenance")


def _artifact(entry: Entry, path: Any, artifact_type: str) -> None:
    otel_ml.log_artifact(path, name=entry.name, type=artifact_type, step=entry.step)


_LOG_FREQ = 1000
"""Backward passes between two histograms, as W&B's `watch()` has it."""


def _watch_gradients(model: Any, joined: Joined, *, log: str = "gradients", log_freq: int = _LOG_FREQ) -> list[Any]:
    """Record the gradient of each parameter of `model` at the first backward pass and each `log_freq`-th after it.

    Args:
        model: a `torch.nn.Module`.
        joined: the run, and what stands before `gradients/<parameter>`; after its end nothing is recorded.
        log: `"gradients"`, `"parameters"` or `"all"`.
        log_freq: backward passes between two.

    Returns:
        The hooks; `remove()` of each ends it.
    """
    return [
        parameter.register_hook(_hook(name, parameter, joined, log, max(1, int(log_freq))))
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]


def _hook(name: str, parameter: Any, joined: Joined, log: str, log_freq: int) -> Callable[[Any], None]:
    passes = 0

    def hook(gradient: Any) -> None:
        nonlocal passes
        if not joined.run.is_active:  # the model goes on, maybe in another run
            return
        passes += 1
        # The first pass, then each `log_freq`-th after it.
        if (passes - 1) % log_freq:
            return
        if log in {"gradients", "all"}:
            otel_ml.log_histogram(joined.named(f"gradients/{name}"), gradient)
        if log in {"parameters", "all"}:
            otel_ml.log_histogram(joined.named(f"parameters/{name}"), parameter)

    return hook


_RECORDERS: Mapping[str, Callable[[Entry], None]] = {
    "metric": _metric,
    "param": _param,
    "text": _text,
    "image": _image,
    "figure": _figure,
    "dict": _dict,
    "artifact": _file,
    "torch": _torch,
    "model": _model,
    "best_model": _model,
    "dataset": _dataset,
    "watch": _watch,
    "flops_pb": _metric,
    "flops_pe": _metric,
    "system": _timed_values,
    "carbon": _timed_values,
    "execution_time": _metric,
    "prov_documents": _documents,
}

_MEASURES: Mapping[str, Callable[[Entry], Any]] = {
    "flops_pb": _flops(measure.flops_of_batch),
    "flops_pe": _flops(measure.flops_of_epoch),
    "system": _system,
    "carbon": _carbon,
    "execution_time": _execution_time,
}
