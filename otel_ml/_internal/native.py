"""The hot path, compiled from `native/`; None where otel_ml was installed without a compiler, and all is Python."""

from __future__ import annotations

from types import ModuleType

__all__ = ["native"]

native: ModuleType | None
try:
    from otel_ml import _native as native
except ImportError:
    native = None
