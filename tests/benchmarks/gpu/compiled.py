"""Recording within `torch.compile(fullgraph=True)`: graph breaks, and values beside those of eager code."""

from __future__ import annotations

from typing import Any

from tests.gpu.devices import DEVICES

__all__ = ["compiled"]

CALLS = 20


def compiled(device: str, backend: str) -> dict[str, Any]:
    """Return how many calls broke the graph, and how many values are not those of eager code."""
    import torch

    import otel_ml

    where, breaks = DEVICES[device], 0
    run = otel_ml.init("bench")
    for name in ("eager", "compiled"):
        record = recording(name)
        call = torch.compile(record, fullgraph=True, backend=backend) if name == "compiled" else record
        for step in range(CALLS):
            otel_ml.set_step(step)
            try:
                call(torch.full((4,), float(step), device=device))
            except torch._dynamo.exc.Unsupported:
                breaks += 1
    where.synchronize()
    otel_ml.shutdown()
    read = otel_ml.read(run)
    return {"breaks": breaks, "wrong": sum(map(wrong, values(read, "eager"), values(read, "compiled")))}


def recording(name: str) -> Any:
    """Return a function of a model's kind that records two values and a timer."""
    import otel_ml

    def forward(inputs: Any) -> Any:
        with otel_ml.timed("region"):
            doubled = inputs * 2
        otel_ml.log({f"{name}_sum": doubled.sum(), f"{name}_largest": doubled.max()})
        return doubled + 1

    return forward


def values(read: Any, name: str) -> list[float | None]:
    """Return both values of each step, None where there is none."""
    series = [dict(zip(*read.get(f"{name}_{what}", ([], [])), strict=True)) for what in ("sum", "largest")]
    return [one.get(step) for one in series for step in range(CALLS)]


def wrong(eager: float | None, found: float | None) -> bool:
    return eager is None or eager != found
