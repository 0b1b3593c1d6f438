from __future__ import annotations

import pytest
from wandb import errors

from otel_ml_exporters.backends.wandb.errors import export_error
from otel_ml_exporters.errors import (
    ExporterClosedError,
    PermanentExportError,
    RestartExporterError,
    RetryableExportError,
    translated,
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.CommError("no answer"), RetryableExportError),
        (errors.AuthenticationError("bad key"), PermanentExportError),
        (errors.UsageError("no key"), PermanentExportError),
        (errors.UnsupportedError("x"), PermanentExportError),
        (errors.WandbCoreNotAvailableError("x"), RetryableExportError),
        (errors.Error("x"), RetryableExportError),
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
def test_what_the_client_raises_is_retried_restarted_or_given_up(error: Exception, expected: type) -> None:
    assert type(export_error(error)) is expected


def test_our_own_errors_pass_as_they_are() -> None:
    with pytest.raises(ExporterClosedError), translated(export_error):
        raise ExporterClosedError("wandb")
