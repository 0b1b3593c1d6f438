"""monitoring/, by Prometheus' own tool; `.ci/kubernetes` has brought it."""

from __future__ import annotations

import subprocess

import pytest

from tests.deployment.golden import TOOLS
from tests.e2e.jobs import ROOT

pytestmark = pytest.mark.full

MONITORING = ROOT / "monitoring"
PROMTOOL = TOOLS / "promtool"


def promtool(*arguments: object, given: bytes = b"") -> None:
    """Have it look, and fail with what it says."""
    done = subprocess.run([PROMTOOL, *map(str, arguments)], input=given, capture_output=True, check=False, timeout=100)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_the_rules_are_rules() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", MONITORING / "alerts.yaml")


def test_each_alert_fires_when_it_should_and_not_before() -> None:
    promtool("test", "rules", MONITORING / "alerts_test.yaml")
