from __future__ import annotations

import inspect

import mlflow.exceptions as mlflow_exceptions
import pytest

from otel_ml_exporters.backends.mlflow.errors import export_error
from otel_ml_exporters.errors import ExporterClosedError, PermanentExportError, RetryableExportError, translated

MADE = {
    "MlflowException": (lambda kind: kind("connection refused"), RetryableExportError),
    "RestException": (lambda kind: kind({"error_code": "INVALID_PARAMETER_VALUE"}), PermanentExportError),
    "ExecutionException": (lambda kind: kind("x"), RetryableExportError),
    "MissingConfigException": (lambda kind: kind("x"), RetryableExportError),
    "InvalidUrlException": (lambda kind: kind("Invalid url"), PermanentExportError),
    "MlflowNotImplementedException": (lambda kind: kind(), PermanentExportError),
    "_UnsupportedMultipartUploadException": (lambda kind: kind(), PermanentExportError),
    "_UnsupportedMultipartDownloadException": (lambda kind: kind(), PermanentExportError),
    "_UnsupportedPresignedUploadException": (lambda kind: kind(), PermanentExportError),
    "_UnsupportedPresignedDownloadException": (lambda kind: kind(), PermanentExportError),
    "MlflowTracingException": (lambda kind: kind("x"), RetryableExportError),
    "MlflowTraceDataException": (lambda kind: kind("x"), RetryableExportError),
    "MlflowTraceDataNotFound": (lambda kind: kind("request"), PermanentExportError),
    "MlflowTraceDataCorrupted": (lambda kind: kind("request"), RetryableExportError),
    "MlflowTraceArchivalMalformedTrace": (lambda kind: kind("x"), PermanentExportError),
}
"""How each class is made, and what it becomes; a class that MLflow adds has to be thought about here."""


def test_every_exception_class_of_mlflow_is_accounted_for() -> None:
    classes = inspect.getmembers(mlflow_exceptions, inspect.isclass)
    own = {name for name, kind in classes if issubclass(kind, mlflow_exceptions.MlflowException)}

    assert own <= set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_each_class_is_retried_or_given_up(name: str) -> None:
    make, expected = MADE[name]

    assert type(export_error(make(getattr(mlflow_exceptions, name)))) is expected


@pytest.mark.parametrize(
    ("code", "status"), sorted((code, status) for code, status in mlflow_exceptions.ERROR_CODE_TO_HTTP_STATUS.items())
)
def test_every_error_code_follows_its_http_status(code: str, status: int) -> None:
    permanent = (400 <= status < 500 and status not in {408, 409, 429, 499}) or status == 501

    error = export_error(mlflow_exceptions.RestException({"error_code": code, "message": "why"}))

    assert isinstance(error, PermanentExportError if permanent else RetryableExportError)
    assert "why" in str(error)


def test_a_locked_database_is_retried() -> None:
    from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE
    from sqlalchemy.exc import OperationalError

    locked = OperationalError("INSERT …", {}, Exception("database is locked"))

    assert isinstance(export_error(locked), RetryableExportError)
    assert isinstance(
        export_error(mlflow_exceptions.MlflowException(locked, error_code=TEMPORARILY_UNAVAILABLE)),
        RetryableExportError,
    )


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("slow"), OSError(28, "no space left")])
def test_what_the_operating_system_refuses_is_retried(error: OSError) -> None:
    assert isinstance(export_error(error), RetryableExportError)


@pytest.mark.parametrize("error", [TypeError("x"), ValueError("x"), FileNotFoundError("x"), KeyError("x")])
def test_a_mistake_in_the_records_is_given_up(error: Exception) -> None:
    assert isinstance(export_error(error), PermanentExportError)


def test_our_own_errors_pass_as_they_are() -> None:
    with pytest.raises(ExporterClosedError), translated(export_error):
        raise ExporterClosedError("mlflow")
