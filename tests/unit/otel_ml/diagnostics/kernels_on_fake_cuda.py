"""A device that is not there, on which our kernels run: interpreted, in the order of its stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from otel_ml.diagnostics.dynamics import layers
from otel_ml.diagnostics.tensor_statistics import kernel_compilation, statistics, tensor_tables
from tests.fake_cuda import CudaTensor, FakeCuda, fake_cuda

__all__ = ["card", "until_nothing_is_compiled"]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """A card for which the kernels can be compiled; whatever waits for it raises."""
    import_module(
        "torch._dynamo"
    )  # which makes a class of `torch.Event` where it is imported: not of one that is not there

    monkeypatch.setattr(kernel_compilation, "_compiled", set())  # what a process knows of its card for good
    monkeypatch.setattr(kernel_compilation, "_begun", set())  # the same
    monkeypatch.setattr(kernel_compilation, "_missing", set())  # the same
    monkeypatch.setattr(tensor_tables, "plain_types", lambda: (CudaTensor,))
    layers._blocks_on.cache_clear()
    with fake_cuda() as cuda:
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(warp_size=32))
        monkeypatch.setattr(statistics, "launch", lambda *given: _launch(cuda, *given))
        yield cuda
        until_nothing_is_compiled()


def until_nothing_is_compiled() -> None:
    """Wait for the threads that compile; what they find out must not be taken for the next test's."""
    for thread in threading.enumerate():
        if thread.name == "otel_ml_compile":
            thread.join()


def _launch(cuda: FakeCuda, recipe: kernel_compilation.Recipe, programs: int, *arguments: Any) -> None:
    given = [argument.inner if isinstance(argument, CudaTensor) else argument for argument in arguments]
    (device,) = {argument.device for argument in arguments if isinstance(argument, CudaTensor)}
    cuda.launch(lambda: recipe.kernel[(programs,)](*given, **recipe.options), device)
