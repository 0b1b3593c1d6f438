from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

import pytest

from otel_ml_exporters import Exporter, Record, RunInfo, RunStatus, registry
from otel_ml_service.exporter_makers import exporter_makers


class FourVerbs(Exporter):
    """What CONTRIBUTING calls an exporter, and no more."""

    def start(self, run: RunInfo) -> None:
        pass

    def export(self, records: Sequence[Record]) -> None:
        pass

    def force_flush(self, timeout: float) -> None:
        pass

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        pass


class Counting(FourVerbs):
    """One that does not look at what it is given."""

    def __init__(self, *, most: int = 5) -> None:
        self.is_small = most < 10


@pytest.fixture(autouse=True)
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**registry.registered(), "four": f"{__name__}:FourVerbs", "counting": f"{__name__}:Counting"}
    monkeypatch.setattr(registry, "registered", lambda: known)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[FourVerbs.__module__])


def test_a_class_with_four_verbs_is_an_exporter_that_cannot_tell_its_position() -> None:
    makers, left_out = exporter_makers({"four": {}})

    exporter = makers["four"]()
    assert (exporter.position(), exporter.is_intact, exporter.every, left_out.problems) == (None, True, 1, ())


def test_a_constructor_that_stumbles_over_an_option_is_named_with_it() -> None:
    makers, left_out = exporter_makers({"counting": {"most": "5"}})

    assert not makers
    assert left_out.problems[0].startswith("exporters.counting: its options are not what it takes (most='5'): '<' not")


def test_every_thins_an_exporter_whose_constructor_does_not_know_it() -> None:
    makers, left_out = exporter_makers({"four": {"every": 10}})

    assert (makers["four"]().every, left_out.problems) == (10, ())


@pytest.mark.parametrize(
    ("options", "said"),
    [({"every": 0}, "four.every: expected a number of steps from 1, got 0"), ({"evry": 2}, "Did you mean 'every'?")],
)
def test_a_wrong_option_of_it_is_said(options: dict[str, int], said: str) -> None:
    makers, left_out = exporter_makers({"four": options})

    assert not makers
    assert said in left_out.problems[0]
    assert left_out.unavailable().keys() == {"four"}


def test_an_unknown_name_is_a_mistake_unless_somebody_knew_it() -> None:
    _, left_out = exporter_makers({"jsnl": {}})

    assert "Did you mean 'jsonl'?" in left_out.problems[0]
    assert left_out.unavailable() == {}
    assert left_out.unavailable(["jsnl"]).keys() == {"jsnl"}


def test_tensorboard_is_written_where_its_package_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "tensorboard" else find_spec(name))

    makers, left_out = exporter_makers({"tensorboard": {}})

    assert (list(makers), left_out.problems) == (["tensorboard"], ())
