"""Functions that are called at the points of a training's life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from otel_ml.exceptions import ConfigError
from otel_ml.once import say

__all__ = ["EVENTS", "CallbackManager"]

F = TypeVar("F", bound=Callable[..., Any])

EVENTS = tuple(
    f"on_{what}_{when}"
    for what in ("train", "train_step", "eval", "eval_step", "test", "test_step")
    for when in ("start", "end")
)


class CallbackManager:
    """Calls what was registered, in order; one that fails is reported once, and training goes on.

    Examples:
        >>> callbacks = CallbackManager()
        >>> @callbacks.register("on_train_step_end")
        ... def show(iteration):
        ...     print("step", iteration)
        >>> callbacks.fire("on_train_step_end", iteration=3)
        step 3
    """

    def __init__(self) -> None:
        self._registered: dict[str, list[Callable[..., Any]]] = {event: [] for event in EVENTS}

    def register(self, event: str) -> Callable[[F], F]:
        """Return a decorator that registers a function for `event`.

        Raises:
            ConfigError: there is no such event.
        """
        if event not in self._registered:
            raise ConfigError(f"Callback {event!r}: expected one of {', '.join(EVENTS)}.")

        def registered(function: F) -> F:
            self._registered[event].append(function)
            return function

        return registered

    def fire(self, event: str, **context: Any) -> None:
        """Call all functions of `event`."""
        for function in self._registered.get(event, ()):
            try:
                function(**context)
            except Exception as error:  # noqa: BLE001 (a user's function fails in any way)
                name = getattr(function, "__qualname__", repr(function))
                say(
                    "compat-megatron",
                    f"Callback {name!r} of {event} raised {type(error).__name__}: {error}. "
                    "Training goes on; correct it.",
                )
