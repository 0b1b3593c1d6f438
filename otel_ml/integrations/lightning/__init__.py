"""Lightning, as `lightning` or as `pytorch_lightning`: a logger, and a callback that times the phases of a batch.

```python
trainer = Trainer(logger=OtelMLLogger("digits"), callbacks=[OtelMLTiming()])
```
"""

from __future__ import annotations

from otel_ml.integrations.lightning.logger import OtelMLLogger
from otel_ml.integrations.lightning.timing import OtelMLTiming

__all__ = ["OtelMLLogger", "OtelMLTiming"]
