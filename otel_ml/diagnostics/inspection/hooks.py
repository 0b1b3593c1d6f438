"""What a layer is given and what it returns, and their gradients, seen through hooks of torch's modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["hook"]

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def hook(module: Any, tensor: str, saw: Callable[[Any], None], is_due: Callable[[], bool]) -> Any:
    """Call `saw` with one of a layer's tensors, once for each call of the layer; return the handle that ends it.

    A layer in a checkpointed part (`torch.utils.checkpoint`) is called a second time in the backward pass. That is the
    same call: what it is given and returns is seen the first time. Its gradients are seen wherever autograd comes by,
    which is the second call's graph where checkpointing is reentrant, and else the first one's.

    Args:
        module: the layer.
        tensor: `activation`, `output`, `gradient` (of the output) or `dgrad` (of the input).
        saw: is called with it.
        is_due: asked at each call; whether this one is looked at.
    """
    import torch

    # A compiled model breaks its graph here; it would be compiled again at every step, whose number it depends on.
    called = torch.compiler.disable(getattr(_Hooks(saw, is_due), tensor))
    if tensor in {"activation", "dgrad"}:  # before the call: a layer that works in place leaves its output there
        return module.register_forward_pre_hook(called, with_kwargs=True)
    return module.register_forward_hook(called)


@dataclass(frozen=True, slots=True)
class _Hooks:
    """Each is called as the tensor it is named after."""

    saw: Callable[[Any], None]
    is_due: Callable[[], bool]

    def activation(self, _: Any, args: Args, kwargs: Kwargs) -> None:
        if self.is_due() and not _is_called_again():
            self.saw(_at(_first_tensor(args, kwargs), args, kwargs))

    def output(self, _: Any, args: Args, output: Any) -> None:
        if self.is_due() and not _is_called_again():
            self.saw(_first(output))

    def gradient(self, _: Any, args: Args, output: Any) -> None:
        if self.is_due() and getattr(_first(output), "requires_grad", False):
            _first(output).register_hook(self.saw)

    def dgrad(self, layer: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs] | None:
        place = _first_tensor(args, kwargs)
        given = _at(place, args, kwargs)
        if not self.is_due() or not getattr(given, "requires_grad", False):
            return None
        if getattr(layer, "inplace", False):  # it writes over its input, so nobody else has it; a view's hook is lost
            given.register_hook(self.saw)
            return None
        own = given.view_as(given)  # whose gradient comes through this layer alone
        own.register_hook(self.saw)
        return _with(own, place, args, kwargs)


def _is_called_again() -> bool:
    """Whether autograd goes backward on this thread, as `torch.utils.checkpoint` itself asks."""
    import torch

    return int(torch._C._current_graph_task_id()) != -1  # noqa: SLF001 (there is no public way, since torch 2.0)


def _first_tensor(args: Args, kwargs: Kwargs) -> int | str | None:
    """Return the position or the keyword of the first tensor that a layer is given."""
    places: tuple[tuple[int | str, Any], ...] = (*enumerate(args), *kwargs.items())
    return next((place for place, value in places if hasattr(value, "detach")), None)


def _at(place: int | str | None, args: Args, kwargs: Kwargs) -> Any:
    return args[place] if isinstance(place, int) else None if place is None else kwargs[place]


def _with(tensor: Any, place: int | str | None, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    if isinstance(place, int):
        return (*args[:place], tensor, *args[place + 1 :]), dict(kwargs)
    return args, {**kwargs, str(place): tensor}


def _first(tensors: Any) -> Any:
    return tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
