"""What the machines of a job do, in the same run: GPUs (NVIDIA, AMD), hosts, the job's processes, Ray's nodes, energy.

```python
import otel_ml
from otel_ml.diagnostics import hardware

with otel_ml.init("digits"), hardware.start_monitor():
    train()
```
"""

from __future__ import annotations

from otel_ml.diagnostics.hardware.diagnosis import diagnose
from otel_ml.diagnostics.hardware.energy import Energy
from otel_ml.diagnostics.hardware.measures import MEASURES, Measure
from otel_ml.diagnostics.hardware.monitor import Monitor, start_monitor
from otel_ml.diagnostics.hardware.probe import Probe
from otel_ml.diagnostics.hardware.startup_memory import MemoryStages
from otel_ml.diagnostics.hardware.visible_gpus import visible_devices

__all__ = [
    "MEASURES",
    "Energy",
    "Measure",
    "MemoryStages",
    "Monitor",
    "Probe",
    "diagnose",
    "start_monitor",
    "visible_devices",
]
