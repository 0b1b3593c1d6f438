"""What is made and copied for values that outlive a call is as in a program without modes and transforms of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from otel_ml._internal.devices.plain_torch_mode import plain_torch_mode, untransformed


def test_within_a_gradient_transform_memory_of_before_is_written_to_with_what_the_tensor_holds() -> None:
    memory = torch.zeros(2, dtype=torch.float64)
    made = []

    def loss(x: Any) -> Any:
        with plain_torch_mode(torch):
            made.append(torch.ones(()))
            memory[0].copy_(untransformed(torch, x))
        with pytest.raises(RuntimeError, match="in-place"):
            memory[1].copy_(x)  # as it is without
        return x * x

    assert torch.func.grad(torch.func.grad(loss))(torch.tensor(3.0)) == 2.0
    assert torch.func.grad(loss)(torch.tensor(3.0)) == 6.0
    assert memory.tolist() == [3.0, 0.0]
    assert not any(torch._C._functorch.is_functorch_wrapped_tensor(one) for one in made)


def test_one_of_many_is_no_value() -> None:
    def f(x: Any) -> Any:
        with pytest.raises(TypeError, match="many"):
            untransformed(torch, x)
        return x

    assert torch.vmap(f)(torch.ones(2)).tolist() == [1.0, 1.0]


def test_what_is_made_in_inference_mode_may_be_written_to_outside() -> None:
    with torch.inference_mode(), plain_torch_mode(torch):
        memory = torch.zeros(2)
        views = memory.unbind()
    views[0].add_(1)
    assert not memory.is_inference()
