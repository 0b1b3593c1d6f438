"""How a set of hyper-parameters is called: torch's and tensorboardX's `add_hparams()` say it at different places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

__all__ = ["session_of"]


def session_of(third: Any, fourth: Any, global_step: Any, name: str | None) -> tuple[Mapping[str, Any], str | None]:
    """Return what of a call of `add_hparams` is not kept, by its name, and how the set is called.

    Args:
        third: torch's domains, or tensorboardX's name.
        fourth: torch's name, or tensorboardX's step.
        global_step: the step, where it is given elsewhere.
        name: tensorboardX's name, by its name.
    """
    # torch 2.15: (hparams, metrics, domains, run_name, global_step). tensorboardX: (hparams, metrics, name,
    # global_step).
    if isinstance(third, str):
        third, name = None, third
    if isinstance(fourth, os.PathLike):
        fourth = os.fspath(fourth)
    if fourth is not None and not isinstance(fourth, str):
        fourth, global_step = None, fourth
    return {"hparam_domain_discrete": third, "global_step": global_step}, fourth or name
