"""Hugging Face: a callback for the Trainer of `transformers`, a tracker for `accelerate`; each loads its own package.

```python
Trainer(model, TrainingArguments(report_to="none"), callbacks=[OtelMLCallback("digits")])
Accelerator(log_with=OtelMLTracker("digits"))
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_ml.integrations.huggingface.callback import OtelMLCallback
    from otel_ml.integrations.huggingface.tracker import OtelMLTracker

__all__ = ["OtelMLCallback", "OtelMLTracker"]

_MODULES = {"OtelMLCallback": "callback", "OtelMLTracker": "tracker"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
