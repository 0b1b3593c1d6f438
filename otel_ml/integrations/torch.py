"""PyTorch: what the process group and the model are, and how long a loader lets training wait.

Nothing here is a collective, and nothing waits for a device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from otel_ml._internal.events.event_calls import log_params, log_text
from otel_ml._internal.timers.timing import timed
from otel_ml.never_raises import never_raises

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["TimedLoader", "log_environment", "log_model", "timed_loader", "topology"]

T_co = TypeVar("T_co", covariant=True)
_LONGEST = 200_000
"""Characters of a model's structure; a language model of 1,000 layers has about 100,000."""


class _Loader(Protocol[T_co]):
    def __iter__(self) -> Iterator[T_co]: ...


def topology(mesh: Any = None) -> dict[str, tuple[int, int]]:
    """Return this rank's coordinate and the size of each dimension, for `otel_ml.init(topology=…)`.

    Args:
        mesh: a `DeviceMesh`; without one, all ranks of the default process group are the dimension `dp`.

    Returns:
        `{}` where there is no process group.
    """
    if mesh is not None:
        coordinate = mesh.get_coordinate()
        names = mesh.mesh_dim_names or tuple(f"dim_{index}" for index in range(mesh.ndim))
        if coordinate is None:
            return {}
        places = zip(names, coordinate, strict=True)
        return {str(name): (int(at), int(mesh.size(index))) for index, (name, at) in enumerate(places)}
    group = _distributed()
    return {} if group is None else {"dp": (group.get_rank(), group.get_world_size())}


@never_raises
def log_environment() -> None:
    """Record versions, devices and the process group as parameters `torch.…`; of the lowest rank, if they differ.

    The device is named where the program has used CUDA already, as after `torch.cuda.set_device()`.
    """
    import torch

    found: dict[str, Any] = {"version": torch.__version__, "threads": torch.get_num_threads()}
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    # Not `is_available()`, which starts the driver: forks could not use CUDA then.
    if devices := torch.cuda.device_count():
        found["devices"] = devices
    # To ask for a name begins CUDA, on the first GPU of the host for each rank that has not chosen one yet.
    if torch.cuda.is_initialized():
        found["device"] = torch.cuda.get_device_name(torch.cuda.current_device())
    group = _distributed()
    if group is not None:
        found["distributed"] = {"backend": str(group.get_backend()), "world_size": group.get_world_size()}
    log_params({"torch": found})


def timed_loader(loader: _Loader[T_co], name: str = "data") -> TimedLoader[T_co]:
    """Return `loader` with every wait for a batch timed: `time/<name>`, of the slowest rank, and a span.

    For loops that do not use `otel_ml.steps(loader)`, which times the same. Everything else of the loader is there:
    `len()`, `dataset`, `sampler`, `set_epoch()`.

    Examples:
        >>> [batch for batch in timed_loader([1, 2])], len(timed_loader([1, 2]))
        ([1, 2], 2)
    """
    return TimedLoader(loader, name)


class TimedLoader(Generic[T_co]):
    """What `timed_loader()` returns."""

    def __init__(self, loader: _Loader[T_co], name: str) -> None:
        self._loader = loader
        self._name = name

    def __iter__(self) -> Iterator[T_co]:
        end = object()
        with timed(self._name):  # workers start here, and take their time
            batches: Iterator[Any] = iter(self._loader)
            batch: Any = next(batches, end)
        while batch is not end:
            # Outside of the timer: what the loop does with a batch is not waiting.
            yield batch
            with timed(self._name):
                batch = next(batches, end)

    def __bool__(self) -> bool:
        return bool(self._loader)  # else Python asks for a length, which a generator has not

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]  # a TypeError of the loader's own where it has none

    def __getattr__(self, name: str) -> Any:
        # While it is unpickled it has no loader yet: `self._loader` would come here again, without end.
        return getattr(object.__getattribute__(self, "_loader"), name)


@never_raises
def log_model(model: Module, name: str = "model") -> None:
    """Record a model's structure as the text `name`, and its sizes as parameters `<name>.…`.

    Sizes are those of this process: of a sharded model, its shard. Parameters that are shared count once; those of
    lazy modules that have no shape yet are not counted.
    """
    parameters = [parameter for parameter in model.parameters() if _is_initialized(parameter)]
    buffers = [buffer for buffer in model.buffers() if _is_initialized(buffer)]
    trainable = sum(_elements(parameter) for parameter in parameters if parameter.requires_grad)
    total = sum(map(_elements, parameters))
    size = sum(_elements(tensor) * tensor.element_size() for tensor in [*parameters, *buffers])
    dtypes = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters})
    facts = {
        "class": type(model).__qualname__,
        "parameters": total,
        "trainable_parameters": trainable,
        "bytes": size,
        "dtypes": dtypes,
    }
    log_params({name: facts})
    log_text(name, _structure(model, total))


def _structure(model: Module, total: int) -> str:
    rows = ["| module | class | parameters |", "|---|---|---:|"]
    for path, module in model.named_modules():
        count = sum(_elements(one) for one in module.parameters() if _is_initialized(one))
        rows.append(f"| {path or '(model)'} | {type(module).__qualname__} | {count:,} |")
    table = "\n".join(rows)
    if len(table) > _LONGEST:
        # Cut at the end of a row.
        kept = table[:_LONGEST].rpartition("\n")[0]
        table = f"{kept}\n| … | {len(rows) - kept.count(chr(10)) - 1} more modules | {total:,} in all |"
    return table


def _is_initialized(tensor: Any) -> bool:
    from torch.nn.parameter import is_lazy

    return not is_lazy(tensor)


def _elements(tensor: Any) -> int:
    """Return how many elements this process has: a `DTensor`, as FSDP 2 shards a model, counts those of all ranks."""
    return int((tensor.to_local() if hasattr(tensor, "to_local") else tensor).numel())


def _distributed() -> Any:
    """Return `torch.distributed` where a process group is up; torch is not imported for it."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None
