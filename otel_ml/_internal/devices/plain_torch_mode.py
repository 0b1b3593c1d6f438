"""Tensors of our own that outlive the call they are made in, whatever the program has told torch to do there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

__all__ = ["plain_torch_mode", "untransformed"]


@contextmanager
def plain_torch_mode(torch: Any) -> Iterator[None]:
    """Make tensors, views of them, and copies, as in a program without modes and transforms.

    A view that is made in inference mode may be written to in that mode only. What a dispatch mode of the program makes
    is whatever it likes: of `FakeTensorMode` it has no memory, and what is copied from there would be no values. And
    within `torch.func.grad()` nothing may be written to that was there before.
    """
    with torch.inference_mode(False), torch.no_grad(), _without_modes(torch), _without_transforms(torch):
        yield


def untransformed(torch: Any, tensor: Any) -> Any:
    """Return the tensor that `torch.func.grad()` and the like have wrapped.

    Raises:
        TypeError: it is one of many, in `torch.vmap()`.
    """
    functorch = torch._C._functorch  # noqa: SLF001
    # One wrapper for each `grad()` that is inside of another.
    while functorch.is_gradtrackingtensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    if functorch.is_batchedtensor(tensor):
        raise TypeError("stands for many values within torch.vmap()")
    return tensor


@contextmanager
def _without_modes(torch: Any) -> Iterator[None]:
    """Put dispatch modes aside; torch's own way to do so imports its compiler for it."""
    modes: list[Any] = []
    if torch._C._len_torch_dispatch_stack():  # noqa: SLF001
        from torch.utils._python_dispatch import _pop_mode, _push_mode

        modes = [_pop_mode() for _ in range(torch._C._len_torch_dispatch_stack())]  # noqa: SLF001
    try:
        yield
    finally:
        while modes:
            # The last one popped was the outermost, so it goes back first.
            _push_mode(modes.pop())


def _without_transforms(torch: Any) -> Any:
    if torch._C._functorch.peek_interpreter_stack() is None:  # noqa: SLF001
        return nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()
