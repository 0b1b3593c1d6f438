"""Every exporter the contract suite is run on: adding a backend adds one `Case` and one reader."""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import JsonValue
from otel_ml_exporters.registry import BUILT_IN, exporter_class

__all__ = ["CASES", "UNREADABLE", "Case", "case"]


def as_given(value: JsonValue) -> JsonValue:
    return value


def same_double(value: float) -> float:
    return value


NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True)
class Case:
    """One exporter and what the suite has to know about its backend.

    Attributes:
        exporter: makes one; called with the working directory in a folder of the test, and in other processes.
        reader: module run as `python -m tests.contract.readers.<reader> <run dir> <run id>`; see `readers`.
        stores: the keys of the reader's answer, besides `scalars`, that the backend has a place for.
        retold: the keys of the reader's answer that a later launch may change.
        value: what the backend stores of a double.
        param: what the backend stores of a parameter's value.
        cell: what the backend stores of a cell of a table.
        refuses: finds what the backend does not take in a name of a metric or of a parameter.
    """

    id: str
    exporter: Callable[[], Exporter]
    reader: str
    stores: frozenset[str] = frozenset()
    retold: frozenset[str] = frozenset()
    value: Callable[[float], float] = same_double
    param: Callable[[JsonValue], JsonValue] = as_given
    cell: Callable[[JsonValue], JsonValue] = as_given
    refuses: re.Pattern[str] = NOTHING

    @property
    def package(self) -> str | None:
        """What `start` cannot do without (`MissingDependencyError`); None where it needs nothing."""
        return BUILT_IN[self.id].package


def made(name: str, **options: object) -> Callable[[], Exporter]:
    """Return a maker that imports the exporter's module only when it is called."""
    return partial(_make, name, options)


def _make(name: str, options: dict[str, object]) -> Exporter:
    return exporter_class(name)(**options)


def float32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def number_or_text(value: JsonValue) -> JsonValue:
    """Return a parameter as TensorBoard's protobuf holds it: a double, a truth value or a string."""
    if isinstance(value, (bool, str)):
        return value
    return float(value) if isinstance(value, (int, float)) else str(value)


def largest_instead_of_infinite(value: float) -> float:
    """Return what MLflow stores: its database has no infinity."""
    return math.copysign(sys.float_info.max, value) if math.isinf(value) else value


def as_text(value: JsonValue) -> JsonValue:
    """Return a parameter as MLflow holds it."""
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)


MEDIA = frozenset({"texts", "tables", "images", "audio", "histograms"})

CASES = [
    Case("jsonl", made("jsonl"), reader="jsonl", stores=MEDIA | {"params", "summary", "artifacts", "status"}),
    Case(
        "tensorboard",
        made("tensorboard"),
        reader="tensorboard",
        stores=MEDIA | {"params", "summary", "status"},
        value=float32,
        param=number_or_text,
        cell=str,
    ),
    Case(
        "mlflow",
        made("mlflow"),
        reader="mlflow",
        stores=MEDIA | {"params", "summary", "artifacts", "tags", "status"},
        retold=frozenset({"tags", "notes"}),
        value=largest_instead_of_infinite,
        refuses=re.compile(r"[^\w/.\- :]|\A/|//|/\Z|(\A|/)\.{1,2}(/|\Z)|.{251}"),
        param=as_text,
    ),
    Case(
        "wandb",
        made("wandb", mode="offline"),
        reader="wandb",
        stores=MEDIA | {"params", "summary", "artifacts", "tags", "status"},
        retold=frozenset({"tags", "notes"}),
        refuses=re.compile(r"[*]|\A_step\Z"),
    ),
    Case("parquet", made("parquet"), reader="parquet"),
    # Where it sends to is said by the environment, see `conftest`.
    Case("otlp", made("otlp"), reader="otlp"),
    Case(
        "swanlab",
        made("swanlab"),
        reader="swanlab",
        stores=frozenset({"params", "summary", "texts", "images", "tags", "status"}),
        refuses=re.compile(r"\A[./]|[./]\Z|.{449}"),
    ),
    Case(
        "trackio",
        made("trackio"),
        reader="trackio",
        stores=MEDIA | {"params", "summary"},
        refuses=re.compile(r"\A(step|__.*)\Z"),
    ),
]


UNREADABLE = [
    Case("console", made("console"), reader=""),
    # It sends spans alone, and there is no backend to ask for them here. Where to is said by the environment, too.
    Case("traces", made("traces"), reader=""),
    # A status has the newest value of a metric. Which TrainJob's is said by the environment, too.
    Case("kubeflow", made("kubeflow"), reader=""),
]
"""Exporters whose backend keeps nothing of a step: only the clauses about an exporter's life hold for them."""


def case(case_id: str) -> Case:
    """Return the case of an id."""
    return next(case for case in [*CASES, *UNREADABLE] if case.id == case_id)
