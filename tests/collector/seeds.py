"""Faults at random moments: one seed in `make e2e`, ten in `make chaos`."""

from __future__ import annotations

import pytest

__all__ = ["ten_seeds"]

ten_seeds = pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=pytest.mark.e2e), *(pytest.param(n, marks=pytest.mark.chaos) for n in range(1, 10))]
)
