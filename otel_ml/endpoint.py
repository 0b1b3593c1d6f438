"""Where OTLP goes, and how, by OpenTelemetry's variables: what is wrong with one never stops a program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from otel_ml import env
from otel_ml.redaction import redacted
from otel_ml.variable import Variable

__all__ = ["Endpoint", "endpoint_of", "signal_url", "value_of"]

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_OF_THE_MESSAGE = frozenset({
    "host", "connection", "content-length", "content-type", "content-encoding", "transfer-encoding", "te", "upgrade",
})  # fmt: skip
"""Headers that say how a request is sent, which is not for a variable to say."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where OTLP goes, and how.

    Attributes:
        url: base URL, to which `/v1/…` is appended; empty where none is set.
        signals: path → full URL, where a signal has its own.
        source: the variable the URL came from.
        headers: of every request, without a token of `token_file`.
        token_file: file with the bearer token, or "".
    """

    url: str = field(default="", repr=False)
    signals: Mapping[str, str] = field(default_factory=dict, repr=False)
    source: str = ""
    protocol: str = "http/protobuf"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_file: str = ""
    certificate: str = ""
    client_key: str = ""
    client_certificate: str = ""
    insecure: bool = False
    compression: str = "auto"

    @property
    def shown(self) -> str:
        """The address as messages name it, without who it says one is."""
        return redacted(self.url or next(iter(self.signals.values()), ""))


def signal_url(base: str, path: str) -> str:
    """Return the URL of one signal below a base URL.

    Examples:
        >>> signal_url("https://gateway/otlp/?tenant=7", "/v1/metrics")
        'https://gateway/otlp/v1/metrics?tenant=7'
    """
    place, mark, query = base.partition("?")
    return f"{place.rstrip('/')}{path}{mark}{query}"


def value_of(variable: Variable[Any], environ: Mapping[str, str], problems: list[str]) -> Any:
    """Return an effective value; what is wrong with the text is added to `problems`, as whole sentences."""
    setting = variable.read(environ)
    if setting.problem:
        problems.append(f"{setting.problem} Its default is used.")
    return setting.value


def endpoint_of(environ: Mapping[str, str], problems: list[str]) -> Endpoint:
    """Return the endpoint that the environment names; what is wrong there is added to `problems`."""

    def value(variable: Variable[Any]) -> Any:
        return value_of(variable, environ, problems)

    paths = {"/v1/metrics": env.METRICS_ENDPOINT, "/v1/traces": env.TRACES_ENDPOINT, "/v1/logs": env.LOGS_ENDPOINT}
    urls = {path: url for path, variable in paths.items() if (url := _url(variable, environ, problems))}
    # Without the slash: `/v1/…` is appended to it.
    url = _url(env.ENDPOINT, environ, problems).rstrip("/")
    # Where nothing is sent to an endpoint, nobody needs to hear of files that it would take.
    if url or urls:
        _check_files(environ, problems)
    return Endpoint(
        url=url,
        signals=urls,
        source=env.ENDPOINT.name if url else next((paths[path].name for path in urls), ""),
        protocol=_protocol(value(env.PROTOCOL), problems) if url or urls else value(env.PROTOCOL),
        # A file is read at each connection, so its token is not among the headers that are fixed here.
        headers=_headers(value(env.HEADERS), "" if value(env.TOKEN_FILE) else str(value(env.TOKEN)), problems),
        token_file=value(env.TOKEN_FILE),
        certificate=value(env.CERTIFICATE),
        client_key=value(env.CLIENT_KEY),
        client_certificate=value(env.CLIENT_CERTIFICATE),
        insecure=value(env.INSECURE),
        compression=value(env.COMPRESSION),
    )


def _url(variable: Variable[str], environ: Mapping[str, str], problems: list[str]) -> str:
    url = variable.read(environ).value
    if not url or _is_url(url):
        return url
    problems.append(f"{variable.name}: expected http://… or https://…, got {redacted(repr(url))}. It is not used.")
    return ""


def _is_url(url: str) -> bool:
    if "://" in url and not url.lower().startswith(("http://", "https://")):
        return False
    if not url.isprintable() or not url.isascii() or " " in url:
        return False
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        # `parts.port` raises ValueError where it is not a number.
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_files(environ: Mapping[str, str], problems: list[str]) -> None:
    kinds = {env.CERTIFICATE: "PEM ", env.CLIENT_KEY: "PEM ", env.CLIENT_CERTIFICATE: "PEM ", env.TOKEN_FILE: ""}
    for variable, kind in kinds.items():
        name = variable.read(environ).value
        if name and not _is_file(name):
            problems.append(
                f"{variable.name} names no {kind}file: there is none at {name!r}. It is looked for at each connection."
            )


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long, for one
        return False


def _protocol(protocol: str, problems: list[str]) -> str:
    if protocol != "grpc" or find_spec("grpc") is not None:
        return protocol
    problems.append(
        f"{env.PROTOCOL.name}: 'grpc' needs the package grpcio. Run pip install 'otel-ml[grpc]'. "
        "Meanwhile http/protobuf is used."
    )
    return "http/protobuf"


def _headers(given: Mapping[str, str], token: str, problems: list[str]) -> Mapping[str, str]:
    headers = {key.lower(): text for key, text in given.items()}
    if token:
        # The user's own `authorization` header wins over OTEL_ML_TOKEN.
        headers.setdefault("authorization", f"Bearer {token}")
    for key in [key for key, text in headers.items() if not _is_header(key, text)]:
        del headers[key]  # a line break in it would begin another header
        problems.append(
            f"{env.HEADERS.name}: expected printable ASCII characters, and a name of a request's content, "
            f"in the header {key!r}. It is not sent."
        )
    return headers


def _is_header(key: str, text: str) -> bool:
    is_text = text.isprintable() and text.isascii()
    return is_text and _HEADER_NAME.fullmatch(key) is not None and key not in _OF_THE_MESSAGE
