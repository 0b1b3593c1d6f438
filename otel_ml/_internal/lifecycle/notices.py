"""What is reported once for the whole job: by the service where there is one, else here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from otel_ml._internal.console import Console
from otel_ml._internal.events.event_queue import NOTICE, current_events
from otel_ml._internal.events.log_record import WARN, LogRecord
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.transport.answer import Transport
from otel_ml.wire import attributes as keys

__all__ = ["Notices", "run_status"]


def run_status(
    transport: Transport, run: str, query: Mapping[str, str], timeout: float = 1.0
) -> Mapping[str, Any] | None:
    """Return what the service behind `transport` says of a run, or None; it is waited for `timeout` seconds."""
    content = transport.get(f"/otel_ml/runs/{quote(run, safe='')}?{urlencode(query)}", timeout=timeout)
    try:
        found = json.loads(content) if content else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Notices:
    """Sends sentences to the service, and prints: the service's on global rank 0; without one, ours on local rank 0.

    Of the rank 0 of several roles one prints: the service says which.
    """

    def __init__(self, console: Console, identity: Identity) -> None:
        self._console = console
        self._is_speaker = identity.speaks and not console.is_quiet  # who prints nothing must not seem to have told it
        self._instance = identity.instance
        self._is_first_here = identity.place.local_rank == 0
        self._unsaid: list[str] = []
        self._shown: int | None = None

    def say(self, sentence: str) -> None:
        """Say something once for the job."""
        self._unsaid.append(sentence)
        # To the service, which says it once for the job; where none answers, `print_own()` prints what was kept above.
        notice = LogRecord(keys.EVENT_NOTICE, sentence, severity=WARN)
        current_events().put(NOTICE, lambda: (notice,))

    def print_own(self) -> None:
        """Print what no service will say."""
        said, self._unsaid = self._unsaid, []
        if self._is_first_here:
            for sentence in said:
                self._console.line(sentence)

    def has_more(self, count: int) -> bool:
        """Whether the service, which has `count` notices, has some that this process is to print."""
        self._unsaid.clear()
        return count > (self._shown or 0) and self._is_speaker

    @property
    def query(self) -> Mapping[str, str]:
        """What to ask the service for an account with: it remembers which notices went to who prints them."""
        return {"speaker": self._instance} if self._is_speaker else {}

    def hear(self, run: Mapping[str, Any] | None) -> None:
        """Note what an earlier launch of the run was told by the first account: it is not new."""
        if run is not None and self._shown is None:
            self._shown = int(run.get("told") or 0)

    def print_of(self, run: Mapping[str, Any] | None, *, is_last: bool = False) -> None:
        """Print the run's notices that are new; as the last writer, those that came after global rank 0 had left."""
        run = run or {}
        notices = [str(notice) for notice in run.get("notices", ())]
        shown, told = self._shown or 0, run.get("told")
        # From this notice on it is printed: none that the service knows to have been printed before.
        first = len(notices) if told is None else int(told)
        if self._is_speaker:
            # An older service does not say it: whoever would print prints all.
            speaks_from = run.get("speaks_from", shown)
            first = first if speaks_from is None and is_last else speaks_from
        if first is None:  # another process prints
            self._shown = max(shown, int(told or 0))
            return
        for notice in notices[max(first, shown) :]:
            self._console.line(notice)
        self._shown = max(shown, len(notices))
