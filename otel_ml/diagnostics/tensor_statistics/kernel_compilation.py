"""Kernels are compiled before they are needed; where that fails, otel_ml reports it once and uses others.

To compile one takes seconds the first time on a machine (Triton keeps it), which no training step should wait for:
`compile_now()` does it while a program sets up, and `are_compiled()` has another thread do it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from otel_ml._internal.devices.cuda_thread import captures_left_alone
from otel_ml.warn_once import reporter

__all__ = ["Recipe", "Recipes", "are_compiled", "compile_now", "launch", "warps"]


@dataclass(slots=True, eq=False)
class Recipe:
    """What a kernel is compiled for, and what came of it.

    Attributes:
        kernel: of Triton.
        arguments: a type of torch for each table, a number for each number.
        options: constants of the kernel, which come behind its arguments, and options of the compiler.
        compiled: the kernel as it is launched; None before, and where only Triton itself can launch it.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    compiled: Any = None


Recipes = list[tuple[str, Callable[[], Recipe]]]
"""By name, which is theirs alone; made where they are needed, since to make one imports Triton."""

_compiled: set[tuple[int, str]] = set()
"""Devices and names."""

_begun: set[tuple[int, str]] = set()
"""The same, of which a thread has been told."""

_missing: set[tuple[int, str]] = set()
"""The same, which cannot be compiled: what needs others has them all the same."""


def launch(recipe: Recipe, programs: int, *arguments: Any) -> None:
    """Launch a kernel on the current stream of the current device."""
    if recipe.compiled is not None and all(map(_is_as_compiled_for, arguments)):
        try:
            # Triton would find out anew which of its kernels fits: of a launch of 40 µs this takes 35.
            recipe.compiled[(programs, 1, 1)](*arguments, *_constants(recipe))
        except Exception:  # noqa: BLE001 - a Triton that launches otherwise; what the device has against it comes again
            recipe.compiled = None
        else:
            return
    recipe.kernel[(programs,)](*arguments, **recipe.options)


def _is_as_compiled_for(argument: Any) -> bool:
    # Compiled for numbers of 32 bits, and for tables that begin at a multiple of 16 bytes.
    if type(argument) is int:
        return argument < 2**31
    return type(argument) is float or argument.data_ptr() % 16 == 0


def _constants(recipe: Recipe) -> list[Any]:
    return [recipe.options[name] for name in recipe.kernel.arg_names[len(recipe.arguments) :]]


def _compile(recipe: Recipe) -> None:
    compiled = recipe.kernel.warmup(*recipe.arguments, grid=(1,), **recipe.options)
    if hasattr(compiled, "_init_handles"):  # the interpreter compiles nothing
        # Else the first launch would do it, in a step: load the kernel, and with Triton 3.6 and before have C compiled
        # that launches it, which takes a second, or fails where there is no compiler.
        with captures_left_alone():
            compiled._init_handles()  # noqa: SLF001 - all that Triton has for it, from 3.0 to 3.9
    recipe.compiled = compiled if _can_be_launched(recipe, compiled) else None


def _can_be_launched(recipe: Recipe, compiled: Any) -> bool:
    """Return whether a compiled kernel is for any arguments of these types, and Triton lets it be launched."""
    import triton

    major, minor = map(int, triton.__version__.split(".")[:2])
    if (major, minor) < (3, 3) or not hasattr(compiled, "launch_metadata"):  # the interpreter compiles nothing
        return False
    given = zip(recipe.kernel.params, recipe.arguments, strict=False)
    constants = {*recipe.kernel.arg_names[len(recipe.arguments) :]}
    return constants <= recipe.options.keys() and all(
        parameter.do_not_specialize for parameter, argument in given if type(argument) is int
    )


@cache
def warps(threads: int, device: Any) -> dict[str, Any]:
    """Return the options of so many threads; some AMD devices have 64 in a warp."""
    import torch

    width = getattr(torch.cuda.get_device_properties(device), "warp_size", 32) if device.type == "cuda" else 32
    return {"num_warps": threads // width, "enable_fp_fusion": True}


def compile_now(device: Any, recipes: Recipes) -> bool:
    """Compile what is not compiled yet; return whether all of it can be launched."""
    compiled = [_is_compiled(device, name, made) for name, made in recipes]
    return all(compiled)


def _is_compiled(device: Any, name: str, made: Callable[[], Recipe]) -> bool:
    import torch

    key = device.index, name
    if key in _compiled or key in _missing:
        return key in _compiled
    try:
        with torch.cuda.device(device):
            _compile(made())
        _compiled.add(key)
    except Exception as error:  # noqa: BLE001 - no Triton, no compiler for it, a device that it does not know
        _missing.add(key)
        reporter.say("no-tensor-kernels", _MISSING.format(error), kind=_MISSING)
    return key in _compiled


def are_compiled(device: Any, recipes: Recipes) -> bool:
    """Return whether all can be launched; those that cannot are compiled by another thread, once.

    A program that ends meanwhile waits for the kernel that is being compiled: Python ends a daemon's thread when it
    comes back from Triton, whose C++ then aborts the process.
    """
    missing = [recipe for recipe in recipes if (device.index, recipe[0]) not in _compiled]
    unknown = [recipe for recipe in missing if (device.index, recipe[0]) not in _begun | _missing]
    if unknown:
        # Before the thread starts: the next step may ask again at once.
        _begun.update((device.index, name) for name, _ in unknown)
        threading.Thread(target=_compile_meanwhile, args=(device, unknown), name="otel_ml_compile").start()
    return not missing


def _compile_meanwhile(device: Any, recipes: Recipes) -> None:
    for recipe in recipes:
        # Between two kernels: who ends meanwhile waits for one, and not for all.
        if threading.main_thread().is_alive():
            compile_now(device, [recipe])


_MISSING = (
    "Statistics of tensors on a GPU are computed by operations of torch, which takes several times as long as kernels "
    "would: {}. Install the triton that belongs to your torch, and a C compiler, which it needs."
)
