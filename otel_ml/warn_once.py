"""Saying a thing once: the one way there for what is built upon recording (`compat`, `diagnostics`, `integrations`).

`reporter` is for what concerns the run: it counts what is lost, and the service says each sentence once for the whole
job. `say` is for what a program is to hear though no run may ever begin, such as a configuration of which a part has no
meaning here: through the logger `otel_ml`, by the first rank of each host.

Not for users' programs.
"""

from __future__ import annotations

from otel_ml._internal.console import is_first_of_host
from otel_ml._internal.error_reporting import ErrorReporter, RecordingError, Say, reporter

__all__ = ["RecordingError", "Say", "forget_warnings", "reporter", "say"]


def say(slug: str, sentence: str) -> None:
    """Log a warning the first time, or not at all; `otel-ml explain <slug>` says more."""
    _PROGRAM.say(slug, sentence)


def forget_warnings() -> None:
    """Say everything again. For tests."""
    _PROGRAM.forget()


def _log(sentence: str) -> None:
    if is_first_of_host():
        import logging  # where it is used: what is silent, which is nearly everything, does not load it

        logging.getLogger("otel_ml").warning("%s", sentence)


# Another one than `reporter`, whose sentences wait for a run; this one says them at once.
_PROGRAM = ErrorReporter()
_PROGRAM.connect(_log)
