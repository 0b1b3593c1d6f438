"""Configurations as people have them: they keep their structure, and nothing in them raises into training."""

from __future__ import annotations

import argparse
import enum
import sys
import types
from collections import OrderedDict, UserDict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import attrs
import numpy as np
import pydantic
import pytest
import torch

import otel_ml
from otel_ml._internal.events.config_values import MOST_TEXT, MOST_VALUES, config_value, readable
from otel_ml.testing import capture
from tests.unit.otel_ml.lazy import Lazy


class Color(enum.Enum):
    RED = 3


class Mode(str, enum.Enum):
    FAST = "fast"


class Level(enum.IntEnum):
    HIGH = 7


@dataclass
class Optimizer:
    known: ClassVar[int] = 5
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    color: Color = Color.RED
    nested: dict[str, Any] = field(default_factory=lambda: {"a": {"b": 1}})


@attrs.define
class Attrs:
    dim: int = 64
    inner: Optimizer = attrs.field(factory=Optimizer)


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = "m"
    secret: pydantic.SecretStr = pydantic.SecretStr("hidden")
    sizes: list[int] = [1, 2]


class Pair(NamedTuple):
    left: int
    right: str


OPTIMIZER = {"lr": 0.1, "betas": [0.9, 0.99], "color": "RED", "nested": {"a": {"b": 1}}}

KINDS: dict[str, tuple[Any, object]] = {
    "dataclass": (Optimizer(), OPTIMIZER),
    "attrs": (Attrs(), {"dim": 64, "inner": OPTIMIZER}),
    "pydantic": (Model(more=1), {"name": "m", "secret": "**********", "sizes": [1, 2], "more": 1}),
    "namespace": (argparse.Namespace(lr=1, sub=argparse.Namespace(x=2)), {"lr": 1, "sub": {"x": 2}}),
    "simple namespace": (types.SimpleNamespace(a=[1]), {"a": [1]}),
    "named tuple": (Pair(1, "r"), {"left": 1, "right": "r"}),
    "mappings": (UserDict(a=OrderedDict(b=1)), {"a": {"b": 1}}),
    "keys of all kinds": ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "None": "b", "(1, 2)": "c"}),
    "lists": ([1, (2, deque([3])), range(2)], [1, [2, [3]], [0, 1]]),
    "a set": ({"b", "a", "c"}, ["a", "b", "c"]),
    "enums": ([Color.RED, Mode.FAST, Level.HIGH], ["RED", "fast", 7]),
    "a path": (Path("/data/x"), "/data/x"),
    "numpy": ([np.float32(0.5), np.int64(3), np.bool_(1), np.array(2.0), np.arange(3)], [0.5, 3, True, 2.0, [0, 1, 2]]),
    "torch": ([torch.tensor(2), torch.ones(2), torch.float16], [2, [1.0, 1.0], "torch.float16"]),
    "a tensor without data": (torch.zeros(2, device="meta"), "<Tensor of shape (2,)>"),
    "a large array": (np.zeros((100, 100)), "<ndarray of shape (100, 100)>"),
    "an object": (object(), "<object object>"),
    "a class": (Optimizer, f"<class '{__name__}.Optimizer'>"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_of_any_kind_keeps_its_structure(kind: str) -> None:
    value, expected = KINDS[kind]

    assert (config_value(value), type(config_value(value))) == (expected, type(expected))


class Broken:
    """Nothing of it can be had."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __hash__ = __eq__ = __len__ = __iter__ = __repr__  # type: ignore[assignment]


@attrs.define
class Half:
    whole: int = 1
    missing: int = attrs.field(init=False)


class Failing(list[int]):
    def __getitem__(self, place: Any) -> Any:
        if place == 1:
            raise OSError("gone")
        return super().__getitem__(place)


BAD: dict[str, tuple[Any, object, str]] = {
    "a value that is missing": ({"model": Lazy(), "lr": 1}, {"model": {"dim": 64}, "lr": 1}, "model.missing"),
    "a value that raises at everything": ({"it": Broken(), "lr": 1}, {"it": "<Broken>", "lr": 1}, "it"),
    "a field that was never set": (Half(), {"whole": 1}, "missing"),
    "an element that raises": ({"l": Failing([1, 2, 3])}, {"l": [1, None, 3]}, "l.1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_value_that_cannot_be_read_costs_itself_only_and_is_told_with_its_place(case: str) -> None:
    value, expected, place = BAD[case]
    found, problems = readable(value)

    assert (found, list(problems)) == (expected, [place])


def holds_itself() -> dict[str, Any]:
    found: dict[str, Any] = {"lr": 1}
    found["again"], found["list"] = found, [found]
    return found


def shared(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"leaf": 1}
    for _ in range(depth):
        found = {f"part {i}": found for i in range(10)}
    return found


@pytest.mark.parametrize("value", [holds_itself(), shared(60), list(range(10**6)), {"t": "x" * 10**7}, "x" * 10**7])
@pytest.mark.timeout(60)
def test_a_configuration_without_end_is_cut(value: Any) -> None:
    found, _ = readable(value)

    assert len(str(found)) < 20 * MOST_VALUES + 2 * MOST_TEXT


CALLS = {
    "init(params=)": lambda config: otel_ml.init(params=config),
    "log_params()": otel_ml.log_params,
    "event()": lambda config: otel_ml.event("e", config),
    "log_table()": lambda config: otel_ml.log_table("t", [[config]], columns=["a"]),
    "summary()": lambda config: otel_ml.init().summary(config),
}
CONFIGS = {"lazy": Lazy(), "broken": Broken(), "within": {"lr": 0.1, "it": Broken()}, "cyclic": holds_itself()}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("call", CALLS)
def test_nothing_of_a_configuration_raises_into_training_and_it_is_said_once(call: str, config: str) -> None:
    with capture() as run:
        for _ in range(3):
            CALLS[call](CONFIGS[config])
        otel_ml.log({"loss": 1.0}, step=0)

        assert run.values("loss") == [1.0]
        assert len(run.notices) <= 2
        assert len(set(run.notices)) == len(run.notices)


def test_the_good_keys_of_a_bad_configuration_are_in_the_run_and_the_bad_one_is_named() -> None:
    with capture() as run:
        otel_ml.log_params({"lr": 0.1, "model": Lazy()})

        [params] = [event for event in run.events if event.kind == "ml.params"]
        [said] = run.notices
        assert params.body == {"lr": 0.1, "model": {"dim": 64}}
        assert "log_params(): cannot read model.missing (LookupError: Missing mandatory value: missing)." in said


class OmegaConf:
    """What is used of OmegaConf, where it is not installed."""

    @staticmethod
    def is_config(value: object) -> bool:
        return isinstance(value, Lazy)

    @staticmethod
    def to_container(value: Lazy, *, resolve: bool) -> dict[str, object]:
        assert not resolve
        return {"missing": "???", "dim": 64}


def test_what_omegaconf_cannot_resolve_is_recorded_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omegaconf", types.SimpleNamespace(OmegaConf=OmegaConf))

    assert config_value({"model": Lazy()}) == {"model": {"missing": "???", "dim": 64}}
