"""What MLflow raises → what the pipeline does next."""

from __future__ import annotations

import re

from otel_ml_exporters.errors import ExportError, PermanentExportError, RetryableExportError

__all__ = ["export_error"]

# Request timeout, conflict (ABORTED: a concurrent transaction), too early, too many requests, cancelled; and
# credentials that are not taken, which somebody may put right (ADR 0024): no record would be taken meanwhile.
_PASSING_STATUS = frozenset({401, 403, 407, 408, 409, 425, 429, 499})
_NOT_IMPLEMENTED = 501

# A store of files says so of a metric's name: `a` is a file, and `a/b` would need a folder `a`; or it is too long.
_NO_PATH = re.compile(r"\[Errno (?:17|20|21|36)\]")


def export_error(error: Exception) -> ExportError:
    """Return the failure to report for `error`.

    MLflow gives a connection that failed the code of an internal error (500), and a locked SQLite file
    TEMPORARILY_UNAVAILABLE (503); both are worth another attempt, as is whatever the operating system refuses.
    """
    reason = next(iter(str(error).splitlines()), "")  # the SQL statement that may follow says nothing to a person
    message = f"MLflow: {type(error).__name__}: {reason}"
    if _is_permanent(error):
        return PermanentExportError(message)
    return RetryableExportError(message)


def _is_permanent(error: Exception) -> bool:
    from mlflow.exceptions import InvalidUrlException, MlflowException

    if isinstance(error, InvalidUrlException) or _NO_PATH.search(str(error)):
        return True
    if isinstance(error, MlflowException) and hasattr(error, "error_code"):  # a subclass may come without one
        status: int = error.get_http_status_code()
        return status == _NOT_IMPLEMENTED or (400 <= status < 500 and status not in _PASSING_STATUS)
    return isinstance(error, (FileNotFoundError, TypeError, ValueError, AttributeError, LookupError))
