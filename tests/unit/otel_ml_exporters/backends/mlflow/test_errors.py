from __future__ import annotations

import inspect
from types import ModuleType

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


@pytest.fixture(scope="module")
def mlflow_exceptions() -> ModuleType:
    """Return them; not at the top, where each process that collects tests would import MLflow."""
    from mlflow import exceptions

    return exceptions


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED"])
def test_credentials_that_are_not_taken_may_be_put_right(code: str, mlflow_exceptions: ModuleType) -> None:
    assert type(export_error(mlflow_exceptions.RestException({"error_code": code}))) is RetryableExportError


def test_every_exception_class_of_mlflow_is_accounted_for(mlflow_exceptions: ModuleType) -> None:
    classes = inspect.getmembers(mlflow_exceptions, inspect.isclass)
    own = {name for name, kind in classes if issubclass(kind, mlflow_exceptions.MlflowException)}

    assert own <= set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_each_class_is_retried_or_given_up(name: str, mlflow_exceptions: ModuleType) -> None:
    make, expected = MADE[name]

    assert type(export_error(make(getattr(mlflow_exceptions, name)))) is expected


def expected(status: int) -> type[Exception]:
    is_permanent = (400 <= status < 500 and status not in {401, 403, 408, 409, 429, 499}) or status == 501
    return PermanentExportError if is_permanent else RetryableExportError


def test_every_error_code_follows_its_http_status(mlflow_exceptions: ModuleType) -> None:
    statuses = mlflow_exceptions.ERROR_CODE_TO_HTTP_STATUS

    raised = {code: mlflow_exceptions.RestException({"error_code": code, "message": "why"}) for code in statuses}
    errors = {code: export_error(error) for code, error in raised.items()}

    assert len(errors) > 20
    assert [code for code, status in statuses.items() if not isinstance(errors[code], expected(status))] == []
    assert [code for code, error in errors.items() if "why" not in str(error)] == []


def test_a_locked_database_is_retried(mlflow_exceptions: ModuleType) -> None:
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
