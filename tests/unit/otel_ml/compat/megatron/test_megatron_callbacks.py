"""Megatron Bridge's callbacks: classes and functions, in order, with one context and one `user_state`."""

from __future__ import annotations

import pytest

from otel_ml.compat.megatron import (
    VALID_EVENTS,
    Callback,
    CallbackContext,
    CallbackManager,
    normalize_callbacks,
    should_fire,
)
from otel_ml.exceptions import ConfigError


def the_context(manager: CallbackManager) -> CallbackContext:
    return CallbackContext(state="state", model=[], user_state=manager.user_state)


class Counts(Callback):
    def on_train_step_end(self, context: CallbackContext) -> None:
        context.user_state["steps"] = context.user_state.get("steps", 0) + 1


@pytest.mark.feature("M34", "yes", "Bridge's classes and functions, with all of its events")
def test_functions_and_objects_are_called_in_the_order_of_registration_and_share_their_state() -> None:
    manager, seen = CallbackManager(), []
    manager.register("on_train_step_end", lambda context: seen.append(dict(context.user_state)))
    manager.add([Counts(), Counts()])
    manager.register("on_train_step_end")(lambda context: seen.append(dict(context.user_state)))

    manager.fire("on_train_step_end", the_context(manager))
    manager.fire("on_train_end", the_context(manager))

    assert seen == [{}, {"steps": 2}]
    assert manager.user_state == {"steps": 2}


def test_what_a_callback_raises_reaches_the_caller_and_ends_the_event() -> None:
    manager, seen = CallbackManager(), []
    manager.register("on_train_end", lambda context: seen.append(1 / 0))
    manager.register("on_train_end", seen.append)

    with pytest.raises(ZeroDivisionError):
        manager.fire("on_train_end", the_context(manager))

    assert seen == []


def test_an_object_is_called_at_the_events_it_overrides_alone() -> None:
    manager = CallbackManager()
    manager.add(Counts())
    manager.add(object())  # type: ignore[arg-type]

    assert [event for event in manager.events if manager.has_callbacks(event)] == ["on_train_step_end"]


@pytest.mark.parametrize("ask", [lambda m: m.register("on_step", print), lambda m: m.list_callbacks("on_step")])
def test_an_unknown_event_is_said_with_those_there_are(ask) -> None:
    with pytest.raises(ConfigError, match=r"Unknown event 'on_step'.*on_checkpoint_save.*on_data_init_start"):
        ask(CallbackManager())


def test_the_list_of_callbacks_is_a_copy() -> None:
    manager = CallbackManager()
    manager.register("on_eval_end", print)

    manager.list_callbacks("on_eval_end").clear()

    assert manager.list_callbacks("on_eval_end") == [print]


def test_a_list_becomes_a_manager_and_a_manager_stays() -> None:
    manager = normalize_callbacks([Counts()])

    assert normalize_callbacks(None) is None
    assert normalize_callbacks(manager) is manager
    assert should_fire(manager, "on_train_step_end")
    assert not should_fire(manager, "on_train_end")
    assert not should_fire(None, "on_train_step_end")
    assert not should_fire(manager, "on_step")


def test_every_event_is_a_method_of_callback() -> None:
    assert len(VALID_EVENTS) == 14
    assert all(callable(getattr(Callback, event)) for event in VALID_EVENTS)


def test_a_class_in_place_of_its_object_is_refused_where_it_is_added() -> None:
    class Told(Callback):
        def on_train_start(self, context: CallbackContext) -> None:
            raise NotImplementedError

    with pytest.raises(ConfigError, match=r"Told was given.*expected an object"):
        CallbackManager().add(Told)  # type: ignore[arg-type]
