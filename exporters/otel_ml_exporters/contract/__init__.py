"""The contract of an exporter as tests, for authors of plug-ins: one fixture, and every clause is asked.

```python
import pytest
from otel_ml_exporters.contract import ExporterCase, ExporterContract


class TestCsvExporter(ExporterContract):
    @pytest.fixture
    def case(self) -> ExporterCase:
        return ExporterCase("my_package.csv_exporter:CsvExporter", read=points_of)
```

`points_of(run)` reads back what is stored, with the backend's own library, not with the exporter's code.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("otel_ml_exporters.contract.clauses")  # a clause that fails shows what it compared

from otel_ml_exporters.contract.case import ExporterCase, Point  # noqa: E402
from otel_ml_exporters.contract.clauses import ExporterContract  # noqa: E402

__all__ = ["ExporterCase", "ExporterContract", "Point"]
