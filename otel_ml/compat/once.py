"""What is said once a process, by the first rank of a host, through the logger `otel_ml`."""

from __future__ import annotations

import logging
import os

from otel_ml.explanation import explained

__all__ = ["forget_said", "say"]

_LOG = logging.getLogger("otel_ml")

_REMEMBERED = 1000
"""Sentences told apart; a program that is wrong in more ways than this has been told enough."""

_LOCAL_RANKS = ("OTEL_ML_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")

_SAID: set[str] = set()


def say(slug: str, sentence: str) -> None:
    """Say a sentence for the first time, or not at all; `otel-ml explain <slug>` says more."""
    if sentence in _SAID or len(_SAID) >= _REMEMBERED:
        return
    _SAID.add(sentence)
    if next((os.environ[name] for name in _LOCAL_RANKS if os.environ.get(name)), "0") == "0":
        _LOG.warning("%s", explained(sentence, slug))


def forget_said() -> None:
    """Say everything again."""
    _SAID.clear()
