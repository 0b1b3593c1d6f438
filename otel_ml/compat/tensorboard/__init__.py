"""TensorBoard's writer over otel_ml: `from otel_ml.compat.tensorboard import SummaryWriter`.

```python
from otel_ml.compat.tensorboard import SummaryWriter

with SummaryWriter("runs/digits") as writer:
    for step in range(100):
        writer.add_scalar("loss", 1 / (1 + step), step)
```

Every rank may make one: values of the ranks are averaged, one run comes out, in every exporter.
"""

from __future__ import annotations

from otel_ml.compat.tensorboard.summary_writer import SummaryWriter

__all__ = ["SummaryWriter"]
