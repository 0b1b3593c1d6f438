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

# MLflow calls whatever a database says a bad request, unless it cannot be operated at all: connections that are closed
# or all in use, a transaction that was broken off, a table that a migration has away. SQLAlchemy's messages say which
# by a link; those about what was to be written are DataError, IntegrityError, StatementError and NotSupportedError.
_ILL_DATABASE = re.compile(r"sqlalche\.me/e/\d+/(?!9h9h|gkpj|cd3x|tw8g)\w+\)|\bThis Connection is closed\Z")

# MLflow answers in JSON; of anything else, its client says this: a proxy has no server to ask, or is set up wrongly.
_NOT_OF_MLFLOW = re.compile(r"\AAPI request to endpoint \S+ failed with error code 4\d\d ")


def export_error(error: Exception) -> ExportError:
    """Return the failure to report for `error`.

    MLflow gives a connection that failed the code of an internal error (500), and a locked SQLite file
    TEMPORARILY_UNAVAILABLE (503); both are worth another attempt, as is whatever the operating system refuses, a
    database that is ill, and what a proxy in front of MLflow answers.
    """
    reason = next(iter(str(error).splitlines()), "")  # the SQL statement that may follow says nothing to a person
    message = f"MLflow: {type(error).__name__}: {reason}"
    if _is_permanent(error):
        return PermanentExportError(message)
    return RetryableExportError(message)


def _is_permanent(error: Exception) -> bool:
    from mlflow.exceptions import InvalidUrlException, MlflowException
    from requests.exceptions import JSONDecodeError

    if _ILL_DATABASE.search(str(error)) or _NOT_OF_MLFLOW.match(str(error)) or isinstance(error, JSONDecodeError):
        return False
    if isinstance(error, InvalidUrlException) or _NO_PATH.search(str(error)):
        return True
    if isinstance(error, MlflowException) and hasattr(error, "error_code"):  # a subclass may come without one
        status: int = error.get_http_status_code()
        return status == _NOT_IMPLEMENTED or (400 <= status < 500 and status not in _PASSING_STATUS)
    return isinstance(error, (FileNotFoundError, TypeError, ValueError, AttributeError, LookupError))
