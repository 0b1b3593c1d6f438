"""Which of the two packages of Lightning the program uses; they have the same classes, made twice."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from otel_ml.integrations.missing_package import PackageError

__all__ = ["CALLBACK", "LOGGER", "global_rank"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _package() -> str:
    # What the program uses it has imported before; the other one may be installed, too.
    for name in _PACKAGES:
        if name in sys.modules:
            return name
    for name in _PACKAGES:
        if find_spec(name.partition(".")[0]) is not None:
            return name
    raise PackageError("otel_ml.integrations.lightning", "lightning")


def global_rank() -> int:
    """Return this process' rank, as Lightning's strategy has set it; 0 before there is one."""
    # Both packages of Lightning set the rank in this third one.
    from lightning_utilities.core.rank_zero import rank_zero_only

    return getattr(rank_zero_only, "rank", None) or 0


_NAME = _package()
LOGGER: Any = import_module(f"{_NAME}.loggers").Logger
CALLBACK: Any = import_module(f"{_NAME}.callbacks").Callback
