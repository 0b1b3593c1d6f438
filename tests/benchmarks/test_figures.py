"""The harness compares fairly, and says what it does not know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import PARTS
from tests.benchmarks.explanations import EXPLANATIONS, told
from tests.benchmarks.figures import Curve, Figure, Found, absent, ratio
from tests.benchmarks.profiles import NAMES
from tests.benchmarks.recorded import Part, Recorded, worse
from tests.benchmarks.report import NUMBERS, missed_row, scale_of, warning
from tests.benchmarks.scale import SDK, scaled
from tests.benchmarks.targets import TARGETS, Limit, Target, said, said_plainly, verdict
from tests.benchmarks.training_loop import difference, slowdown
from tests.benchmarks.turns import in_turns

MACHINE = {"cores": "2", "processor": "one"}


def recorded(figure: Figure, *, processor: str = "one", size: str = "full", load: float = 0.0) -> Recorded:
    machine = {**MACHINE, "processor": processor}
    return Recorded({"calls": Part("2026-01-01", size, load, 1.0, machine, Found({"record": figure}))})


def test_both_sides_take_as_many_turns_and_begin_equally_often() -> None:
    order: list[str] = []

    ours, theirs = in_turns(lambda: order.append("ours") or 1.0, lambda: order.append("theirs") or 2.0, 4)

    assert (ours, theirs) == ([1.0] * 4, [2.0] * 4)
    assert order[2::2] == ["theirs", "ours", "theirs", "ours"]  # who begins; the first pair does not count


def test_a_ratio_is_the_median_over_pairs_so_a_slow_pair_does_not_move_it() -> None:
    figure = ratio([1.0, 1.0, 50.0], [10.0, 10.0, 500.0])

    assert (figure.value, figure.low, figure.high) == (0.1, 0.1, 0.1)


def test_what_is_more_than_ten_percent_worse_is_said() -> None:
    before, now = recorded(Figure(1.0, "µs")), recorded(Figure(1.2, "µs"))

    assert list(worse(before, now)) == ["calls/record: 1 → 1.2 µs"]
    assert list(worse(now, before)) == []


def test_a_rate_is_worse_when_it_falls() -> None:
    before, now = recorded(Figure(100.0, "points/s", better="more")), recorded(Figure(80.0, "points/s", better="more"))

    assert list(worse(before, now)) == ["calls/record: 100 → 80 points/s"]


def test_what_is_within_the_spread_is_not_worse() -> None:
    before, now = recorded(Figure(1.0, "µs", 0.8, 1.3)), recorded(Figure(1.2, "µs", 0.9, 1.5))

    assert list(worse(before, now)) == []


def test_a_first_loss_is_worse_however_small() -> None:
    before, now = recorded(Figure(0.0, "1")), recorded(Figure(1.0, "1"))

    assert list(worse(before, now)) == ["calls/record: 0 → 1 1"]


def test_times_of_another_machine_are_not_compared_but_ratios_are() -> None:
    elsewhere = recorded(Figure(5.0, "µs"), processor="two")

    assert list(worse(recorded(Figure(1.0, "µs")), elsewhere)) == []
    ratios = recorded(Figure(0.1, "1")), recorded(Figure(0.5, "1"), processor="two")
    assert list(worse(*ratios)) == ["calls/record: 0.1 → 0.5 1"]


def test_a_row_is_met_only_when_all_its_limits_hold() -> None:
    target = Target("a call", "", (Limit("a", 1.0), Limit("b", 10.0, side="≥")))

    assert verdict(target, {"a": Figure(0.5, "µs"), "b": Figure(11.0, "1/s")}) == "met"
    assert verdict(target, {"a": Figure(0.5, "µs"), "b": Figure(9.0, "1/s")}) == "**not met**"


def test_a_job_that_ran_for_less_than_was_asked_says_so_beside_its_verdict() -> None:
    target = Target("a job", "", (Limit("job/cores", 0.4),), lasts=(("job/duration", 600),))
    cores = Figure(0.3, "cores")

    assert verdict(target, {"job/cores": cores, "job/duration": Figure(600.0, "s")}) == "met"
    short = verdict(target, {"job/cores": cores, "job/duration": Figure(60.0, "s")})
    assert short == "met; over 60 s of the 600 s asked for"


def test_a_slowdown_whose_interval_contains_zero_is_not_told_as_one() -> None:
    unclear, clear = Figure(0.3, "%", -0.4, 1.1, spread="confidence"), Figure(3.0, "%", 2.0, 4.0, spread="confidence")

    assert said(unclear) == "0.3 % (-0.4…1.1, not distinguishable from 0)"
    assert said(clear) == "3 % (2…4)"
    assert [said_plainly(unclear), said_plainly(clear)] == ["0.3 %, within the noise", "3 %"]


def test_a_target_inside_the_interval_is_neither_met_nor_missed() -> None:
    target = Target("a loop", "", (Limit("slowdown", 0.5, "wall"),))

    assert verdict(target, {"slowdown": Figure(0.1, "%", -0.1, 0.3, spread="confidence")}) == "met"
    assert verdict(target, {"slowdown": Figure(0.9, "%", 0.6, 1.3, spread="confidence")}) == "**not met**"
    unclear = verdict(target, {"slowdown": Figure(0.7, "%", -0.4, 1.1, spread="confidence")})
    assert unclear == "not decided: the interval of wall contains the target"


def test_the_difference_of_two_that_take_turns_has_an_interval_around_its_median() -> None:
    bare = [0.050 + 0.001 * (index % 5) for index in range(20)]
    figure = slowdown([one * 1.01 for one in bare], bare)

    assert figure.value == pytest.approx(1.0)
    assert figure.confidence == pytest.approx((1.0, 1.0))
    assert difference([0.051, 0.052, 0.050], [0.050, 0.050, 0.050]).confidence == pytest.approx((0.0, 2000.0))


def test_what_could_not_be_measured_says_why_and_is_not_called_met() -> None:
    target = Target("a tensor", "", (Limit("waits", 0), Limit("cost")))
    nothing = absent("1", "no GPU on this machine")

    assert verdict(target, {"waits": nothing, "cost": nothing}) == "not measured: no GPU on this machine"
    assert verdict(target, {}) == "not measured: not yet run"


def test_a_quick_run_and_a_shared_machine_are_said_before_any_number() -> None:
    quick = recorded(Figure(1.0, "µs"), size="quick", load=1.9).parts["calls"]
    full = recorded(Figure(1.0, "µs")).parts["calls"]

    assert "a quick run on a shared machine" in warning(quick)
    assert warning(full) == ""


def test_numbers_are_shown_with_three_digits_unit_and_spread() -> None:
    assert said(Figure(0.12345, "µs", 0.1, 0.2)) == "0.123 µs (0.1…0.2)"
    assert said(Figure(1_234_567.0, "points/s"), "own clients") == "own clients 1,230,000 points/s"
    assert said(Figure(0.02, "1"), "of the SDK's") == "1/50 of the SDK's"
    assert said(absent("µs", "no GPU")) == "–"


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    curve = Curve("t", "x", "y", {"a": [(1.0, 2.0)]})
    found = Found({"a": Figure(1.0, "µs", 0.5, 2.0, "more", "note"), "b": absent("1", "no GPU")}, {"c": curve})
    Recorded({"calls": Part("2026-01-01", "full", 0.1, 2.0, MACHINE, found)}).write(tmp_path / "p.json")

    [part] = Recorded.read(tmp_path / "p.json").parts.values()
    assert part.found.figures == found.figures
    assert part.found.curves["c"].lines == {"a": [[1.0, 2.0]]}
    assert part.machine == MACHINE


def test_every_figure_that_a_target_or_the_readme_names_is_measured() -> None:
    named = {limit.figure for target in TARGETS for limit in target.limits}
    named |= {figure for target in TARGETS for figure, _ in target.lasts}
    named |= {figure for target in TARGETS for figure, _ in target.beside}
    named |= {figure for _, figures, beside, _ in NUMBERS for figure in (*dict(figures), beside) if figure}

    known = Recorded.read()
    assert {name.partition("/")[0] for name in named} <= set(PARTS)
    assert {name for name in named if name.partition("/")[0] in known.parts} - set(known.figures) == set()


def test_every_missed_target_is_explained() -> None:
    known = Recorded.read().figures
    missed = {
        limit.figure
        for target in TARGETS
        for limit in target.limits
        if limit.figure in known and not limit.holds(known[limit.figure])
    }

    assert missed - EXPLANATIONS.keys() == set(), "Say why in tests/benchmarks/explanations.py"


def test_explanations_are_of_figures_that_have_a_target_and_refer_to_what_is_measured() -> None:
    limited = {limit.figure for target in TARGETS for limit in target.limits if limit.limit is not None}
    named = {name for text in EXPLANATIONS.values() for name in re.findall(r"\{([^}]+)\}", text)}

    assert EXPLANATIONS.keys() - limited == set()
    assert {name.partition("/")[0] for name in named} <= set(PARTS)


def test_every_profile_that_a_target_names_is_drawn() -> None:
    assert {target.profile for target in TARGETS if target.profile} == set(NAMES)


def test_a_missed_target_is_told_with_the_figures_of_the_same_run() -> None:
    figures = {SDK: Figure(20.8, "µs"), "calls/empty_call.hot": Figure(0.05, "µs")}

    assert "takes 20.8 µs here" in scale_of(figures)
    assert "nothing takes 0.05 µs" in told("calls/disabled_timed.hot", figures)


def test_a_missed_figure_says_whether_it_is_the_machine_that_misses_it() -> None:
    figures = {SDK: Figure(20.8, "µs"), "quick": Figure(1.0, "µs"), "slow": Figure(2.0, "µs")}

    assert missed_row(Limit("quick", 0.25), figures)[2:] == ("≤ 0.25 µs", "4 × the limit", "0.25 µs: within the target")
    assert missed_row(Limit("slow", 0.25), figures)[3:] == ("8 × the limit", "0.5 µs: 2 × the limit")


def test_a_time_is_scaled_by_the_call_that_both_machines_know() -> None:
    figures = {SDK: Figure(20.8, "µs")}

    assert scaled(Figure(1.0, "µs"), figures) == Figure(0.25, "µs")
    assert scaled(Figure(500_000.0, "points/s"), figures) == Figure(2_000_000.0, "points/s")
    assert scaled(Figure(0.05, "1"), figures) is None
    assert scaled(Figure(2.0, "s"), figures) is None
    assert scaled(Figure(1.0, "µs"), {}) is None
