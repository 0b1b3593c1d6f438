"""A device that is not there, on which our kernels run: interpreted, in the order of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from otel_ml.diagnostics.tensor_statistics import launching, statistics, tables
from tests.fake_cuda import CudaTensor, FakeCuda, fake_cuda

__all__ = ["card"]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """A card for which the kernels can be compiled; nothing may wait for it."""
    monkeypatch.setattr(launching, "_compiled", set())
    monkeypatch.setattr(launching, "_begun", set())
    monkeypatch.setattr(launching, "_missing", [])
    monkeypatch.setattr(tables, "plain_types", lambda: (CudaTensor,))
    monkeypatch.setattr(statistics, "launch", _launch)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(warp_size=32))
    with fake_cuda() as cuda:
        yield cuda


def _launch(recipe: launching.Recipe, programs: int, *arguments: Any) -> None:
    given = [argument.inner if isinstance(argument, CudaTensor) else argument for argument in arguments]
    (device,) = {argument.device for argument in arguments if isinstance(argument, CudaTensor)}
    from tests.fake_cuda import _card

    _card().launch(lambda: recipe.kernel[(programs,)](*given, **recipe.options), device)
