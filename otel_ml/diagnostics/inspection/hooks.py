"""What a layer is given and what it returns, and their gradients, seen through hooks of torch's modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakMethod

from otel_ml.diagnostics.tensor_statistics import tensor_tables
from otel_ml.warn_once import reporter

__all__ = ["hook", "hook_passes", "hook_updates", "is_called_again"]

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


Due = Callable[[bool], list[int]]
"""Is told whether a compiler has come by, and returns who is to be told of this call."""

Saw = Callable[[list[int], Any, bool], None]
"""Is called with those, a tensor, and whether nobody changes it before this layer's backward pass is over."""


def hook(module: Any, tensor: str, saw: Saw, due_now: Due) -> Any:
    """Call `saw` with one of a layer's tensors, once for each call of the layer; return the handle that ends it.

    A layer in a checkpointed part (`torch.utils.checkpoint`) is called a second time in the backward pass. That is the
    same call: what it is given and returns is seen the first time. Its gradients are seen wherever autograd comes by,
    which is the second call's graph where checkpointing is reentrant, and else the first one's.

    Args:
        module: the layer.
        tensor: `activation`, `output`, `gradient` (of the output) or `dgrad` (of the input).
        saw: is called with it.
        due_now: asked at each call, whether it is looked at.
    """
    import torch

    # A compiled model breaks its graph here; it would be compiled again at every step, whose number it depends on.
    look = torch.compiler.disable(_harmless(getattr(_Hooks(saw, due_now), tensor)))

    def called(*given: Any) -> Any:
        return look(torch.compiler.is_compiling(), *given)

    if tensor in {"activation", "dgrad"}:  # before the call: a layer that works in place leaves its output there
        return module.register_forward_pre_hook(called, with_kwargs=True)
    return module.register_forward_hook(called)


def hook_passes(model: Any, begins: Callable[[bool], None], ends: Callable[[], None]) -> tuple[Any, Any]:
    """Tell `begins` of each pass through a whole model, and whether it is made with gradients, and `ends` of its end.

    Returns:
        Their handles.
    """
    import torch

    def called(*_: Any) -> None:
        if not is_called_again():
            begins(torch.is_grad_enabled())

    def returned(*_: Any) -> None:
        if not is_called_again():
            ends()

    before = model.register_forward_pre_hook(torch.compiler.disable(_harmless(called)))
    after = torch.compiler.disable(_harmless(returned))
    # Also where the pass raises: `_end_pass()` launches what waits, and the next pass begins clean.
    return before, model.register_forward_hook(after, always_call=True)


def hook_updates(updates: Callable[[frozenset[int]], None]) -> Any:
    """Tell `updates` of all parameters, by `id()`, that an optimizer of torch is about to change; return the handle.

    Their gradients are complete then, unscaled and clipped. A loop may empty them before its step ends.

    Args:
        updates: a method. Torch keeps one list of such hooks for all optimizers; it does not keep the method's object.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    method = WeakMethod(updates)

    def called(optimizer: Any, *_: Any) -> None:
        tell = method()
        if tell is not None:
            tell(frozenset(id(parameter) for group in optimizer.param_groups for parameter in group["params"]))

    return register_optimizer_step_pre_hook(torch.compiler.disable(_harmless(called)))


def _harmless(look: Callable[..., Any]) -> Callable[..., Any]:
    """Let a hook fail without the pass that it looks at, which then goes on as if there were none."""

    def called(*given: Any) -> Any:
        try:
            return look(*given)
        except Exception as error:  # noqa: BLE001 - the boundary to the user's layers
            reporter.failed("Inspector", error)
            return None

    return called


@dataclass(frozen=True, slots=True)
class _Hooks:
    """Each is called as the tensor it is named after."""

    saw: Saw
    due_now: Due

    def activation(self, is_compiled: bool, layer: Any, args: Args, kwargs: Kwargs) -> None:
        due = self.due_now(is_compiled)
        if due and not is_called_again():
            given = _first((args, kwargs))
            self.saw(due, given, not is_compiled and _keeps_input(_within(layer, 0), given))

    def output(self, is_compiled: bool, _: Any, args: Args, output: Any) -> None:
        due = self.due_now(is_compiled)
        if due and not is_called_again():
            self.saw(due, _first(output), False)

    def gradient(self, is_compiled: bool, layer: Any, args: Args, output: Any) -> None:
        due = self.due_now(is_compiled)
        if due and getattr(_first(output), "requires_grad", False):
            # The backward pass of these layers changes nothing that it is given.
            stays = not is_compiled and type(_within(layer, -1)) in _torchs_own()
            _first(output).register_hook(_harmless(lambda gradient: self.saw(due, gradient, stays)))

    def dgrad(self, is_compiled: bool, layer: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs] | None:
        import torch

        given = _first((args, kwargs))
        # Without gradients, as in the first pass of a reentrant checkpoint, nothing comes back through this call.
        due = self.due_now(is_compiled)
        if not due or not getattr(given, "requires_grad", False) or not torch.is_grad_enabled():
            return None
        saw = _harmless(lambda gradient: self.saw(due, gradient, False))
        if getattr(layer, "inplace", False):  # it writes over its input, so nobody else has it; a view's hook is lost
            given.register_hook(saw)
            return None
        own = given.view_as(given)  # whose gradient comes through this layer alone
        own.register_hook(saw)
        return _with(own, given, args), dict(zip(kwargs, _with(own, given, kwargs.values()), strict=True))


@cache
def _torchs_own() -> frozenset[type]:
    """Return layers of torch whose backward pass changes nothing that it is given, and reads the layer's input."""
    from torch import nn

    return frozenset({nn.Linear, nn.LayerNorm, nn.GELU, nn.SiLU})


def _within(layer: Any, place: int) -> Any:
    """Return the layer that a container hands its input to (`place` 0), or that makes its output (-1)."""
    from torch import nn

    while type(layer) is nn.Sequential and len(layer):
        layer = layer[place]
    return layer


def _keeps_input(layer: Any, given: Any) -> bool:
    """Return whether autograd holds this very tensor for the layer's backward pass: a change of it is an error there.

    Not under autocast, which may hold a narrower copy, nor where a checkpoint or a program holds something else for it.
    """
    import torch

    if (
        type(layer) not in _torchs_own()
        or type(given) not in tensor_tables.plain_types()
        or not torch.is_grad_enabled()
    ):
        return False
    # A linear layer keeps its input for the gradient of its weight; the others for that of the input.
    if not (layer.weight.requires_grad if type(layer) is torch.nn.Linear else given.requires_grad):
        return False
    return not getattr(layer, "inplace", False) and not torch.is_autocast_enabled() and not _holds_something_else()


def _holds_something_else() -> bool:
    import torch

    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # noqa: SLF001 (there is no public way)
    return top is None or top(False) is not None  # of an older torch nobody knows


def is_called_again() -> bool:
    """Whether autograd goes backward on this thread, as `torch.utils.checkpoint` itself asks."""
    import torch

    return int(torch._C._current_graph_task_id()) != -1  # noqa: SLF001 (there is no public way, since torch 2.0)


def _with(own: Any, given: Any, values: Iterable[Any]) -> Args:
    """Return the values with `own` wherever `given` is: attention to itself asks whether its inputs are one object."""
    return tuple(own if value is given else value for value in values)


def _first(values: Any) -> Any:
    """Return the first tensor of what a layer is given or returns, however it is nested; None where there is none."""
    if hasattr(values, "detach"):
        return values
    several = values.values() if isinstance(values, Mapping) else values if isinstance(values, (tuple, list)) else ()
    return next((found for value in several if (found := _first(value)) is not None), None)
