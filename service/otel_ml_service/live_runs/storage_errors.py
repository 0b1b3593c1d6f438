"""What cannot be stored at the moment: said when it begins, when it changes, and when it is over."""

from __future__ import annotations

import logging
import time

from otel_ml.explanation import explained
from otel_ml.quantities import seconds

__all__ = ["StorageErrors"]

_log = logging.getLogger(__name__)


class StorageErrors:
    """Remembers what was said, so that a disk that is full for an hour fills no log.

    Args:
        subject: what cannot be stored.

    Attributes:
        text: what is wrong now, or "".
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._since = 0.0
        self.text = ""

    def note(self, error: Exception) -> None:
        """Note that storing failed."""
        text = str(error)
        if not self.text:
            self._since = time.monotonic()
        if text != self.text:
            _log.error("%s", explained(f"{self._subject} cannot be stored: {text}", "storage"))
        self.text = text

    def over(self) -> str | None:
        """Note that storing succeeded; return what the run is to be told if it had failed before."""
        if not self.text:
            return None
        lasted = time.monotonic() - self._since
        _log.warning("%s can be stored again, after %s.", self._subject, seconds(lasted))
        sentence = f"For {seconds(lasted)} nothing could be stored: {self.text} What was acknowledged is all there."
        self.text = ""
        return sentence
