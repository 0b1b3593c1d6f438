"""What the W&B client raises → what the pipeline does next."""

from __future__ import annotations

from otel_ml_exporters.errors import (
    ExportError,
    PermanentExportError,
    RestartExporterError,
    RetryableExportError,
)

__all__ = ["export_error", "service_is_gone"]


def export_error(error: Exception) -> ExportError:
    """Return the failure to report for `error`.

    The client hands rows to its service process, `wandb-core`, and never waits for the network; a lost connection
    means that this process is gone, with the rows it had not written yet.
    """
    message = f"W&B: {type(error).__name__}: {error}"
    if service_is_gone(error):
        return RestartExporterError(f"{message} (the process wandb-core is gone)")
    if _is_permanent(error):
        return PermanentExportError(message)
    return RetryableExportError(message)


def service_is_gone(error: BaseException) -> bool:
    """Return whether `wandb-core` died."""
    return isinstance(error, ConnectionError) or type(error).__name__ in {"MailboxClosedError", "ServiceDiedError"}


def _is_permanent(error: Exception) -> bool:
    from wandb.errors import AuthenticationError, CommError, UsageError

    if isinstance(error, (AuthenticationError, UsageError)):
        return True
    if isinstance(error, (CommError, OSError, TimeoutError)):
        return isinstance(error, FileNotFoundError)
    return isinstance(error, (TypeError, ValueError, AttributeError, LookupError))
