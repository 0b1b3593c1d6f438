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

from collections.abc import Mapping
from typing import Any

from otel_ml.compat.tensorboard.global_writer import GlobalSummaryWriter
from otel_ml.compat.tensorboard.summary_writer import SummaryWriter
from otel_ml.compat.tracking.original_names import not_here

__all__ = ["GlobalSummaryWriter", "SummaryWriter"]

NOT_HERE: Mapping[str, str] = {
    "FileWriter": "Event files are written by the exporter tensorboard: use SummaryWriter",
    "RecordWriter": "Event files are written by the exporter tensorboard: use SummaryWriter",
    "TorchVis": "One SummaryWriter is for every backend",
}
"""Names of the two originals that are not here, and what is used instead."""


def __getattr__(name: str) -> Any:
    """Say what is used instead of a name of the originals that is not here."""
    raise not_here(__name__, name, NOT_HERE)
