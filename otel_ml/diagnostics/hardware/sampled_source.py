"""One source on this host: sampled by the process that is elected, opened when it is, given up when it is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from otel_ml.diagnostics.hardware.election import Election, HostFolder
from otel_ml.diagnostics.hardware.gpu import open_gpus
from otel_ml.diagnostics.hardware.host import Host
from otel_ml.diagnostics.hardware.ray_nodes import RayNodes
from otel_ml.diagnostics.hardware.source import Reading, Source, SourceLostError, UnavailableError
from otel_ml.warn_once import reporter

__all__ = ["KINDS", "Kind", "SampledSource"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What `sources=` can name.

    Attributes:
        of: what it measures, in a sentence.
        open: makes the source of a run's host.
    """

    of: str
    open: Callable[[HostFolder], Source]


KINDS: Mapping[str, Kind] = {
    "gpu": Kind("No GPU", lambda _: open_gpus()),
    "host": Kind("No host", lambda folder: Host(folder.processes)),
    "ray": Kind("No node of Ray", lambda _: RayNodes()),
}


class SampledSource:
    """The state of one source in this process."""

    def __init__(self, name: str, folder: HostFolder) -> None:
        self._kind = KINDS[name]
        self._folder = folder
        self._election = Election(folder, name)
        self._source: Source | None = None
        self._is_over = False

    def facts(self) -> Mapping[str, object]:
        """Return what does not change, right after the source was opened; nothing at any other time.

        Raises:
            OSError: the host's folder is gone.
        """
        # Before anything is opened: a process that is not elected loads no library of a driver.
        if not self._election.is_won():
            self._drop()
            return {}
        if self._is_over or self._source is not None:
            return {}
        try:
            self._source = self._kind.open(self._folder)
        except UnavailableError as error:
            self._is_over = True
            reporter.say("no-hardware", f"{self._kind.of} is measured: {error}. Everything else goes on.")
            return {}
        return self._source.facts

    def readings(self) -> list[Reading]:
        """Return what can be read now; nothing while another process samples."""
        source = self._source
        if source is None:
            return []
        found: list[Reading] = []
        try:
            # One by one, so what came before the library was lost is kept.
            found.extend(source.read())
        except SourceLostError as error:
            # Not closed: its library is what has gone.
            self._source, self._is_over = None, True
            reporter.say("hardware-lost", f"{self._kind.of} is measured from now on: {error}. Everything else goes on.")
        return found

    def close(self) -> None:
        """Let go of the library, and let another process take the place."""
        self._drop()
        self._election.release()

    def _drop(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
