"""What the exporters over OTLP/HTTP have in common: their options, one client, and one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.otlp.client import Client
from otel_ml_exporters.backends.otlp.destination import Signal, destination
from otel_ml_exporters.exporter import Exporter, every_problems, require_started
from otel_ml_exporters.records import RunInfo, RunStatus

__all__ = ["HttpExporter"]


class HttpExporter(Exporter):
    """Sends one signal to one endpoint.

    Args:
        signal: what is sent.
        options: where to, as `destination()` reads them.
        every: export only steps that are multiples of this.
        problems: what is wrong with other options.
        headers: of every request, unless `options` have others of these names.

    Raises:
        ConfigError: with everything that is wrong.
    """

    max_delay = 1.0

    def __init__(
        self,
        signal: Signal,
        options: Mapping[str, object],
        every: int,
        problems: Sequence[str] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        found = [*every_problems(signal.exporter, every), *problems]
        try:
            asked = destination(options, signal=signal)
            given = {name.lower(): text for name, text in asked.headers.items()}
            # A header that the user gives replaces ours; case is nothing that tells two headers apart.
            self._destination = replace(asked, headers={**headers, **given})
        except ConfigError as error:
            # With those of other options: a person gets all of them in one message.
            found.extend(error.problems)
        if found:
            raise ConfigError(*found)
        self.every = every
        self._name = signal.exporter
        self._client = Client(self._destination, signal)
        self._started: RunInfo | None = None
        self._closed = False

    @property
    def place(self) -> str | None:
        """The endpoint."""
        return self._destination.url

    def start(self, run: RunInfo) -> None:
        """Keep what a request says of its run; the first `export` connects."""
        self._started = run

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Do nothing more: every earlier call of `export` was answered."""
        self._closed = True

    @property
    def _run(self) -> RunInfo:
        return require_started(self._name, self._started, is_closed=self._closed)
