"""What a process prints of its run while that goes on: where it went, notices, and the exporters' lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from otel_ml._internal.console import Console, is_watched, page_line, started_line
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.notices import Notices, run_status
from otel_ml._internal.transport.link import Reached
from otel_ml._internal.transport.send import Sender
from otel_ml.config import Config
from otel_ml.wire.readable_name import readable_name

__all__ = ["RunPrinter"]

_EVERY_S = 1.0
"""How often the service is asked, while the run goes on."""


class ExporterLines:
    """Prints what the service's `console` exporter wrote, on global rank 0: the job's own service has no terminal.

    The last process prints what is left.

    Args:
        speaks: whether this process speaks of the whole run.
    """

    def __init__(self, console: Console, *, speaks: bool) -> None:
        self._console = console
        self._speaks = speaks
        self._taken = 0
        self._asked_at = 0.0

    def print_new(self, reached: Reached, run_id: str) -> None:
        """Print what is new, at most once a second."""
        # The background thread comes here ten times a second.
        now = time.monotonic()
        if self._speaks and now - self._asked_at >= _EVERY_S:
            self._asked_at = now
            self._print(reached, run_id)

    def print_rest(self, reached: Reached | None, run_id: str, *, is_last: bool) -> None:
        """Print what is left as this process ends, and have the service forget it: the last one asks, too."""
        if self._speaks or is_last:
            self._print(reached, run_id)
            self._print(reached, run_id)  # tells that the lines before were printed; others may record on for ever

    def _print(self, reached: Reached | None, run_id: str) -> None:
        if self._console.is_quiet or reached is None or not any(map(_is_console, reached.exporters)):
            return
        found = _asked(reached, run_id, self._taken)
        lines = [str(line) for line in found.get("lines", ())]
        if left_out := int(found.get("left_out") or 0):
            lines.insert(0, f"… {left_out:,} more lines")
        self._console.plain(lines)
        # Sent with the next question, by which the service knows that these were printed.
        self._taken = int(found.get("next") or self._taken)


def _is_console(exporter: str) -> bool:
    return exporter.partition("/")[0] == "console"


def _asked(reached: Reached, run_id: str, taken: int) -> Mapping[str, Any]:
    path = f"/otel_ml/runs/{quote(run_id, safe='')}/console?after={taken}"
    content = reached.transport.get(path, timeout=1.0)
    try:
        found = json.loads(content) if content else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


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
        self._experiment, self._name = config.experiment, config.name
        self._sender = sender
        self._run_id = run_id
        self._started = time.monotonic()

    def print_beginning(self, reached: Reached) -> None:
        """Print which run this is, and where it goes."""
        # A run that goes on by its id has the name that it was begun with. The job's own service is asked, which tells
        # its exporters; at an endpoint a question that fails would take the place of why sending does.
        run = self.ask() if reached.exporters and not self._name else None
        self.console.line(started_line(self._called(run), reached.where, reached.exporters))
        if reached.page and is_watched():  # the address holds a token: it goes into no file
            self.console.line(page_line(reached.page))

    def print_end(self, line: str, run: Mapping[str, Any] | None = None) -> None:
        """Print how the run went: a process may have had several.

        Args:
            line: from how it ended on.
            run: the service's account of it, which knows what the process that began it has called it.
        """
        self.console.line(f"run {self._called(run)} {line}")

    def _called(self, run: Mapping[str, Any] | None = None) -> str:
        """Return experiment and name, as backends call the run."""
        if run is not None and run.get("experiment") and run.get("name"):
            return f"{run['experiment']}/{run['name']}"
        return f"{self._experiment}/{self._name or readable_name(self._run_id())}"

    def print_new(self, reached: Reached | None, *, is_last: bool) -> None:
        """Print what is to be said by now; the receiver that answers, if one does, is asked for more."""
        count = self._sender.notices
        # No service of ours has answered: nobody, or a Collector.
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
