"""The service on free ports, as the integration tests start it."""

from __future__ import annotations

from tests.integration.conftest import bench, recording

__all__ = ["bench", "recording"]
