from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from tests.benchmarks.child import bare_environment
from tests.benchmarks.command_cost import cost_of
from tests.benchmarks.long_run import ASKED, measure
from tests.benchmarks.sizes import SIZES
from tests.benchmarks.targets import TARGETS


def test_each_command_is_measured_at_each_length_of_a_run() -> None:
    found = measure(replace(SIZES["quick"], run_steps=(5, 20)))

    assert set(found.figures) == {f"{name}.{steps}" for name in ASKED for steps in (5, 20)}
    for curve in found.curves.values():
        assert [[steps for steps, _ in line] for line in curve.lines.values()] == [[5, 20]] * len(ASKED)
        assert all(cost > 0 for line in curve.lines.values() for _, cost in line)


def test_the_lengths_of_the_targets_are_measured() -> None:
    named = {limit.figure for target in TARGETS for limit in target.limits if limit.figure.startswith("long_run/")}

    assert named
    assert named <= {f"long_run/{name}.{steps}" for name in ASKED for steps in SIZES["full"].run_steps}


def test_memory_is_the_commands_own_and_a_failure_is_no_figure() -> None:
    mine = bytearray(b"1") * 100 * 10**6

    small, large = (
        cost_of([sys.executable, "-c", f"b'1' * {count}"], bare_environment()) for count in (1, 200 * 10**6)
    )

    assert small.memory * 10**6 < len(mine)
    assert 190 < large.memory - small.memory < 220
    with pytest.raises(RuntimeError, match="no such run"):
        cost_of([sys.executable, "-c", "raise SystemExit('no such run')"], bare_environment())
