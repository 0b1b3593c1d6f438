from __future__ import annotations

import inspect
import json
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


@pytest.mark.parametrize("kind", ["InterfaceError", "InternalError", "DatabaseError", "ProgrammingError"])
def test_a_database_that_was_ill_is_retried_though_mlflow_calls_it_a_bad_request(
    kind: str, mlflow_exceptions: ModuleType
) -> None:
    import sqlalchemy.exc

    ill = getattr(sqlalchemy.exc, kind)("INSERT INTO metrics …", {}, Exception("connection already closed"))

    assert type(export_error(as_its_server_says(ill, mlflow_exceptions))) is RetryableExportError


@pytest.mark.parametrize("kind", ["DataError", "IntegrityError"])
def test_values_that_a_database_does_not_take_are_given_up(kind: str, mlflow_exceptions: ModuleType) -> None:
    import sqlalchemy.exc

    refused = getattr(sqlalchemy.exc, kind)("INSERT INTO metrics …", {}, Exception("value out of range"))

    assert type(export_error(as_its_server_says(refused, mlflow_exceptions))) is PermanentExportError


def test_a_server_all_of_whose_connections_are_in_use_is_asked_again(mlflow_exceptions: ModuleType) -> None:
    from mlflow.store.db.utils import _get_managed_session_maker
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import sessionmaker
    from sqlalchemy.pool import QueuePool

    engine = create_engine("sqlite://", poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01)
    session_of = _get_managed_session_maker(sessionmaker(bind=engine), "postgresql")
    with engine.connect(), pytest.raises(mlflow_exceptions.MlflowException) as caught, session_of() as session:
        session.execute(text("SELECT 1"))

    assert caught.value.error_code == "BAD_REQUEST"
    assert type(export_error(caught.value)) is RetryableExportError


def as_its_server_says(error: Exception, mlflow_exceptions: ModuleType) -> Exception:
    """Return what a client has of an error of SQLAlchemy's, other than that a database cannot be operated."""
    from mlflow.protos.databricks_pb2 import BAD_REQUEST

    said = mlflow_exceptions.MlflowException(message=error, error_code=BAD_REQUEST).serialize_as_json()
    made: Exception = mlflow_exceptions.RestException(json.loads(said))
    return made


@pytest.mark.parametrize("status", [400, 404, 408, 413, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("page", ["<html>no healthy upstream</html>", "404 page not found"])
def test_what_something_in_front_of_mlflow_answers_is_no_refusal(
    status: int, page: str, mlflow_exceptions: ModuleType
) -> None:
    import requests
    from mlflow.utils.rest_utils import verify_rest_response

    answer = requests.Response()
    answer.status_code, answer._content = status, page.encode()
    with pytest.raises(mlflow_exceptions.MlflowException) as caught:
        verify_rest_response(answer, "/api/2.0/mlflow/runs/log-batch")

    assert type(export_error(caught.value)) is RetryableExportError


def test_an_answer_that_is_no_json_is_no_refusal() -> None:
    import requests

    answer = requests.Response()
    answer.status_code, answer._content = 200, b"<html>Please log in</html>"
    with pytest.raises(ValueError, match="Expecting value") as caught:
        answer.json()

    assert type(export_error(caught.value)) is RetryableExportError


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("slow"), OSError(28, "no space left")])
def test_what_the_operating_system_refuses_is_retried(error: OSError) -> None:
    assert isinstance(export_error(error), RetryableExportError)


@pytest.mark.parametrize("error", [TypeError("x"), ValueError("x"), FileNotFoundError("x"), KeyError("x")])
def test_a_mistake_in_the_records_is_given_up(error: Exception) -> None:
    assert isinstance(export_error(error), PermanentExportError)


def test_our_own_errors_pass_as_they_are() -> None:
    with pytest.raises(ExporterClosedError), translated(export_error):
        raise ExporterClosedError("mlflow")
