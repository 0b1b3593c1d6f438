"""Which receiver takes what is recorded: it is looked for, used, and looked for again where sending fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.safe_repr import text_of
from otel_ml._internal.transport.background_link import BackgroundLink
from otel_ml._internal.transport.background_transport import BackgroundTransport
from otel_ml._internal.transport.link import Reached
from otel_ml._internal.transport.send import Sender

__all__ = ["ReceiverConnection"]

RECOVER_EVERY = 5.0
"""Seconds between looks for what dead processes of the job left on this host: a data loader's worker that the kernel
killed, a rank that nobody starts again. In embedded mode the service looks, too."""

RECOVER_AGAIN = 1.0
"""The same, where the receiver had no room for it."""

HEARD_S = 10.0
"""Seconds after an answer in which a receiver is slow, and not away."""


class ReceiverConnection:
    """Used by the run's background thread alone.

    Args:
        sender: of the run.
        link: where the transport comes from.
        recover: sends what dead writers of the job left, and says whether nothing is left; called from time to time
            once a receiver takes ours.
        found: called with a receiver before it is used.
        settle: called when all is acknowledged.
        meanwhile: called while a receiver does not answer; returns whether to go on waiting for it.
        tick: seconds between these calls.

    Attributes:
        reached: the receiver that is used; None before there is one.
    """

    def __init__(
        self,
        sender: Sender,
        link: BackgroundLink,
        recover: Callable[[Reached, float], bool],
        *,
        found: Callable[[Reached], None],
        settle: Callable[[], None],
        meanwhile: Callable[[], bool],
        tick: float,
    ) -> None:
        self.sender = sender
        self.reached: Reached | None = None
        self._link = link
        self._recover = recover
        self._found = found
        self._settle = settle
        self._meanwhile = meanwhile
        self._tick = tick
        self._answers = 0
        self._answered_at = time.monotonic()
        self._failing_since: float | None = None
        self._recover_at = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether the last request was not acknowledged."""
        return self._failing_since is not None

    def is_away(self) -> bool:
        """Note whether there are new answers; return whether no receiver takes anything.

        One that has answered a moment ago is only slow.
        """
        now = time.monotonic()
        if self.sender.answers != self._answers:
            self._answers, self._answered_at = self.sender.answers, now
        # The second half: nothing has ever answered, and the first request has failed already.
        return now - self._answered_at >= HEARD_S or (not self._answers and self._failing_since is not None)

    def reach(self) -> Reached | None:
        """Look for a receiver where none takes what is sent; return one that was found and is used from now on."""
        now = time.monotonic()
        # A link is asked for again only while sending fails: the service may have moved, or another one was elected.
        if self.reached is not None and self._failing_since is None:
            return None
        failing_s = 0.0 if self._failing_since is None else now - self._failing_since
        try:
            reached = self._link.reach(now, failing_s=failing_s)
        except Exception as error:  # noqa: BLE001 (what keeps a service from being started loses nothing)
            reporter.say("internal-error", f"No receiver can be looked for: {type(error).__name__}: {text_of(error)}.")
            return None
        if reached is None:
            return None
        self._use(reached)
        return reached

    def recover_soon(self) -> None:
        """Send what dead writers left once all of ours is acknowledged."""
        self._recover_at = 0.0

    def send(self, deadline: float, *, everything: bool) -> bool:
        """Send what waits, or all of it; return whether all is acknowledged."""
        is_empty = self.sender.send(deadline, everything=everything)
        if is_empty:
            self._settle()
        # Also where nothing was left to be sent: an error of before then keeps nobody from anything.
        if not self.sender.last_error or is_empty:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = time.monotonic()
        # Others' spools come after our own: this process may be about to end, and they have waited already.
        if is_empty and self.reached is not None and time.monotonic() >= self._recover_at:
            is_done = self._recover(self.reached, deadline)
            self._recover_at = time.monotonic() + (RECOVER_EVERY if is_done else RECOVER_AGAIN)
        return is_empty

    def _use(self, reached: Reached) -> None:
        if self.sender.transport is not None:
            self.sender.transport.close()
        reached = replace(reached, transport=BackgroundTransport(reached.transport, self._meanwhile, self._tick))
        # Before anything is sent to it: the receiver may know this run by another id, which requests have to name.
        self._found(reached)
        self.reached = reached
        self.sender.transport = reached.transport
        self.sender.hurry()
        self._failing_since = None
