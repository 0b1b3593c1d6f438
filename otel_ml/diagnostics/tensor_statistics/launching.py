"""Kernels are compiled before they are needed; where they cannot be, that is said once, and others do their work.

To compile one takes seconds the first time on a machine (Triton keeps it), which no training step should wait for:
`compile_now()` does it while a program sets up, and `are_compiled()` has another thread do it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from otel_ml.once import guard

__all__ = ["Recipe", "Recipes", "are_compiled", "compile_now", "launch", "warps"]


class Recipe(NamedTuple):
    """What a kernel is compiled for.

    Attributes:
        kernel: of Triton.
        arguments: a type of torch for each table, a number for each number.
        options: constants of the kernel, and options of the compiler.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]


Recipes = list[tuple[str, Callable[[], Recipe]]]
"""By name, which is theirs alone; made where they are needed, since to make one imports Triton."""

_compiled: set[tuple[int, str]] = set()
"""Devices and names."""

_begun: set[tuple[int, str]] = set()
"""The same, of which a thread has been told."""

_missing: list[str] = []
"""Why there are no kernels, once that is known."""


def launch(recipe: Recipe, programs: int, *arguments: Any) -> None:
    """Launch a kernel on the current stream of the current device."""
    recipe.kernel[(programs,)](*arguments, **recipe.options)


@cache
def warps(threads: int, device: Any) -> dict[str, Any]:
    """Return the options of so many threads; some AMD devices have 64 in a warp."""
    import torch

    width = getattr(torch.cuda.get_device_properties(device), "warp_size", 32) if device.type == "cuda" else 32
    return {"num_warps": threads // width, "enable_fp_fusion": True}


def compile_now(device: Any, recipes: Recipes) -> bool:
    """Compile what is not compiled yet; return whether all of it can be launched."""
    import torch

    if _missing:
        return False
    try:
        with torch.cuda.device(device):
            for name, made in recipes:
                if (device.index, name) not in _compiled:
                    recipe = made()
                    recipe.kernel.warmup(*recipe.arguments, grid=(1,), **recipe.options)
                    _compiled.add((device.index, name))
    except Exception as error:  # noqa: BLE001 - no Triton, no compiler for it, a device that it does not know
        _missing.append(repr(error))
        guard.say("no-tensor-kernels", _MISSING.format(error))
    return not _missing


def are_compiled(device: Any, recipes: Recipes) -> bool:
    """Return whether all can be launched; those that cannot are compiled by another thread, once."""
    missing = [recipe for recipe in recipes if (device.index, recipe[0]) not in _compiled]
    if not missing or _missing:
        return not missing
    unknown = [recipe for recipe in missing if (device.index, recipe[0]) not in _begun]
    if unknown:
        _begun.update((device.index, name) for name, _ in unknown)
        threading.Thread(target=compile_now, args=(device, unknown), name="otel_ml_compile", daemon=True).start()
    return False


_MISSING = (
    "Statistics of tensors on a GPU are computed by operations of torch, which takes several times as long as kernels "
    "would: {}. Install the triton that belongs to your torch, and a C compiler, which it needs."
)
