"""One rank with NVIDIA's NeMo Lens, which needs Python 3.13, and no otel_ml: `lens_rank.py RANK WORLD_SIZE STEPS`."""

from __future__ import annotations

import os
import sys
from importlib import import_module


def main(rank: int, world_size: int, steps: int) -> None:
    os.environ |= {
        "NEMO_LENS_ENABLED": "true",
        "NEMO_LENS_EXPORT_STRATEGY": "all_ranks",
        "NEMO_LENS_RUN_ID": "lens",
        "NEMO_LENS_SPAN_GROUPS": "all",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }
    lens = import_module("nemo.lens")
    handle = lens.setup_telemetry(lens.NemoLensConfig.from_env(), rank=rank, world_size=world_size)
    meter = lens.get_meter("megatron")
    loss, tokens = meter.create_gauge("dl.loss"), meter.create_counter("tokens")
    for iteration in range(steps):
        with lens.managed_span("step", "train_step", **{"dl.iteration": iteration}):
            loss.set(float(rank + iteration), {"dl.iteration": iteration})
            tokens.add(100, {"dl.iteration": iteration})
    handle.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
