"""What an operation of torch does on a device that is not there: a launch, a copy, a view, or a wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tests.fake_cuda.streams import FakeStream
from tests.fake_cuda.tensors import GARBAGE, CudaTensor, blank, inner_of

__all__ = ["ALLOCATING", "Dispatcher"]

ALLOCATING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_READING = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "item", "unique_dim", "_unique2"}


class Dispatcher:
    """Does what torch's dispatcher asks for, in the streams of a card."""

    def __init__(self, card: Any) -> None:
        self.card = card

    def dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        self.card.fail_if_broken()
        name = func.overloadpacket.__name__
        flat, _ = tree_flatten((args, kwargs))
        tensors = [item for item in flat if isinstance(item, CudaTensor)]
        target = kwargs.get("device")
        target = None if target is None else torch.device(target)
        device = tensors[0].device if tensors else self.card.device_of(target)
        if target is not None and target.type == "cuda":
            device = self.card.device_of(target)
        stream = self.card.current(device.index)
        self.card.counts["operations"] += 1
        self.card.operations.append((name, stream))
        if _looks_at_indices(name, args):
            self.card.wait(f"{name}(), which has its indices looked at on the host")
        if name in _READING:
            self.card.wait(f"{name}()")
            return tree_map(self._wrapped_on(device), func(*tree_map(inner_of, args), **tree_map(inner_of, kwargs)))
        if name == "_to_copy" and target is not None and target.type == "cpu":
            return self._to_host(args[0], kwargs, stream)
        if name == "copy_" and (not isinstance(args[0], CudaTensor) or not isinstance(args[1], CudaTensor)):
            return self._copy(args, kwargs, stream)
        places = {item.device for item in flat if isinstance(item, torch.Tensor) and item.dim() > 0}
        if len(places) > 1 and name != "copy_":
            raise RuntimeError(f"Expected all tensors to be on the same device, but found {sorted(map(str, places))}")
        return self._kernel(func, name, args, kwargs, device, stream)

    def _to_host(self, source: CudaTensor, kwargs: dict[str, Any], stream: FakeStream) -> torch.Tensor:
        dtype = kwargs.get("dtype") or source.dtype
        found: torch.Tensor = torch.empty(source.shape, dtype=dtype, pin_memory=bool(kwargs.get("pin_memory")))
        if not (kwargs.get("non_blocking") and self.card.is_pinned(found)):
            self.card.wait("a copy to the host")
        return self._copy((found, source, True), {}, stream)

    def _copy(self, args: Any, kwargs: dict[str, Any], stream: FakeStream) -> Any:
        into, source = args[:2]
        non_blocking = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
        host = source if isinstance(into, CudaTensor) else into
        if not non_blocking or (not self.card.is_pinned(host) and host is into):
            self.card.wait("a blocking copy")
        to, what = inner_of(into), inner_of(source)
        if host is source and not self.card.is_pinned(host):
            what = what.clone()
        self.card.count_launch(stream)
        self.card.count("copies")
        stream.queue(lambda: to.copy_(what))
        return into

    def _kernel(self, func: Any, name: str, args: Any, kwargs: Any, device: torch.device, stream: FakeStream) -> Any:
        schema = func._schema
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        kwargs = {key: item for key, item in kwargs.items() if key != "pin_memory"}
        inner_args, inner_kwargs = tree_map(inner_of, (args, kwargs))
        aliases = [found.alias_info for found in schema.returns]
        if aliases and all(alias is not None and not alias.is_write for alias in aliases):
            return self._viewed(func(*inner_args, **inner_kwargs), args)
        written = {
            next(iter(given.alias_info.before_set), None): kwargs[given.name] if given.name in kwargs else args[place]
            for place, given in enumerate(schema.arguments)
            if given.alias_info is not None and given.alias_info.is_write
            if given.name in kwargs or place < len(args)
        }
        if name not in ALLOCATING:
            self.card.count_launch(stream)
        if written and all(alias is not None for alias in aliases):
            stream.queue(lambda: func(*inner_args, **inner_kwargs))
            found = [written[next(iter(alias.before_set))] for alias in aliases if alias is not None]
            return None if not found else found[0] if len(found) == 1 else tuple(found)
        return self._launched(func, inner_args, inner_kwargs, device, stream, written, aliases)

    def _launched(
        self, func: Any, args: Any, kwargs: Any, device: torch.device, stream: FakeStream, written: Any, aliases: Any
    ) -> Any:
        """Return what a kernel will have written: garbage until the stream has come to it."""
        tried_args, tried_kwargs = tree_map(blank, (args, kwargs))
        shapes, form = tree_flatten(func(*tried_args, **tried_kwargs))
        results = [torch.empty_strided(item.shape, item.stride(), dtype=item.dtype) for item in shapes]
        for result in results:
            result.untyped_storage().fill_(GARBAGE)

        def work() -> None:
            for result, value in zip(results, tree_flatten(func(*args, **kwargs))[0], strict=True):
                result.copy_(value)

        stream.queue(work)
        found = [self.card.wrap(result, device) for result in results]
        if written and len(found) == len(aliases):
            found = [
                one if alias is None else written[next(iter(alias.before_set))]
                for one, alias in zip(found, aliases, strict=True)
            ]
        return tree_unflatten(found, form)

    def _viewed(self, views: Any, args: Any) -> Any:
        base = next(item for item in tree_flatten(args)[0] if isinstance(item, CudaTensor))
        return tree_map(
            lambda view: CudaTensor(view, base.lease, base.device) if isinstance(view, torch.Tensor) else view, views
        )

    def _wrapped_on(self, device: torch.device) -> Callable[[Any], Any]:
        return lambda item: self.card.wrap(item, device) if isinstance(item, torch.Tensor) else item


def _looks_at_indices(name: str, args: Any) -> bool:
    """Whether an operation on CUDA asks for `index.max().item()`, as those do that sort indices to be deterministic."""
    if not torch.are_deterministic_algorithms_enabled():
        return False
    is_told_not_to = name == "_index_put_impl_" and len(args) > 4 and args[4]
    return name in {"index_copy_", "index_copy", "index_put_", "index_put", "_index_put_impl_"} and not is_told_not_to
