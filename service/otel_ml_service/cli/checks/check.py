"""What a check of `otel-ml doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding.

    Attributes:
        state: `ok`; `note` for what may be intended; `wrong` for what has to be done something about.
        found: what is so, a clause.
        do: what to do, or an empty string.
    """

    state: Literal["ok", "note", "wrong"]
    found: str
    do: str = ""
