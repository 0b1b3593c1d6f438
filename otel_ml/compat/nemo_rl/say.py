"""Say a sentence once, through Python's logging: what was asked for and is done in another way, or not at all."""

from __future__ import annotations

import logging

from otel_ml.explanation import explained

__all__ = ["say"]

_LOGGER = logging.getLogger("otel_ml.compat.nemo_rl")

_SAID: set[str] = set()

_REMEMBERED = 1000
"""Sentences told apart; a program that is wrong in more ways than this has been told enough."""


def say(slug: str, sentence: str) -> None:
    """Log `sentence` as a warning the first time; `otel-ml explain <slug>` says more."""
    if sentence not in _SAID and len(_SAID) < _REMEMBERED:
        _SAID.add(sentence)
        _LOGGER.warning("%s", explained(sentence, slug))
