"""Exporter names → classes: a small table of our own, then the entry-point group `otel_ml.exporters`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import new_class
from typing import NamedTuple

from otel_ml.exceptions import MissingDependencyError
from otel_ml_exporters.errors import UnknownExporterError
from otel_ml_exporters.exporter import Exporter

__all__ = [
    "BUILT_IN",
    "GROUP",
    "VERBS",
    "BuiltIn",
    "as_exporter",
    "check_installed",
    "exporter_class",
    "is_registered",
    "registered",
    "shown_failure",
    "split_name",
]

GROUP = "otel_ml.exporters"

VERBS = ("start", "export", "force_flush", "shutdown")
"""What a class must have to be an exporter."""

_BACKENDS = "otel_ml_exporters.backends"


class BuiltIn(NamedTuple):
    """A backend of our own.

    Attributes:
        target: `module:class`.
        package: what it cannot write without; the extra of the exporter's name brings it.
        variables: how the names of the variables begin that it, or its backend's library, reads.
    """

    target: str
    package: str | None = None
    variables: tuple[str, ...] = ()


BUILT_IN: Mapping[str, BuiltIn] = {
    "console": BuiltIn(f"{_BACKENDS}.console:ConsoleExporter"),
    "jsonl": BuiltIn(f"{_BACKENDS}.jsonl:JsonlExporter"),
    "kubeflow": BuiltIn(f"{_BACKENDS}.kubeflow:KubeflowExporter", variables=("KUBEFLOW_TRAINER_SERVER_",)),
    "mlflow": BuiltIn(f"{_BACKENDS}.mlflow:MlflowExporter", "mlflow", ("MLFLOW_",)),
    "otlp": BuiltIn(f"{_BACKENDS}.otlp:OtlpExporter", variables=("OTEL_EXPORTER_OTLP_",)),
    "parquet": BuiltIn(f"{_BACKENDS}.parquet:ParquetExporter", "pyarrow"),
    "swanlab": BuiltIn(f"{_BACKENDS}.swanlab:SwanlabExporter", "swanlab", ("SWANLAB_",)),
    # It writes its files without TensorBoard, which only shows them.
    "tensorboard": BuiltIn(f"{_BACKENDS}.tensorboard:TensorBoardExporter"),
    "traces": BuiltIn(f"{_BACKENDS}.otlp:TracesExporter", variables=("OTEL_ML_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_")),
    "trackio": BuiltIn(f"{_BACKENDS}.trackio:TrackioExporter", "trackio", ("TRACKIO_",)),
    "wandb": BuiltIn(f"{_BACKENDS}.wandb:WandbExporter", "wandb", ("WANDB_",)),
}


def registered() -> Mapping[str, str]:
    """Return every known exporter name with its `module:class`."""
    plugins = {point.name: point.value for point in entry_points(group=GROUP)}
    # Ours last: no package that is installed beside us may write instead of `jsonl`.
    return {**plugins, **{name: backend.target for name, backend in BUILT_IN.items()}}


def is_registered(name: str) -> bool:
    """Whether there is an exporter of this name (an instance suffix such as `/remote` is ignored)."""
    return split_name(name)[0] in registered()


def split_name(name: str) -> tuple[str, str]:
    """Split `mlflow/remote` into the exporter and the instance (`""` for the plain name)."""
    kind, _, instance = name.partition("/")
    return kind, instance


def exporter_class(name: str) -> type[Exporter]:
    """Return the class registered as `name` (an instance suffix such as `/remote` is ignored).

    Raises:
        UnknownExporterError: with the nearest known name.
        MissingDependencyError: its module cannot be imported without a package that is not installed.
    """
    kind, _ = split_name(name)
    known = registered()
    if kind not in known:
        raise UnknownExporterError(kind, known)
    module, _, attribute = known[kind].partition(":")
    try:
        # Here a plug-in's own code runs, which may raise anything: who calls this reports it.
        found = getattr(importlib.import_module(module), attribute)
    except MissingDependencyError:
        raise
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"Exporter {kind!r}", package=error.name or kind, extra=kind) from error
    return as_exporter(known[kind], found)


def as_exporter(where: str, found: object) -> type[Exporter]:
    """Return a class as an exporter: one that has the four verbs gets the base class's defaults for all else.

    Raises:
        TypeError: it is not a class, or lacks a verb; which one is said.
    """
    if isinstance(found, type) and issubclass(found, Exporter):
        return found
    missing = [verb for verb in VERBS if not callable(getattr(found, verb, None))]
    if missing or not isinstance(found, type):
        lacks = f"it has no {', '.join(missing)}" if missing else f"it is not a class, but {found!r:.80}"
        raise TypeError(f"{where} is not an exporter: {lacks}. An exporter is a class with {', '.join(VERBS)}.")
    try:
        about = {"__doc__": found.__doc__, "__module__": found.__module__}
        # A class of both: its own methods come first, and what it lacks is the base's.
        return new_class(found.__name__, (found, Exporter), exec_body=lambda namespace: namespace.update(about))
    except TypeError as error:  # a metaclass of its own
        raise TypeError(f"{where} cannot be completed: {error}. Subclass otel_ml_exporters.Exporter.") from error


def check_installed(name: str) -> None:
    """Find out whether the package of an exporter is there, without importing it: W&B and MLflow take seconds.

    Raises:
        MissingDependencyError: it is not; with the line that installs it.
    """
    kind, _ = split_name(name)
    package = BUILT_IN[kind].package if kind in BUILT_IN else None
    if package is not None and find_spec(package) is None:
        raise MissingDependencyError(f"Exporter {kind!r}", package=package, extra=kind)


def shown_failure(error: BaseException) -> str:
    """Return what an exporter's own code raised while it was loaded or made, for a person.

    Examples:
        >>> shown_failure(ValueError("no key"))
        'it cannot be loaded: ValueError: no key'
    """
    return f"it cannot be loaded: {type(error).__name__}: {error}".rstrip(": .")
