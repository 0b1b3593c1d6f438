"""A rank whose metrics, texts and parameters have the names of its arguments."""

from __future__ import annotations

import sys

import otel_ml

with otel_ml.init("names", params=dict.fromkeys(sys.argv[1:], 1)) as run:
    for _ in otel_ml.steps(range(3)):
        otel_ml.log({name: float(at) for at, name in enumerate(sys.argv[1:])})
    for name in sys.argv[1:]:
        otel_ml.log_text(name, name)
    run.summary({f"final {name}": 1.0 for name in sys.argv[1:]})
