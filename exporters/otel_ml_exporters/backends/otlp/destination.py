"""Where points or spans go, from options and OpenTelemetry's own variables; all problems at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from otel_ml.endpoint import signal_url
from otel_ml.env import TRACES_TO
from otel_ml.exceptions import ConfigError
from otel_ml.redaction import redacted

__all__ = ["METRICS", "TRACES", "Destination", "Signal", "destination"]

_TIMEOUT_MS = 10_000.0
"""OpenTelemetry's default."""


@dataclass(frozen=True, slots=True)
class Signal:
    """What an exporter sends.

    Attributes:
        exporter: its name.
        name: of the signal, in paths and variables of OTLP.
        items: what a request is full of.
        own: a variable for the base URL that comes before OpenTelemetry's, which in a job are for the ranks.
    """

    exporter: str
    name: str
    items: str
    own: str = ""

    @property
    def path(self) -> str:
        """Where a receiver takes it."""
        return f"/v1/{self.name}"


METRICS = Signal("otlp", "metrics", "points")
TRACES = Signal("traces", "traces", "spans", TRACES_TO.name)


@dataclass(frozen=True, slots=True)
class Destination:
    """One OTLP/HTTP endpoint for a signal.

    Attributes:
        url: the full URL of the endpoint.
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


def destination(
    options: Mapping[str, object], environ: Mapping[str, str] | None = None, signal: Signal = METRICS
) -> Destination:
    """Return where to send to: an option, else `OTEL_EXPORTER_OTLP_<SIGNAL>_<NAME>`, else `OTEL_EXPORTER_OTLP_<NAME>`.

    Raises:
        ConfigError: with everything that is wrong.

    Examples:
        >>> destination({"endpoint": "http://gateway:4318"}, {}).url
        'http://gateway:4318/v1/metrics'
        >>> destination({}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://traces.example/otlp"}, TRACES).url
        'https://traces.example/otlp'
    """
    asked = _Asked(options, os.environ if environ is None else environ, signal)
    found = Destination(
        url=asked.url(),
        headers=asked.headers(),
        timeout=asked.timeout(),
        certificate=asked.file("certificate"),
        client_certificate=asked.file("client_certificate"),
        client_key=asked.file("client_key"),
        gzip=asked.compression(),
    )
    # Behind all questions: each of them has added its own.
    if asked.problems:
        raise ConfigError(*asked.problems)
    return found


class _Asked:
    """Options, the variables behind them, and what is wrong with these."""

    def __init__(self, options: Mapping[str, object], environ: Mapping[str, str], signal: Signal) -> None:
        self.problems: list[str] = []
        self._options = options
        self._environ = environ
        self._signal = signal
        self._name = signal.exporter

    def url(self) -> str:
        option, path = self._options.get("endpoint"), self._signal.path
        if option is None:
            option = self._environ.get(self._signal.own, "").strip() or None
        if option is None:
            whole = self._set(f"{self._signal.name}_endpoint")
            # OpenTelemetry's rule: the variable of a signal is the whole URL, that of all signals is a base.
            base = self._set("endpoint")
            url = whole or (signal_url(base, path) if base else "")
        else:
            base = option.strip() if isinstance(option, str) else ""
            # An option is a base, as OpenTelemetry's variable of all signals; one that is the whole URL is meant as it
            # is.
            url = base if base.partition("?")[0].endswith(path) or not base else signal_url(base, path)
        if not _is_url(url):
            given = option if option is not None else url
            self.problems.append(
                f"{self._name}.endpoint: expected the base URL of an OTLP/HTTP receiver such as 'http://gateway:4318', "
                f"got {redacted(given) if isinstance(given, str) else given!r}."
            )
        return url

    def headers(self) -> Mapping[str, str]:
        option = self._options.get("headers")
        if option is None:
            pairs = [part.partition("=") for part in self._variable("headers").split(",") if part.strip()]
            # OpenTelemetry percent-encodes what is in this variable.
            headers = {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}
        elif isinstance(option, Mapping) and all(isinstance(text, str) for pair in option.items() for text in pair):
            headers = dict(option)
        else:
            self.problems.append(
                f"{self._name}.headers: expected names and texts, such as {{'api-key': '${{env:KEY}}'}}."
            )
            return {}
        for key, value in headers.items():
            if not key or not (key + value).isascii() or not (key + value).isprintable():
                self.problems.append(
                    f"{self._name}.headers: expected printable ASCII characters in the header {key!r}."
                )
        return headers

    def timeout(self) -> float:
        option = self._options.get("timeout")
        given: object
        if option is None:
            given = raw = self._variable("timeout")
            try:
                # The variable is in milliseconds, the option in seconds.
                seconds = float(raw or _TIMEOUT_MS) / 1000
            except ValueError:
                seconds = 0.0
        else:
            given = option
            seconds = float(option) if isinstance(option, (int, float)) and not isinstance(option, bool) else 0.0
        if not 0 < seconds <= 600:
            self.problems.append(f"{self._name}.timeout: expected seconds above 0 and up to 600, got {given!r}.")
        return seconds

    def file(self, name: str) -> Path | None:
        given = self._options.get(name)
        if given is None:
            given = self._variable(name) or None
        if given is None:
            return None
        if not isinstance(given, (str, Path)) or not Path(given).is_file():
            self.problems.append(f"{self._name}.{name}: expected a PEM file, found none at {given!r}.")
            return None
        return Path(given)

    def compression(self) -> bool:
        option = self._options.get("compression")
        given = (self._variable("compression") or "gzip") if option is None else option
        if given not in ("gzip", "none"):
            self.problems.append(f"{self._name}.compression: expected 'gzip' or 'none', got {given!r}.")
        return given != "none"

    def _variable(self, name: str) -> str:
        """Return the value for the signal, else the one for all; empty means not set (OpenTelemetry's rule)."""
        return self._set(f"{self._signal.name}_{name}") or self._set(name)

    def _set(self, name: str) -> str:
        return self._environ.get(f"OTEL_EXPORTER_OTLP_{name.upper()}", "").strip()


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # To read the port raises, too, where it is not a number.
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
