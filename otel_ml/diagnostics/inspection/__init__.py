"""Statistics of weights, activations and gradients, layer by layer, and of what FP8 would make of them."""

from __future__ import annotations

from otel_ml.diagnostics.inspection.config import Rule, Section, sections_of
from otel_ml.diagnostics.inspection.inspector import Inspector
from otel_ml.diagnostics.inspection.schedule import Schedule

__all__ = ["Inspector", "Rule", "Schedule", "Section", "sections_of"]
