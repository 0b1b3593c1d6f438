from tests.unit.otel_ml.record.conftest import recorded

__all__ = ["recorded"]
