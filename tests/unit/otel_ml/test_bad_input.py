"""Bad input of every kind: said with what was wrong, what was expected and what to do; all else is recorded."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.call_forms import OPTIONS
from otel_ml.exceptions import WireError
from otel_ml.testing import capture
from otel_ml.wire.reduction import Reduction


class Unprintable:
    """What a configuration may hold: an object whose text cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


def nested(depth: int) -> Any:
    return {"deeper": nested(depth - 1)} if depth else 1


A_NUMBER = "expected a number, a 0-d array or tensor, or a 1-d sequence of numbers"
A_STEP = "expected a step that is a whole number from 0 on"
A_NAME = "expected a name that is a non-empty string and has no 'otel_ml/' at its beginning"

CASES: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "an empty name": (lambda: otel_ml.log({"": 1.0}), (A_NAME, "got ''.", "Give it one such as 'loss'")),
    "a name that is not a string": (lambda: otel_ml.record(None, 1.0), (A_NAME, "got None.")),
    "a reserved name": (lambda: otel_ml.log({"otel_ml/x": 1.0}), (A_NAME, "got 'otel_ml/x'.")),
    "None": (lambda: otel_ml.log({"v": None}), ("Metric 'v'", A_NUMBER, "got None", "leave the name out")),
    "a dictionary": (
        lambda: otel_ml.log({"v": {"a": 1}}),
        ("Metric 'v'", A_NUMBER, "got a dict", "record its entries under names of their own"),
    ),
    "a 3-d array": (
        lambda: otel_ml.log({"v": np.zeros((2, 2, 2))}),
        ("Metric 'v'", A_NUMBER, "of shape (2, 2, 2)", "reduce it first, or use log_histogram() or log_image()"),
    ),
    "an object": (lambda: otel_ml.log({"v": object()}), ("Metric 'v'", A_NUMBER, "got a object", "float()")),
    "a text": (lambda: otel_ml.log({"v": "high"}), ("Metric 'v'", A_NUMBER, "got 'high' (str)", "log_text()")),
    "no mapping": (lambda: otel_ml.log(3), ("log(): expected names and values such as {'loss': 0.5}, got 3.",)),
    "no argument": (lambda: otel_ml.log(None), ("log(): expected names and values such as {'loss': 0.5}, got None.",)),
    "a call with an argument that there is not": (
        lambda: otel_ml.log_text("t", "words", colour="red"),
        (
            "log_text(): got an unexpected keyword argument 'colour'.",
            "Call log_text(name, text, step=None, *, axis=None), with what follows the star by name.",
        ),
    ),
    "a call without its argument": (
        lambda: otel_ml.event(),
        ("event(): missing a required argument: 'name'. Call event(name, attributes=None, *, step=None, axis=None)",),
    ),
    "a negative weight": (
        lambda: otel_ml.log({"v": 1.0}, weight=-1),
        ("Metric 'v'", "got weight -1, which is not a finite number from 0 on"),
    ),
    "a negative step": (lambda: otel_ml.log({"v": 1.0}, step=-1), ("log()", A_STEP, "got -1.", "Pass an int.")),
    "a float step": (lambda: otel_ml.log({"v": 1.0}, step=1.5), ("log()", A_STEP, "got 1.5.", "Pass an int.")),
    "a bool step": (lambda: otel_ml.log({"v": 1.0}, step=True), ("log()", A_STEP, "got True.", "Pass an int.")),
    "a text step": (lambda: otel_ml.log({"v": 1.0}, step="3"), ("log()", A_STEP, "got '3'.", "Pass an int.")),
    "set_step of a text": (lambda: otel_ml.set_step("3"), ("set_step()", A_STEP, "got '3'.", "Pass an int.")),
    "a block of a bad step": (lambda: otel_ml.step(-1).__enter__(), ("step()", A_STEP, "got -1.", "Pass an int.")),
    "a bad axis": (
        lambda: otel_ml.log({"v": 1.0}, axis=""),
        ("log(): expected an axis such as 'rollout', got ''.", "Pass a non-empty string."),
    ),
    "a bad image": (
        lambda: otel_ml.log_image("i", np.zeros((2, 3, 4, 5))),
        ("log_image()", "of shape (2, 3, 4, 5)", "Expected (height, width)"),
    ),
    "a missing artifact": (
        lambda: otel_ml.log_artifact(Path("/nowhere/at/all")),
        ("log_artifact(): no file or folder '/nowhere/at/all'.", "Expected one that exists at the call."),
    ),
    "an empty path": (lambda: otel_ml.log_artifact(""), ("log_artifact(): expected a path, got ''.",)),
    "a summary that is none": (
        lambda: otel_ml.init().summary(None),
        ("summary(): expected names and numbers such as {'test/accuracy': 0.93}, got None.",),
    ),
    "a summary without a name": (lambda: otel_ml.init().summary({"": 1.0}), ("summary(): expected a name, got ''.",)),
    "a summary of the account": (
        lambda: otel_ml.init().summary({"otel_ml/dropped/too_late": 1.0}),
        ("summary(): expected a name, got 'otel_ml/dropped/too_late'.",),
    ),
    "a text of the account": (
        lambda: otel_ml.log_text("otel_ml/failure", "x"),
        ("log_text(): expected a name, got 'otel_ml/failure'.",),
    ),
    "a summary too large for a double": (
        lambda: otel_ml.init().summary({"n": 10**400}),
        ("summary(): expected a number for 'n', got 1000",),
    ),
    "a summary of several numbers": (
        lambda: otel_ml.init().summary({"n": torch.ones(2)}),
        ("summary(): expected a number for 'n', got a Tensor of shape (2,).",),
    ),
    "attributes of an event in an array": (
        lambda: otel_ml.event("e", np.ones(2)),
        ("event(): expected attributes in a mapping, got array([1., 1.]).",),
    ),
    "a prefix that is not a text": (
        lambda: otel_ml.log_params({"lr": 1}, prefix=["a"]),
        ("log_params(): expected a prefix such as 'model', got ['a'].",),
    ),
    "a timer's level that is none": (
        lambda: otel_ml.timer("t", level=None).start(),
        ("Timer 't': expected a level that is a whole number, got None. It is 1.",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_once_and_nothing_else_is_lost(case: str) -> None:
    call, expected = CASES[case]
    with capture() as run:
        otel_ml.set_step(4)
        otel_ml.log({"good": 1.0})
        for _ in range(3):
            call()
        otel_ml.log({"good": 2.0})
        otel_ml.log_text("note", "kept")

        (said,) = run.notices
        assert [part for part in expected if part not in said] == []
        assert [(point.name, point.step, point.count, point.value) for point in run.points] == [("good", 4, 2, 3.0)]
        assert [event.name for event in run.events if event.kind != "ml.notice"] == ["note"]


@pytest.mark.parametrize("log", [otel_ml.log_artifact, otel_ml.log_checkpoint])
@pytest.mark.parametrize(("aliases", "kept"), [(None, []), ("best", ["best"]), (("a", 1), ["a", "1"]), (5, [])])
def test_a_file_is_kept_whatever_its_aliases_are(
    log: Callable[..., None], aliases: Any, kept: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "model.bin"
    file.write_text("weights")
    with capture() as run:
        log(file, aliases=aliases)

        (artifact,) = [event for event in run.events if event.kind == "ml.artifact"]
        assert list(artifact.attributes["ml.artifact.aliases"]) == kept
        expected = [] if aliases != 5 else ["expected aliases such as ['best'], got 5. It has none."]
        assert [part for part in expected if part not in "".join(run.notices)] == []
        assert len(run.notices) == len(expected)


def test_an_unknown_reduction_is_said_with_the_nearest_and_the_value_is_kept() -> None:
    with capture() as run:
        otel_ml.log({"loss": 1.0}, step=0, reduce="men")

        (said,) = run.notices
        assert "Metric 'loss': Unknown reduction 'men'. Did you mean 'mean'? Known: mean, sum, " in said
        assert [(point.name, point.reduction, point.value) for point in run.points] == [("loss", "mean", 1.0)]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"reduce": "avg"}, "'mean'"),
        ({"reduce": "median"}, "'p50'"),
        ({"reduce": "SUM"}, "'sum'"),
        ({"reduce": "mean,max"}, "('mean', 'max')"),
        ({"reduce": "sum>max"}, "within='sum', reduce='max'"),
        ({"within": "average"}, "'mean'"),
        ({"within": "median"}, None),
        ({"reduce": "mean,maxx"}, None),
    ],
)
def test_a_reduction_as_others_write_it_is_said_as_it_is_written_here(given: Any, meant: str | None) -> None:
    with capture() as run:
        otel_ml.log({"loss": 1.0}, step=0, **given)

        (said,) = run.notices
        assert said.partition(" Did you mean ")[2].partition("? Known: ")[0] == (meant or "")


def test_a_text_of_a_million_characters_is_no_reduction_and_compared_with_none() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="Unknown reduction 'xxx"):
            Reduction(("x" * 1_000_000,))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 10_000_000, "to compare texts takes 37 bytes for each character"


def test_two_reductions_of_one_metric_are_said_with_what_to_do_and_both_values_kept() -> None:
    with capture() as run:
        otel_ml.log({"tokens": 1.0}, step=0, reduce="sum")
        otel_ml.log({"tokens": 2.0}, step=0, reduce="max")

        (said,) = run.notices
        assert "'tokens' is reduced by 'sum' in this process, so 'max' is not used." in said
        assert "give both as a tuple, or rename one" in said
        assert [(point.reduction, point.count, point.value) for point in run.points] == [("sum", 2, 3.0)]


def test_unusual_names_are_no_mistake() -> None:
    names = ["n" * 300, "größe", "loss@5", "a//b", "with space", *(f"n{i}" for i in range(10_000))]
    with capture() as run:
        otel_ml.log(dict.fromkeys(names, 1.0), step=0)

        assert {point.name for point in run.points} == set(names)
        assert run.notices == []


def test_params_of_any_depth_and_kind_are_kept() -> None:
    with capture() as run:
        otel_ml.log_params({"deep": nested(20), "odd": Unprintable(), "lr": 0.1, "none": None})

        (params,) = [event for event in run.events if event.kind == "ml.params"]
        assert params.body["lr"] == 0.1
        assert params.body["none"] is None
        assert params.body["odd"] == "<Unprintable>"
        assert str(params.body["deep"]).count("deeper") == 20
        assert run.notices == []


def test_an_argument_of_another_logger_costs_nothing_but_itself() -> None:
    with capture() as run:
        for step in range(3):
            otel_ml.log({"loss": 1.0}, step=step, sync=False)
            otel_ml.log({f"m{i}": 1.0 for i in range(9)}, step=step, sync=False)
            otel_ml.record("acc", 2.0, step=step, sync=False)

        assert (run.values("loss"), run.values("m8"), run.values("acc")) == ([1.0] * 3, [1.0] * 3, [2.0] * 3)
        first, second = run.notices
        assert first.startswith("log(): unknown argument sync. It is not used, and the values are recorded.")
        assert second.startswith("record(): unknown argument sync.")


MEANT: dict[str, tuple[Callable[[], object], str]] = {
    "a reduction as others call it": (
        lambda: otel_ml.log({"tokens": 1}, reduction="sum"),
        "log(): unknown argument reduction. Did you mean 'reduce'? It is not used",
    ),
    "a step misspelled": (
        lambda: otel_ml.log({"loss": 1.0}, steps=4),
        "log(): unknown argument steps. Did you mean 'step'? It is not used",
    ),
    "two of them, one unknown": (
        lambda: otel_ml.record("loss", 1.0, weights=2, colour="red"),
        "record(): unknown argument weights, colour. Did you mean 'weight'? It is not used",
    ),
    "a number that may be a value": (
        lambda: otel_ml.log({"loss": 1.0}, accuracy=0.5),
        "log(): unknown argument accuracy. It is not used",
    ),
    "an option of a definition": (
        lambda: otel_ml.define_metric("tokens", reduction="sum"),
        "define_metric(): unknown argument reduction. Did you mean 'reduce'? It is not used",
    ),
    "an option of a timer": (
        lambda: otel_ml.timed("forward", levl=2),
        "timed(): unknown argument levl. Did you mean 'level'? It is not used",
    ),
}


@pytest.mark.parametrize("case", MEANT)
def test_an_argument_that_is_nearly_one_is_said_with_the_one_that_is_meant(case: str) -> None:
    call, expected = MEANT[case]
    with capture() as run:
        call()

        (said,) = run.notices
        assert said.startswith(expected)


def test_the_options_that_a_hint_knows_are_those_of_the_calls() -> None:
    for call in (otel_ml.log, otel_ml.record):
        assert [name for name in OPTIONS if name not in signature(call).parameters] == []


class Shy(dict[str, float]):
    """Names and values that raise when they are shown, or read."""

    def __repr__(self) -> str:
        raise RuntimeError

    def items(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    "bad", [Unprintable(), Shy(a=1.0), [Unprintable()], {Unprintable(): 1.0}, {"x": Unprintable()}]
)
def test_what_cannot_even_be_shown_is_said_and_raises_nothing(bad: Any) -> None:
    with capture() as run:
        for call in (
            otel_ml.log,
            otel_ml.log_params,
            otel_ml.set_step,
            otel_ml.step,
            otel_ml.define_metric,
            otel_ml.log_artifact,
            otel_ml.event,
            otel_ml.init().summary,
            otel_ml.timed,
        ):
            call(bad)
        otel_ml.record("x", bad)
        otel_ml.record(bad, 1.0)
        otel_ml.log({"x": 1.0}, step=bad)
        otel_ml.log({"x": 1.0}, axis=bad)
        otel_ml.log({"x": 1.0}, weight=bad)
        otel_ml.log({"x": 1.0}, attributes=bad)
        otel_ml.log({"x": 1.0}, reduce=bad)
        otel_ml.log_text(bad, bad, step=bad)
        otel_ml.log_table("t", bad)
        otel_ml.log_image("i", bad)
        otel_ml.log({"loss": 1.0}, step=3)

        assert run.values("loss") == [1.0]


class BrokenMapping(Mapping[str, float]):
    """Three values, of which all but the first cannot be read."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[str]:
        yield "loss"
        raise RuntimeError("changed while it was gone through")

    def __getitem__(self, name: str) -> float:
        return 1.0


@pytest.mark.parametrize("options", [{}, {"step": 7}])
def test_of_values_that_fail_while_they_are_gone_through_each_is_counted(options: dict[str, Any]) -> None:
    with capture() as run:
        otel_ml.log(BrokenMapping(), **options)
        otel_ml.log({"loss": 2.0}, step=8)

        assert [(point.step, point.value) for point in run.points] == [(8, 2.0)]
        assert reporter.dropped == {"bad_value": 3}


class Unreadable:
    """A number of a class of the program's, of which no float can be made."""

    def __float__(self) -> float:
        raise ValueError("no number yet")


Real.register(Unreadable)


@pytest.mark.parametrize("call", [otel_ml.flush, otel_ml.shutdown])
def test_a_time_out_that_cannot_be_read_is_said_and_raises_nothing(call: Callable[[Any], bool]) -> None:
    with capture() as run:
        otel_ml.log({"loss": 2.0}, step=8)

        assert call(Unreadable())
    assert any("expected a time-out in seconds" in str(event.body) for event in run.events)
