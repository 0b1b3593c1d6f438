"""Where closed steps go, from options and OpenTelemetry's own variables; all problems at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from otel_ml.exceptions import ConfigError
from otel_ml.redaction import redacted

__all__ = ["Destination", "destination"]

_PATH = "/v1/metrics"
_TIMEOUT_MS = 10_000.0
"""OpenTelemetry's default."""


@dataclass(frozen=True, slots=True)
class Destination:
    """One OTLP/HTTP endpoint for metrics.

    Attributes:
        url: the full URL of the metrics endpoint.
        timeout: seconds for one request.
        certificate: CA certificates (PEM) to trust, or None for the system's.
        client_certificate: with `client_key`, for mTLS.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = _TIMEOUT_MS / 1000
    certificate: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None
    gzip: bool = True

    @property
    def shown(self) -> str:
        """The URL as messages name it, without credentials."""
        return redacted(self.url)


def destination(options: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Destination:
    """Return where to send to: an option, else `OTEL_EXPORTER_OTLP_METRICS_<NAME>`, else `OTEL_EXPORTER_OTLP_<NAME>`.

    Raises:
        ConfigError: with everything that is wrong.

    Examples:
        >>> destination({"endpoint": "http://gateway:4318"}, {}).url
        'http://gateway:4318/v1/metrics'
        >>> destination({}, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://metrics.example/otlp"}).url
        'https://metrics.example/otlp'
    """
    environ = os.environ if environ is None else environ
    problems: list[str] = []
    found = Destination(
        url=_url(options.get("endpoint"), environ, problems),
        headers=_headers(options.get("headers"), environ, problems),
        timeout=_timeout(options.get("timeout"), environ, problems),
        certificate=_file("certificate", options, environ, problems),
        client_certificate=_file("client_certificate", options, environ, problems),
        client_key=_file("client_key", options, environ, problems),
        gzip=_compression(options.get("compression"), environ, problems),
    )
    if problems:
        raise ConfigError(*problems)
    return found


def _variable(name: str, environ: Mapping[str, str]) -> str:
    """Return the value for metrics, else the one for all signals; empty means not set (OpenTelemetry's rule)."""
    name = name.upper()
    special, common = f"OTEL_EXPORTER_OTLP_METRICS_{name}", f"OTEL_EXPORTER_OTLP_{name}"
    return environ.get(special, "").strip() or environ.get(common, "").strip()


def _url(option: object, environ: Mapping[str, str], problems: list[str]) -> str:
    if option is None:
        whole = environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "").strip()
        base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
        url = whole or (base.rstrip("/") + _PATH if base else "")
    else:
        base = option.strip() if isinstance(option, str) else ""
        url = base if base.endswith(_PATH) or not base else base.rstrip("/") + _PATH
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        fine = False
    if not fine:
        given = option if option is not None else url
        problems.append(
            f"otlp.endpoint: expected the base URL of an OTLP/HTTP receiver such as 'http://gateway:4318', got "
            f"{redacted(given) if isinstance(given, str) else given!r}."
        )
    return url


def _headers(option: object, environ: Mapping[str, str], problems: list[str]) -> Mapping[str, str]:
    if option is None:
        pairs = [part.partition("=") for part in _variable("headers", environ).split(",") if part.strip()]
        headers = {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}
    elif isinstance(option, Mapping) and all(isinstance(text, str) for pair in option.items() for text in pair):
        headers = dict(option)
    else:
        problems.append("otlp.headers: expected names and texts, such as {'api-key': '${env:KEY}'}.")
        return {}
    for key, value in headers.items():
        if not key or not (key + value).isascii() or not (key + value).isprintable():
            problems.append(f"otlp.headers: expected printable ASCII characters in the header {key!r}.")
    return headers


def _timeout(option: object, environ: Mapping[str, str], problems: list[str]) -> float:
    if option is None:
        raw = _variable("timeout", environ)
        try:
            seconds = float(raw or _TIMEOUT_MS) / 1000
        except ValueError:
            seconds = 0.0
        given: object = raw
    else:
        seconds = float(option) if isinstance(option, (int, float)) and not isinstance(option, bool) else 0.0
        given = option
    if not 0 < seconds <= 600:
        problems.append(f"otlp.timeout: expected seconds above 0 and up to 600, got {given!r}.")
    return seconds


def _file(name: str, options: Mapping[str, object], environ: Mapping[str, str], problems: list[str]) -> Path | None:
    given = options.get(name)
    if given is None:
        given = _variable(name, environ) or None
    if given is None:
        return None
    if not isinstance(given, (str, Path)) or not Path(given).is_file():
        problems.append(f"otlp.{name}: expected a PEM file, found none at {given!r}.")
        return None
    return Path(given)


def _compression(option: object, environ: Mapping[str, str], problems: list[str]) -> bool:
    given = (_variable("compression", environ) or "gzip") if option is None else option
    if given not in {"gzip", "none"}:
        problems.append(f"otlp.compression: expected 'gzip' or 'none', got {given!r}.")
    return given != "none"
