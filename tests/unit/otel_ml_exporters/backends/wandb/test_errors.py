from __future__ import annotations

from types import ModuleType

import pytest

from otel_ml_exporters.backends.wandb.errors import export_error
from otel_ml_exporters.errors import (
    ExporterClosedError,
    PermanentExportError,
    RestartExporterError,
    RetryableExportError,
    translated,
)


@pytest.fixture(scope="module")
def errors() -> ModuleType:
    """Return W&B's own; not at the top, where each process that collects tests would import W&B."""
    from wandb import errors

    return errors


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CommError", RetryableExportError),
        ("AuthenticationError", PermanentExportError),
        ("UsageError", PermanentExportError),
        ("UnsupportedError", PermanentExportError),
        ("WandbCoreNotAvailableError", RetryableExportError),
        ("Error", RetryableExportError),
    ],
)
def test_what_the_client_raises_is_retried_or_given_up(errors: ModuleType, name: str, expected: type) -> None:
    assert type(export_error(getattr(errors, name)("why"))) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError("Connection lost"), RestartExporterError),
        (BrokenPipeError("x"), RestartExporterError),
        (TimeoutError("x"), RetryableExportError),
        (OSError(28, "no space left"), RetryableExportError),
        (FileNotFoundError("x"), PermanentExportError),
        (TypeError("x"), PermanentExportError),
        (ValueError("x"), PermanentExportError),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_what_the_system_and_python_raise_is_retried_restarted_or_given_up(error: Exception, expected: type) -> None:
    assert type(export_error(error)) is expected


def test_our_own_errors_pass_as_they_are() -> None:
    with pytest.raises(ExporterClosedError), translated(export_error):
        raise ExporterClosedError("wandb")
