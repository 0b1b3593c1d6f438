"""What a process prints of its run while that goes on: where it went, notices, and the exporters' lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from otel_ml._internal.console import Console, is_watched, page_line, started_line
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.exporter_lines import ExporterLines
from otel_ml._internal.lifecycle.notices import Notices, run_status
from otel_ml._internal.transport.link import Reached
from otel_ml._internal.transport.send import Sender
from otel_ml.config import Config
from otel_ml.wire.readable_name import readable_name

__all__ = ["RunPrinter"]

TIMEOUT_WITH_NOBODY = 5.0
"""Seconds until what is to be said is printed here, while no receiver has answered at all."""


class RunPrinter:
    """Used by the run's background thread alone, except for the notices, which take what others say.

    Args:
        run_id: says which run it is: a receiver may know it by another id.
    """

    def __init__(self, config: Config, identity: Identity, sender: Sender, run_id: Callable[[], str]) -> None:
        self.console = Console(is_quiet=config.is_quiet)
        self.notices = Notices(self.console, identity)
        self.exporter_lines = ExporterLines(self.console, speaks=identity.speaks)
        self._sender = sender
        self._run_id = run_id
        self._started = time.monotonic()

    def print_beginning(self, config: Config, reached: Reached) -> None:
        """Print which run this is, and where it goes."""
        name = config.name or readable_name(self._run_id())
        self.console.line(started_line(config.experiment, name, reached.where, reached.exporters))
        if reached.page and is_watched():  # the address holds a token: it goes into no file
            self.console.line(page_line(reached.page))

    def print_new(self, reached: Reached | None, *, is_last: bool) -> None:
        """Print what is to be said by now; the receiver that answers, if one does, is asked for more."""
        count = self._sender.notices
        if count is None:
            if is_last or self._sender.answers or time.monotonic() - self._started > TIMEOUT_WITH_NOBODY:
                self.notices.print_own()
        elif self.notices.has_more(count):
            self.notices.print_of(self.ask())
        if reached is not None:
            self.exporter_lines.print_new(reached, self._run_id())
        self.console.catch_up()

    def ask(self, **query: str) -> Mapping[str, Any] | None:
        """Return what the service says of the run, given a query such as `writer=<instance>`, or None."""
        if self._sender.transport is None:
            return None
        run = run_status(self._sender.transport, self._run_id(), {**query, **self.notices.query})
        self.notices.hear(run)
        return run
