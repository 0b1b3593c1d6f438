"""Whatever a program gives to a public call, training goes on; what is wrong is said once, and counted by value."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import otel_ml
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.lifecycle.isolation import forget_everything
from otel_ml._internal.timers.consumed import settle_consumed
from otel_ml.exceptions import OtelMLError
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.every_call import HOSTILE, METHODS, NAMES, RAISES, RUN_METHODS, Mistake, method, mistakes

ENDS = {"shutdown", "finish"}
"""Calls after which there is no run to go on with."""

WITHOUT_A_RUN = [name for name in NAMES if name != "init"]
EVERY = [*NAMES, *(f"Run.{name}" for name in RUN_METHODS), *METHODS]
IN_A_RUN = [name for name in EVERY if name.rpartition(".")[2] not in ENDS | {"init", "instrument_ray"}]


def call_of(name: str, run: Any) -> Callable[..., Any]:
    if name in NAMES:
        found: Callable[..., Any] = getattr(otel_ml, name)
        return found
    return getattr(run, name.removeprefix("Run.")) if name.startswith("Run.") else method(name, run)


def said_by(call: Callable[..., Any], name: str, mistake: Mistake) -> list[str]:
    """Return what a call says, all of it done: what it returns is used as a program uses it."""
    said: list[str] = []
    reporter.forget()
    reporter.connect(said.append)
    try:
        use(call(*mistake.args, **mistake.named))
        settle_consumed()
    except OtelMLError:
        assert name in RAISES
    except Exception as error:  # noqa: BLE001 (that there is none is what is tested)
        pytest.fail(f"{name} of {mistake.given} as {mistake.kind}: {type(error).__name__}: {error}")
    return said


def use(found: Any) -> None:
    """Use what a call returns: a block's body is done, and its exceptions are its own."""
    if hasattr(type(found), "__enter__") and type(found).__name__ != "Run":
        done = []
        with pytest.raises(KeyError, match="own"), found as span:  # noqa: PT012 (of the block)
            done.append(span)
            raise KeyError("own")
        assert len(done) == 1
    elif hasattr(found, "start"):
        found.start()
        found.stop()


@pytest.fixture
def run() -> Iterator[Capture]:
    with capture() as captured:
        yield captured


@pytest.mark.parametrize("name", IN_A_RUN)
def test_nothing_raises_and_no_mistake_is_called_a_failure_of_otel_ml(name: str, run: Capture) -> None:
    call = call_of(name, otel_ml.init())
    for mistake in mistakes(call):
        said = said_by(call, name, mistake)

        assert not [one for one in said if "internal-error" in one], mistake
        if mistake.kind in {"missing", "more", "unknown", "twice"} and name not in RAISES:
            assert said or mistake.kind == "twice", mistake  # values by name, say, beside one that is given
            assert all(any(word in one.lower() for word in ("expected", "call ", "takes", "give ")) for one in said)


@pytest.mark.parametrize("name", [name for name in WITHOUT_A_RUN if name not in {"shutdown", "flush"}])
def test_nothing_raises_before_a_run(name: str) -> None:
    forget_everything()
    call = getattr(otel_ml, name)
    try:
        for mistake in mistakes(call):
            assert not [one for one in said_by(call, name, mistake) if "internal-error" in one], mistake
    finally:
        otel_ml.shutdown()  # child_env() begins a run where the environment asks for one
        forget_everything()


@pytest.mark.parametrize("name", [name for name in IN_A_RUN if name != "read"])
def test_nothing_raises_after_the_end_of_the_run(name: str) -> None:
    with capture():
        ended = otel_ml.init()
        call = call_of(name, ended)
        ended.shutdown()
        for mistake in mistakes(call):
            assert not [one for one in said_by(call, name, mistake) if "internal-error" in one], mistake


def test_nothing_raises_in_a_forked_child(run: Capture) -> None:
    parents = otel_ml.init()
    mine, childs = os.pipe()
    child = os.fork()
    if not child:
        try:
            for name in IN_A_RUN:
                for mistake in mistakes(call := call_of(name, parents)):
                    if "huge" not in mistake.given:  # which take long, and are the same here
                        said_by(call, name, mistake)
            os.write(childs, b"done")
        except BaseException as error:  # noqa: BLE001 (the parent tells)
            os.write(childs, str(error).encode())
        os._exit(0)
    os.close(childs)
    with open(mine, "rb") as said:  # noqa: PTH123 (a descriptor)
        assert said.read() == b"done"
    os.waitpid(child, 0)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"init", "read", "instrument_ray", *ENDS}])
def test_under_strict_a_mistake_raises_an_error_of_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_STRICT", "true")
    with capture():
        call = getattr(otel_ml, name)
        for mistake in mistakes(call):
            if mistake.kind not in {"more", "unknown"}:
                continue
            with pytest.raises(OtelMLError):
                call(*mistake.args, **mistake.named)


@pytest.mark.parametrize("name", sorted(RAISES))
def test_what_configures_raises_an_error_of_ours_that_says_how_it_is_called(name: str) -> None:
    call = getattr(otel_ml, name)
    for mistake in mistakes(call):
        if mistake.kind in {"more", "unknown", "twice", "missing"}:
            with pytest.raises(OtelMLError, match=name):
                call(*mistake.args, **mistake.named)


@pytest.mark.parametrize(
    "option", [name for name in inspect.signature(otel_ml.log).parameters if name not in {"values", "named", "commit"}]
)
@pytest.mark.parametrize("values", [{"a": 1.0}, {"a": 1.0, "b": 2, "c": 3.0}, {f"m{n}": 1.0 for n in range(9)}])
def test_of_a_call_with_a_wrong_option_every_value_is_recorded_or_counted(
    option: str, values: dict[str, Any], run: Capture
) -> None:
    done = 0
    for make in HOSTILE.values():
        reporter.dropped.clear()
        otel_ml.log(values, **{option: make()})
        counted = sum(reporter.dropped.values())
        before, done = done, sum(point.count for point in run.points)

        assert counted in {0, len(values)}
        assert done - before + counted == len(values)


@pytest.mark.parametrize("given", HOSTILE)
def test_of_a_value_that_is_wrong_it_alone_is_lost(given: str, run: Capture) -> None:
    otel_ml.log({"good": 1.0, "other": HOSTILE[given](), "more": 2.0})

    kept = {point.name: point.count for point in run.points}
    assert (kept.pop("good"), kept.pop("more")) == (1, 1)
    assert kept.get("other", 0) + sum(reporter.dropped.values()) >= 1
    assert bool(kept) != bool(reporter.dropped)
    assert not [said for said in run.notices if "internal-error" in said]


def test_a_value_by_name_beside_a_dictionary_is_told_where_it_belongs_and_counted(run: Capture) -> None:
    otel_ml.log({"a": 1}, loss=2, acc=0.5, sync=False)  # type: ignore[call-overload]

    [said] = run.notices
    assert "unknown argument loss, acc, sync" in said
    assert "call log({…, 'loss': 2})" in said
    assert reporter.dropped == {"bad_value": 2}  # `sync` is a switch
    assert [(point.name, point.count) for point in run.points] == [("a", 1)]


def test_a_second_value_is_told_from_a_failure(run: Capture) -> None:
    otel_ml.get_meter().metric("loss").record(1.0, 2)  # type: ignore[arg-type]

    [said] = run.notices
    assert "record(): expected attributes such as {'task': 'math'}, got 2. Pass a mapping." in said
    assert reporter.dropped == {"bad_attributes": 1}


@pytest.mark.parametrize("make", [otel_ml.timed, otel_ml.operation, lambda *_, **named: otel_ml.init().timed(**named)])
@pytest.mark.parametrize("given", [((), {}), (("x",), {"no_such_option": 1}), ((3,), {})])
def test_a_function_under_a_decorator_that_was_made_wrongly_runs_once_and_raises_its_own(
    make: Any, given: tuple[tuple[Any, ...], dict[str, Any]], run: Capture
) -> None:
    done = []

    def body(fails: TypeError) -> None:
        done.append(fails)
        raise fails

    args, named = given
    own = TypeError("missing 1 required positional argument: 'batch'")
    with pytest.raises(TypeError) as raised:
        make(*args, **named)(body)(own)

    assert raised.value is own
    assert done == [own]


class SilentError(Exception):
    """An exception that has no text."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("is_in_a_run", [True, False])
def test_the_span_of_a_block_takes_what_a_span_takes_also_where_nothing_is_measured(
    level: int, *, is_in_a_run: bool
) -> None:
    def step() -> None:
        with otel_ml.timed("forward", level=level) as span:
            span.set_attribute("batch", 3)
            span.set_attributes({"batch": 3})
            span.add_event("retry", {"n": 1})
            span.record_exception(SilentError())
            assert span.get_span_context() is not None
            raise SilentError

    with pytest.raises(SilentError):  # noqa: PT012 (of the block)
        if is_in_a_run:
            with capture():
                step()
        else:
            step()


def test_a_mistake_is_said_once_whatever_it_has(run: Capture) -> None:
    for step in range(5):
        otel_ml.operation("x", step)  # type: ignore[call-arg]
        otel_ml.current_step("step", step)  # type: ignore[call-arg]

    first, second = run.notices
    assert "operation(): expected options by name, got 0 by position. Call operation(name, level=0)." in first
    assert "current_step(): got 0 beside what it takes. Call current_step(axis=None)." in second
