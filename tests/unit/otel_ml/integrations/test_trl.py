"""What is recorded of TRL's trainers, of which a program need not have one; with TRL itself in `tests/frameworks`."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import otel_ml
from otel_ml.integrations.huggingface.trl import PROFILING, log_completions, time_parts
from otel_ml.testing import Capture, capture

PROMPT = [{"role": "user", "content": "größer?", "image": object()}]


def trainer(**attributes: Any) -> SimpleNamespace:
    logs = {
        "prompt": ["1+1", "1+1", PROMPT],
        "completion": ["2", "3", [{"role": "assistant", "content": "ja"}]],
        "rewards": {"exact": [1.0, 0.0, 0.5], "length": [0.1, 0.1, 0.2]},
        "extra": {"source": ["a", "b", "c"]},
        "advantages": [0.7, -0.7, 0.0],
    }
    named = {"state": SimpleNamespace(global_step=4), "log_completions": True, "_logs": logs}
    return SimpleNamespace(**{**named, **attributes})


def tables(captured: Capture) -> list[Any]:
    return [event for event in captured.events if event.kind == "ml.table"]


def rows(captured: Capture) -> list[list[Any]]:
    (table,) = tables(captured)
    return [list(row) for row in table.body["rows"]]


def test_completions_are_a_table_of_the_step_with_rewards_and_advantages() -> None:
    with capture() as captured:
        log_completions(trainer())

        (table,) = tables(captured)
        assert (table.name, table.step) == ("completions", 4)
        assert table.body["columns"] == ["step", "prompt", "completion", "exact", "length", "source", "advantage"]
        assert rows(captured) == [
            [4, "1+1", "2", 1.0, 0.1, "a", 0.7],
            [4, "1+1", "3", 0.0, 0.1, "b", -0.7],
            [
                4,
                '[{"role": "user", "content": "größer?", "image": "<object>"}]',
                '[{"role": "assistant", "content": "ja"}]',
                0.5,
                0.2,
                "c",
                0.0,
            ],
        ]


def test_of_a_prompt_that_is_there_several_times_the_first_row_is_enough_where_that_is_asked_for() -> None:
    with capture() as captured:
        log_completions(trainer(log_unique_prompts=True))

        assert [row[2] for row in rows(captured)] == ["2", '[{"role": "assistant", "content": "ja"}]']


def test_a_column_of_fewer_samples_ends_the_table() -> None:
    logs = {**trainer()._logs, "extra": {"source": ["a"]}}
    with capture() as captured:
        log_completions(trainer(_logs=logs))

        assert [row[5] for row in rows(captured)] == ["a"]


@pytest.mark.parametrize(
    "attributes",
    [{"log_completions": False}, {"_logs": None}, {"_logs": []}, {"_logs": {}}, {"_logs": {"prompt": []}}],
    ids=str,
)
def test_where_there_are_no_completions_or_none_are_asked_for_nothing_is_recorded(attributes: dict[str, Any]) -> None:
    with capture() as captured:
        log_completions(trainer(**attributes))
        log_completions(SimpleNamespace())

        assert tables(captured) == []


class Context:
    """TRL's `ProfilingContext`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.said: list[object] = []

    def __enter__(self) -> str:
        self.said.append("entered")
        return "TRL's answer"

    def __exit__(self, *error: object) -> bool:
        self.said.append(error[0])
        return True


def test_each_part_that_trl_profiles_is_timed_once_though_it_is_asked_for_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OfThisTest(Context):
        __enter__, __exit__ = Context.__enter__, Context.__exit__

    profiling = ModuleType(PROFILING)
    vars(profiling).update(ProfilingContext=OfThisTest)
    monkeypatch.setitem(sys.modules, PROFILING, profiling)
    time_parts()
    time_parts()
    with capture() as captured:
        otel_ml.set_step(1)
        part = OfThisTest("GRPOTrainer.compute_loss")
        with part as answer:
            raise ValueError("which TRL's context keeps for itself")

        points = {point.name: point.count for point in captured.points}
        assert points["time/GRPOTrainer.compute_loss"] == 1
        assert captured.spans == ["GRPOTrainer.compute_loss"]
    assert (answer, part.said) == ("TRL's answer", ["entered", ValueError])


def test_trl_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, PROFILING, raising=False)

    time_parts()

    assert PROFILING not in sys.modules
