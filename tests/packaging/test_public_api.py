"""The public names: a new one is a visible change of this file."""

from __future__ import annotations

import re

import otel_ml
from tests.e2e.jobs import ROOT

PUBLIC = [
    "ConfigError",
    "MissingDependencyError",
    "OtelMLError",
    "Run",
    "child_env",
    "consumed",
    "context",
    "current_step",
    "define_metric",
    "event",
    "flush",
    "get_meter",
    "init",
    "instrument_ray",
    "log",
    "log_artifact",
    "log_audio",
    "log_checkpoint",
    "log_figure",
    "log_histogram",
    "log_image",
    "log_params",
    "log_table",
    "log_text",
    "operation",
    "read",
    "record",
    "set_step",
    "shutdown",
    "step",
    "steps",
    "timed",
    "timer",
]


def test_the_public_names_are_these() -> None:
    assert sorted(otel_ml.__all__) == PUBLIC
    assert len(PUBLIC) <= 33


def test_every_public_name_exists_and_says_what_it_does() -> None:
    for name in PUBLIC:
        assert getattr(otel_ml, name).__doc__, name


def test_nothing_else_is_visible() -> None:
    """Submodules are visible once somebody imported them; imported names are not ours to show."""
    for name in PUBLIC:
        getattr(otel_ml, name)  # a name appears when it is first used
    visible = {name for name, value in vars(otel_ml).items() if not name.startswith("_") and not is_module(value)}

    assert visible - {"annotations", "TYPE_CHECKING"} == set(PUBLIC)


def test_a_checker_sees_each_of_them_used_and_refuses_what_is_none() -> None:
    """`make check` has mypy and pyright read that file, in which an ignored line has to be an error."""
    source = (ROOT / "tests" / "typing" / "api.py").read_text(encoding="utf-8")
    used = re.findall(r"\botel_ml\.(\w+)", source)

    assert set(PUBLIC) <= set(used)
    assert re.search(r"otel_ml\.no_such_name +# type: ignore\[attr-defined\]", source)


def is_module(value: object) -> bool:
    return type(value).__name__ == "module"
