"""Training a transformer on a device: forward, backward, what is recorded, update; and blocks of such steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.benchmarks.gpu.shapes import Shape
from tests.benchmarks.turns import in_turns
from tests.gpu.devices import Device

__all__ = ["Training", "blocks", "training_of"]

HEAD = 64


class Training(NamedTuple):
    """A model and its step, which calls its argument with the loss between backward and update."""

    model: Any
    step: Callable[[Callable[[Any], None]], None]
    samples: int
    tokens: int


def training_of(shape: Shape, device: Device) -> Training:
    """Return a transformer in bfloat16 whose optimizer is one kernel where it can be."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[_block(shape.width) for _ in range(shape.layers)]).to(device.kind, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device.kind == "cuda")
    batch = torch.randn(shape.sequences, shape.tokens, shape.width, device=device.kind, dtype=torch.bfloat16)

    def step(before_update: Callable[[Any], None]) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).float().square().mean()
        loss.backward()
        before_update(loss)
        optimizer.step()

    return Training(model, step, shape.sequences, shape.sequences * shape.tokens)


def _block(width: int) -> Any:
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(width, width // HEAD, batch_first=True)
            self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            wide = 4 * width
            self.dense = torch.nn.Sequential(
                torch.nn.Linear(width, wide), torch.nn.GELU(), torch.nn.Linear(wide, width)
            )

        def forward(self, x: Any) -> Any:
            y = self.before(x)
            x = x + self.attention(y, y, y, need_weights=False)[0]
            return x + self.dense(self.between(x))

    return Block()


def blocks(
    on: Callable[[], object], off: Callable[[], object], device: Device, *, pairs: int, steps: int, uncounted: int
) -> dict[str, list[float]]:
    """Return seconds a step of both sides, block by block, in turns.

    Args:
        on, off: a step that is recorded, and one that is not.
        steps: of a block; the device has come to rest before the first and after the last.
        uncounted: steps of a block that come before.
    """
    import otel_ml

    turns = (lambda: _block_of(on, device, steps, uncounted), lambda: _block_of(off, device, steps, uncounted))
    # What a block has recorded is not a load of the next.
    ours, bare = in_turns(*turns, pairs, after_ours=lambda: otel_ml.flush(10))
    return {"on": ours, "off": bare}


def _block_of(step: Callable[[], object], device: Device, steps: int, uncounted: int) -> float:
    for _ in range(uncounted):
        step()
    device.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    device.synchronize()
    return (time.perf_counter() - began) / steps
