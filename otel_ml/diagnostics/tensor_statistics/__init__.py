"""Statistics of the elements of many tensors of a device, in as many launches as there are types of numbers.

`TensorStatistics.of(tensors)` begins to compute them, and returns the `CopyToHost` that will have them: nothing waits.
By kernels of our own where Triton runs, else by operations of torch. What is recorded of them is made on the host, by
the thread that reads, of one copy a step.

To build another statistic upon it: `layout_of()` says whether kernels can look at some tensors, `tables.Tables` has the
addresses and chunks that a kernel reads, `launching.launch()` launches it, `arrival_of()` brings what it found.
"""

from __future__ import annotations

from otel_ml.diagnostics.tensor_statistics.copy_to_host import Blocks, CopyToHost, OneOf, arrival_of
from otel_ml.diagnostics.tensor_statistics.statistics import ROWS, TensorStatistics, prepare
from otel_ml.diagnostics.tensor_statistics.tensor_tables import Layout, is_freed, is_plain, layout_of

__all__ = [
    "ROWS",
    "Blocks",
    "CopyToHost",
    "Layout",
    "OneOf",
    "TensorStatistics",
    "arrival_of",
    "is_freed",
    "is_plain",
    "layout_of",
    "prepare",
]
