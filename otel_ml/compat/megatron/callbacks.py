"""Megatron Bridge's callbacks: functions and objects that are called at the points of a training's life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, overload

from otel_ml.exceptions import ConfigError

__all__ = ["VALID_EVENTS", "Callback", "CallbackContext", "CallbackManager", "normalize_callbacks", "should_fire"]


@dataclass
class CallbackContext:
    """What a callback is given.

    Attributes:
        state: the training's own state.
        model: its chunks.
        user_state: what callbacks keep for each other; give it `CallbackManager.user_state`.
        optimizer: in events of training, else None.
        scheduler: in events of training, else None.
        loss_dict: reduced losses, in `on_train_step_end`.
        grad_norm: in `on_train_step_end`, where it is known.
        skipped_iter: whether the optimizer left the iteration out, in `on_train_step_end`.
        total_loss_dict: losses of an evaluation, in `on_eval_end` and `on_test_end`.
    """

    state: Any
    model: list[Any]
    user_state: dict[Any, Any] = field(default_factory=dict)
    optimizer: Any = None
    scheduler: Any = None
    loss_dict: dict[str, Any] | None = None
    grad_norm: float | None = None
    skipped_iter: bool | None = None
    total_loss_dict: dict[str, Any] | None = None


Function = Callable[[CallbackContext], object]


class Callback:
    """Base of a class whose methods are callbacks: those that a subclass overrides are called."""

    def on_data_init_start(self, context: CallbackContext) -> None:
        """Model, optimizer and checkpoint are ready; no file of data has been opened."""

    def on_train_start(self, context: CallbackContext) -> None:
        """Training begins."""

    def on_train_step_start(self, context: CallbackContext) -> None:
        """A step begins."""

    def on_train_step_end(self, context: CallbackContext) -> None:
        """A step has ended."""

    def on_train_end(self, context: CallbackContext) -> None:
        """Training has ended."""

    def on_eval_start(self, context: CallbackContext) -> None:
        """An evaluation begins."""

    def on_eval_step_start(self, context: CallbackContext) -> None:
        """A step of it begins."""

    def on_eval_step_end(self, context: CallbackContext) -> None:
        """A step of it has ended."""

    def on_eval_end(self, context: CallbackContext) -> None:
        """It has ended."""

    def on_test_start(self, context: CallbackContext) -> None:
        """A test begins."""

    def on_test_step_start(self, context: CallbackContext) -> None:
        """A step of it begins."""

    def on_test_step_end(self, context: CallbackContext) -> None:
        """A step of it has ended."""

    def on_test_end(self, context: CallbackContext) -> None:
        """It has ended."""

    def on_checkpoint_save(self, context: CallbackContext) -> None:
        """A checkpoint has been saved."""


VALID_EVENTS = frozenset(name for name in vars(Callback) if name.startswith("on_"))


class CallbackManager:
    """Calls what was registered, in order. What a callback raises reaches the caller of `fire()`, as in Bridge.

    Attributes:
        user_state: what callbacks keep for each other, as long as the manager lives.

    Examples:
        >>> callbacks = CallbackManager()
        >>> callbacks.register("on_train_step_end", lambda context: print("loss", context.loss_dict["lm loss"]))
        >>> callbacks.fire("on_train_step_end", CallbackContext(None, [], loss_dict={"lm loss": 2.5}))
        loss 2.5
    """

    def __init__(self) -> None:
        self.user_state: dict[Any, Any] = {}
        self._registered: dict[str, list[Function]] = {event: [] for event in VALID_EVENTS}

    @property
    def events(self) -> frozenset[str]:
        """Names of all events."""
        return VALID_EVENTS

    def add(self, callback: Callback | list[Callback]) -> None:
        """Register the methods that an object, or each of a list, has beyond those of `Callback`.

        Raises:
            ConfigError: a class was given.
        """
        for one in callback if isinstance(callback, list) else [callback]:
            if isinstance(one, type):
                raise ConfigError(f"The class {one.__name__} was given to add(): expected an object, {one.__name__}().")
            for event, registered in self._registered.items():
                method = getattr(one, event, None)
                # A static method, or a function that was set on the object, has no `__func__`, and counts as one of
                # the program's own.
                if method is not None and getattr(method, "__func__", None) is not getattr(Callback, event):
                    registered.append(method)

    @overload
    def register(self, event_name: str, fn: Function) -> None: ...
    @overload
    def register(self, event_name: str, fn: None = None) -> Callable[[Function], Function]: ...
    def register(self, event_name: str, fn: Function | None = None) -> Callable[[Function], Function] | None:
        """Register a function of a `CallbackContext` for an event; without one, return a decorator that does.

        Raises:
            ConfigError: there is no such event.
        """
        registered = self._functions(event_name)
        if fn is not None:
            registered.append(fn)
            return None

        def decorated(function: Function) -> Function:
            registered.append(function)
            return function

        return decorated

    def list_callbacks(self, event_name: str) -> list[Function]:
        """Return what is called at an event, in order.

        Raises:
            ConfigError: there is no such event.
        """
        return list(self._functions(event_name))

    def has_callbacks(self, event_name: str) -> bool:
        """Whether anything is called at an event; False for one that there is not."""
        return bool(self._registered.get(event_name))

    def fire(self, event_name: str, context: CallbackContext) -> None:
        """Call what is registered for an event, in order; one that raises is the last.

        Raises:
            KeyError: there is no such event.
        """
        # The list itself: what a callback registers for the same event is called in this event, too.
        for function in self._registered[event_name]:
            function(context)

    def _functions(self, event_name: str) -> list[Function]:
        if event_name not in self._registered:
            raise ConfigError(f"Unknown event {event_name!r}: expected one of {', '.join(sorted(VALID_EVENTS))}.")
        return self._registered[event_name]


def normalize_callbacks(callbacks: list[Callback] | CallbackManager | None) -> CallbackManager | None:
    """Return the manager of a list of callbacks; a manager and None as they are."""
    if callbacks is None or isinstance(callbacks, CallbackManager):
        return callbacks
    manager = CallbackManager()
    manager.add(callbacks)
    return manager


def should_fire(callback_manager: CallbackManager | None, event_name: str) -> bool:
    """Whether there is a manager, and it has something for an event."""
    return callback_manager is not None and callback_manager.has_callbacks(event_name)
