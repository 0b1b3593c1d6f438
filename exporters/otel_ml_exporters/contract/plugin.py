"""The pytest plug-in of `otel_ml_exporters.contract`: a clause that fails shows the values that it compared."""

from __future__ import annotations

import pytest

__all__: list[str] = []

pytest.register_assert_rewrite("otel_ml_exporters.contract.clauses")
