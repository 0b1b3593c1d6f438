"""The checks of `otel-ml doctor`, one file a subject."""

from __future__ import annotations

from otel_ml_service.cli.checks.check import Check
from otel_ml_service.cli.checks.endpoint import endpoint_checks
from otel_ml_service.cli.checks.this_host import folder_checks, package_checks, port_checks, setting_checks

__all__ = ["Check", "endpoint_checks", "folder_checks", "package_checks", "port_checks", "setting_checks"]
