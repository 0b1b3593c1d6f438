"""What a step of 50 ms consists of, on one core: one pass of a language model, or some hundred of a very small one.

Both take the same time, and differ in who has the interpreter. A pass of a model spends it inside of torch's functions,
of which each takes long and needs no interpreter; hundreds of small passes spend it between them. So any other thread
of Python holds up the second, and hardly the first.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["STEP_S", "TOKENS", "Train", "Training", "one_pass", "small_passes"]

STEP_S = 0.050

Train = Callable[[Callable[[], None]], float]
"""A step: calls its argument between backward and update, and returns the seconds of the rest."""


class Training(NamedTuple):
    """A model that is trained by steps of `STEP_S`."""

    model: Any
    optimizer: Any
    train: Train


WIDTH, LAYERS, HEADS, VOCABULARY = 64, 2, 4, 256
TOKENS = 64


def one_pass() -> Training:
    """Return a transformer of 133,000 parameters in 27 tensors; how many sequences are in its batch, time tells."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), blocks, nn.Linear(WIDTH, VOCABULARY))
    every = torch.randint(0, VOCABULARY, (4096, TOKENS + 1))

    def work(sequences: int) -> Callable[[], None]:
        batch = every[:sequences]

        def backward() -> None:
            guessed = model(batch[:, :-1])
            nn.functional.cross_entropy(guessed.flatten(0, 1), batch[:, 1:].flatten()).backward()

        return backward

    return _calibrated(model, work, first=64)


def small_passes() -> Training:
    """Return a perceptron of 4,225 parameters, whose gradients of several hundred small batches are added up."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
    batch = torch.randn(32, WIDTH)

    def work(passes: int) -> Callable[[], None]:
        def backward() -> None:
            for _ in range(passes):
                model(batch).square().mean().backward()

        return backward

    return _calibrated(model, work, first=20)


def _calibrated(model: Any, work: Callable[[int], Callable[[], None]], first: int) -> Training:
    import torch

    torch.set_num_threads(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    amount = first
    for _ in range(3):  # the first steps of a process are slower, and a long step is more than many short ones
        train = _step(optimizer, work(amount))
        amount = max(1, round(amount * STEP_S / statistics.median(train(lambda: None) for _ in range(10))))
    return Training(model, optimizer, _step(optimizer, work(amount)))


def _step(optimizer: Any, backward: Callable[[], None]) -> Train:
    def train(before_update: Callable[[], None]) -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        backward()
        between = time.perf_counter()
        before_update()
        background = time.perf_counter() - between
        optimizer.step()
        return time.perf_counter() - began - background

    return train
