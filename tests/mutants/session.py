"""A plug-in of pytest: what a run of tests leaves behind for `make mutants`, and how it looks for examples.

MUTANTS_REPORT names the file it writes: the seconds and the outcome of each test, by its name without parameters.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

__all__ = ["pytest_runtest_logreport", "pytest_sessionfinish", "pytest_sessionstart"]

SECONDS: dict[str, float] = {}
FAILED: set[str] = set()


def pytest_sessionstart() -> None:
    """Look for the same examples each time; that there is one is enough, it need not be the smallest."""
    settings.register_profile(
        "mutants", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate], database=None
    )
    settings.load_profile("mutants")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add what a phase of a test took."""
    name = report.nodeid.partition("[")[0]
    SECONDS[name] = SECONDS.get(name, 0.0) + report.duration
    if report.failed:
        FAILED.add(name)


def pytest_sessionfinish() -> None:
    """Write the report."""
    named = os.environ.get("MUTANTS_REPORT")
    if named:
        Path(named).write_text(json.dumps({"seconds": SECONDS, "failed": sorted(FAILED)}))
