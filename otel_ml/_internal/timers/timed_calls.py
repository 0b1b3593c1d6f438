"""A timer around every call of a function, whatever kind of function it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

__all__ = ["Measured", "timed_calls"]

F = TypeVar("F", bound=Callable[..., Any])

Measured = Callable[[], "AbstractContextManager[Any] | None"]
"""Makes the timer of one call, or None while its level is off."""

_UNTIMED: AbstractContextManager[Any] = nullcontext()


def timed_calls(function: F, measured: Measured) -> F:
    """Return `function` with each call inside a timer of its own, so it may recurse and run in parallel.

    A generator is timed while it runs itself, from each resumption to the next yield: what its caller
    does between is the caller's time.
    """
    target: Any = function
    if isinstance(target, (staticmethod, classmethod)):
        return type(target)(timed_calls(target.__func__, measured))  # type: ignore[return-value]
    if inspect.isasyncgenfunction(target):
        return _async_generator(target, measured)  # type: ignore[return-value]
    if inspect.iscoroutinefunction(target):
        return _coroutine(target, measured)  # type: ignore[return-value]
    if inspect.isgeneratorfunction(target):
        return _generator(target, measured)  # type: ignore[return-value]
    return _plain(target, measured)  # type: ignore[return-value]


def _plain(function: Callable[..., Any], measured: Measured) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Asked at each call: a run that has begun since the function was decorated may have another level.
        timing = measured()
        if timing is None:
            return function(*args, **kwargs)
        with timing:
            return function(*args, **kwargs)

    return call


def _coroutine(function: Callable[..., Any], measured: Measured) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        timing = measured()
        if timing is None:
            return await function(*args, **kwargs)
        with timing:
            return await function(*args, **kwargs)

    return call


def _generator(function: Callable[..., Generator[Any, Any, Any]], measured: Measured) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        # What is to be done inside of the next timer: to go on, or what the caller has sent or thrown in.
        resume: Callable[[], Any] = functools.partial(next, generator)
        while True:
            with measured() or _UNTIMED:
                try:
                    item = resume()
                except StopIteration as stop:  # within the timer: to have come to its end is not an error of its span
                    return stop.value
            try:
                sent = yield item
            except GeneratorExit:
                # Outside of a timer: what the generator does while it is closed is not measured.
                generator.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever is thrown in belongs to the generator
                resume = functools.partial(generator.throw, error)
            else:
                resume = functools.partial(generator.send, sent)

    return call


def _async_generator(function: Callable[..., AsyncGenerator[Any, Any]], measured: Measured) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        # As above.
        resume: Callable[[], Any] = generator.__anext__
        while True:
            with measured() or _UNTIMED:
                try:
                    item = await resume()
                except StopAsyncIteration:  # as above
                    return
            try:
                sent = yield item
            except GeneratorExit:
                await generator.aclose()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever is thrown in belongs to the generator
                resume = functools.partial(generator.athrow, error)
            else:
                resume = functools.partial(generator.asend, sent)

    return call
