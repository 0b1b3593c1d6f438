"""Which stage a Trainer of `transformers` is in: callbacks hear not that it begins to evaluate, or fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from inspect import signature
from typing import Any, Protocol

from otel_ml._internal.steps.stage import Stage

__all__ = ["Follower", "follow_trainers", "stage_named"]

_MARK = "__is_followed_by_otel_ml__"


class Follower(Protocol):
    """A callback that wants to know when its Trainer evaluates."""

    def evaluating(self, trainer: Any, prefix: str) -> AbstractContextManager[object]:
        """Return what an evaluation whose metrics begin with `prefix` is run in."""

    def fail(self) -> None:
        """Know that a training has ended by an exception."""

    def logged(self, trainer: Any, logs: Mapping[str, Any]) -> None:
        """Hear that the Trainer has logged `logs`."""


def stage_named(prefix: str, step: int) -> Stage:
    """Return the stage of an evaluation, by what its metrics begin with; of several data sets each has its own.

    Examples:
        >>> stage_named("eval", 0).name, stage_named("eval_math", 0).name, stage_named("test", 0).name
        ('eval', 'eval/math', 'test')
    """
    # The Trainer evaluates `{"math": …, "code": …}` with the prefixes `eval_math` and `eval_code`.
    kind, _, data_set = prefix.partition("_")
    return Stage(f"{kind}/{data_set}" if kind in {"eval", "test"} and data_set else prefix, step)


def follow_trainers(trainer: type, follower: type[Follower]) -> None:
    """Let callbacks of the class `follower` know when a `trainer` evaluates or predicts, its subclasses' included.

    Trainers without such a callback are not concerned. All three: a subclass may have its own of any of them. What a
    subclass logs passes `log()` of `trainer`, which alone knows the Trainer: callbacks are not told.
    """
    for name in ("evaluate", "predict", "evaluation_loop"):
        _replace(trainer, name, follower, _followed)
    _replace(trainer, "train", follower, _trained)
    _replace(trainer, "log", follower, _heard)


def _replace(
    trainer: type,
    name: str,
    follower: type[Follower],
    followed: Callable[[Callable[..., Any], type[Follower]], Callable[..., Any]],
) -> None:
    """Replace a method once: not by its `__wrapped__`, which decorators of others have, too."""
    method = getattr(trainer, name)
    # A subclass of Trainer that the program defines later inherits our method, mark and all.
    if not hasattr(method, _MARK):
        ours = followed(method, follower)
        setattr(ours, _MARK, True)
        setattr(trainer, name, ours)


def _trained(method: Callable[..., Any], follower: type[Follower]) -> Callable[..., Any]:
    @wraps(method)
    def trained(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except BaseException:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, follower):
                    callback.fail()
            raise

    return trained


def _followed(method: Callable[..., Any], follower: type[Follower]) -> Callable[..., Any]:
    names = signature(method)

    @wraps(method)
    def followed(self: Any, *arguments: Any, **named: Any) -> Any:
        callback = _follower_of(self, follower)
        if callback is None:
            return method(self, *arguments, **named)
        # By name: a subclass may give the prefix by place or leave it out.
        bound = names.bind(self, *arguments, **named)
        bound.apply_defaults()
        with callback.evaluating(self, bound.arguments["metric_key_prefix"]):
            return method(self, *arguments, **named)

    return followed


def _heard(method: Callable[..., Any], follower: type[Follower]) -> Callable[..., Any]:
    @wraps(method)
    def heard(self: Any, logs: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
        # First: it calls `on_log()`, by which the callback begins the run where there is none yet.
        result = method(self, logs, *arguments, **named)
        callback = _follower_of(self, follower)
        if callback is not None:
            callback.logged(self, logs)
        return result

    return heard


def _follower_of(trainer: Any, follower: type[Follower]) -> Follower | None:
    return next((one for one in trainer.callback_handler.callbacks if isinstance(one, follower)), None)
