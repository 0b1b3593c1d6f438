"""How training goes: norms, rates, skipped and NaN iterations, validation, layers; nothing waits for a device."""

from __future__ import annotations

from otel_ml.diagnostics.dynamics.iterations import Iterations
from otel_ml.diagnostics.dynamics.layers import record_attention_logit, record_layer, record_routing
from otel_ml.diagnostics.dynamics.norms import Norms
from otel_ml.diagnostics.dynamics.optimizer_settings import record_state
from otel_ml.diagnostics.dynamics.validation import perplexity_of, record_validation, record_validation_part

__all__ = [
    "Iterations",
    "Norms",
    "perplexity_of",
    "record_attention_logit",
    "record_layer",
    "record_routing",
    "record_state",
    "record_validation",
    "record_validation_part",
]
