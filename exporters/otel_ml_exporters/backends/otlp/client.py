"""One request to an OTLP/HTTP endpoint, and what its answer means for the pipeline."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import MappingProxyType

from otel_ml._internal.transport.http_answer import HttpAnswer, answer_of
from otel_ml._internal.transport.url import Target
from otel_ml.exceptions import ConfigError
from otel_ml.redaction import redacted
from otel_ml_exporters.backends.otlp.destination import Destination, Signal
from otel_ml_exporters.errors import ExportError, PermanentExportError, RetryableExportError

__all__ = ["Client"]

# OTLP 1.x, “Retryable Response Codes”; credentials that are not taken, which somebody may put right (ADR 0024); and a
# request that came too slowly, or too early.
_PASSING_STATUS = frozenset({401, 403, 407, 408, 425, 429, 502, 503, 504})
_MOST_ANSWERED = 4096
_MOST_ACKNOWLEDGED = 4 * 2**20
"""Bytes of a refusal, and of what acknowledges: a page of a proxy may be of any size, and has to be told from that."""


class Client:
    """Sends requests to one endpoint; elsewhere through the proxies of the environment.

    Raises:
        ConfigError: the certificates cannot be read.
    """

    def __init__(self, to: Destination, signal: Signal) -> None:
        self._to = to
        self._signal = signal
        try:
            context = ssl.create_default_context(cafile=None if to.certificate is None else str(to.certificate))
        except OSError as error:
            raise ConfigError(
                f"{signal.exporter}.certificate: expected CA certificates (PEM), got {str(to.certificate)!r}: {error}."
            ) from error
        if to.client_certificate is not None:
            try:
                context.load_cert_chain(to.client_certificate, to.client_key)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"{signal.exporter}.client_certificate: expected a certificate and its key: {error}."
                ) from error
        # A proxy would ask its own host for what is on this one.
        proxies = urllib.request.ProxyHandler({} if Target.parse(to.url).is_loopback else None)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), proxies, _NoRedirect)

    def send(self, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """Send an encoded request, with these headers besides those of all requests.

        Raises:
            RetryableExportError: nobody took it, and somebody may later.
            PermanentExportError: it was refused, or some of what is in it.
        """
        sent = {"content-type": "application/x-protobuf", **headers}
        if self._to.gzip:
            body, sent["content-encoding"] = gzip.compress(body, compresslevel=1), "gzip"
        given = answer_of(self._answer(self._to.url, body, sent))
        if given.outcome != "ok":
            raise RetryableExportError(
                f"OTLP: what answers at {self._to.shown} is not an OTLP receiver: {given.reason}."
            )
        # The others are taken, and come again as the pipeline looks whose were refused: the same points, and no more.
        if given.rejected:
            raise PermanentExportError(
                f"OTLP: {self._to.shown} refused {given.rejected} {self._signal.items}: {given.message}"
            )

    def ask(self, path: str, body: bytes) -> bytes:
        """Ask the server behind the endpoint for something else, in JSON; return what it answers.

        Raises:
            RetryableExportError: nobody answers.
            PermanentExportError: it refuses to.
        """
        # The endpoint is `http://host:5000/v1/traces`, and MLflow's other paths begin beside that.
        base = self._to.url.removesuffix(self._signal.path)
        return self._answer(base + path, body, {"content-type": "application/json"}).content

    def _answer(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        every = {"user-agent": "otel-ml", **self._to.headers, **headers}
        request = urllib.request.Request(url, data=body, headers=every, method="POST")
        try:
            with self._opener.open(request, timeout=self._to.timeout) as answer:
                said = {name.lower(): value for name, value in answer.headers.items()}
                return HttpAnswer(answer.status, said, answer.read(_MOST_ACKNOWLEDGED))
        # First, as it is an OSError, too.
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise RetryableExportError(f"OTLP: {self._to.shown} cannot be reached: {reason}.") from error

    def _refusal(self, error: urllib.error.HTTPError) -> ExportError:
        said = ""
        with contextlib.suppress(OSError, http.client.HTTPException):  # the status counts, where the rest is lost
            said = redacted(error.read(_MOST_ANSWERED).decode("utf-8", "replace").strip())
        message = f"OTLP: {self._to.shown} answered {error.code} {error.reason}" + (
            f": {said!r:.200}." if said else "."
        )
        # A redirect is not followed, and somebody may put the address right.
        if error.code in _PASSING_STATUS or 300 <= error.code < 400 or _is_of_a_proxy(error):
            return RetryableExportError(message, retry_after=_seconds(error.headers.get("retry-after")))
        return PermanentExportError(message)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without a body."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Follow none: the answer is an error then."""


def _is_of_a_proxy(error: urllib.error.HTTPError) -> bool:
    """Whether a page says that there is nobody to ask, or that nobody answers: no receiver has seen the request."""
    is_page = error.headers.get_content_type() == "text/html"
    return is_page and (error.code == http.HTTPStatus.NOT_FOUND or error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR)


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None  # a date, or nothing
