"""What cannot be stored at the moment: said when it begins, when it changes, and when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["Trouble"]

_log = logging.getLogger(__name__)


class Trouble:
    """Remembers what was said, so that a disk that is full for an hour fills no log.

    Args:
        subject: what cannot be stored.
        say: takes the sentence for the run, once it can be stored again.

    Attributes:
        text: what is wrong now, or "".
    """

    def __init__(self, subject: str, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._subject = subject
        self._say = say
        self._clock = clock
        self._since = 0.0
        self.text = ""

    def note(self, error: Exception) -> None:
        """Note that storing failed."""
        text = str(error)
        if not self.text:
            self._since = self._clock()
        if text != self.text:
            _log.error("Run %s cannot be stored: %s", self._subject, text)
        self.text = text

    def over(self) -> None:
        """Note that storing succeeded."""
        if not self.text:
            return
        lasted = self._clock() - self._since
        _log.warning("Run %s is stored again, after %.0f s.", self._subject, lasted)
        self._say(f"For {lasted:.0f} s nothing could be stored: {self.text} What arrived meanwhile is here.")
        self.text = ""
