"""What a report says in numbers is what the run has: steps, units, values that are none, parameters as given."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from otel_ml.diagnostics.hardware.measures import MEASURES
from otel_ml_exporters.records import Params, Record, Span, SpanBatch, SpanLink, StepRecord, Summary, Table, Text
from otel_ml_service.findings.units import UNITS
from otel_ml_service.report.contents import contents
from otel_ml_service.report.curves import Curve, numbers
from otel_ml_service.report.markup import chart_number
from otel_ml_service.report.page import page
from otel_ml_service.report.timeline import timeline
from otel_ml_service.stored_runs.run_history import SeriesName
from tests.unit.otel_ml_service.report.test_page import Reader


def shown(*records: Record) -> list[str]:
    """Return the texts of the page, in their order."""
    return Reader(page([contents("run", "numbers", records)])).texts


def after(texts: Sequence[str], name: str) -> str:
    return texts[texts.index(name) + 1]


def step(at: int, axis: str = "step", role: str = "trainer", attempt: int = 0, **named: object) -> StepRecord:
    values: Mapping[str, float] = named.pop("values", {"x": 1.0})  # type: ignore[assignment]
    return StepRecord(1, role, axis, at, attempt, 1.0, values, **named)  # type: ignore[arg-type]


def curve(name: str, *values: float, axis: str = "step") -> str:
    """Return the page of a run with one metric."""
    return page([contents("run", "numbers", [step(n, axis, values={name: v}) for n, v in enumerate(values)])])


def test_steps_are_counted_once_for_each_role_and_axis() -> None:
    """Corrections, windows of time and otel_ml's own rows are not steps."""
    texts = shown(
        *(step(n) for n in range(6)), step(3, amendment=True), step(0, "eval"),
        *(step(n, "rollout", "generator") for n in range(4)), step(0, "time"), step(10, "time"),
        step(6, values={"otel_ml/writers_missing": 1.0}),
    )  # fmt: skip

    assert after(texts, "steps") == "6"
    assert after(texts, "steps of eval") == "1"
    assert after(texts, "steps of generator/rollout") == "4"
    assert "steps of time" not in texts
    assert "steps done again" not in texts


def test_rows_that_lack_a_writer_are_counted() -> None:
    texts = shown(step(0), step(1, writers_missing=2), step(2, writers_missing=1), step(3))

    assert after(texts, "steps with a rank missing") == "2"
    assert after(shown(step(0), step(1)), "steps with a rank missing") == "0"


def test_steps_that_a_restart_did_again_are_told_apart() -> None:
    texts = shown(*(step(n) for n in range(6)), *(step(n, attempt=1) for n in range(4, 9)))

    assert after(texts, "attempts") == "2"
    assert after(texts, "steps") == "9"
    assert after(texts, "steps done again") == "2"


def test_ranks_are_those_of_each_role() -> None:
    workers = [("generator", 0), ("generator", 1), ("trainer", 0)]
    spans = [Span("0" * 32, "0" * 16, None, "x", 0, 1, role, rank, "step", 0) for role, rank in workers]

    assert after(shown(SpanBatch(1, spans)), "ranks") == "1 trainer, 2 generator"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("time/forward", 0.00325, "3.25 ms"),
        ("generator/time/generate", 7.5, "7.5 s"),
        ("hw.gpu.memory.usage/host.name/n1/hw.id/gpu0", 6.8e10, "68 GB"),
        ("system/hw.power/host.name/n1/hw.id/gpu0/hw.type/gpu", 300.0, "300 W"),
        ("hw.energy.step", 1250.0, "1.25 kJ"),
        ("hw.temperature/host.name/n1/hw.id/gpu0", 65.0, "65 °C"),
        ("tokens", 12288.0, "12,288"),
        ("loss", 0.25, "0.25"),
    ],
)
def test_curves_of_what_otel_ml_records_have_units(name: str, value: float, wanted: str) -> None:
    content = curve(name, value, value * 2)

    read = Reader(content)
    assert wanted in read.texts, "at the axis"
    assert wanted in Reader(curve(name, value * 2, value)).texts[-40:], "beside the name, the last value"


def test_every_unit_of_the_hardware_is_known_to_reports() -> None:
    units = {measure.name: measure.unit for measure in MEASURES if measure.unit != "1"}

    assert {name: unit for name, unit in UNITS.items() if not name.endswith(".step")} == units


def test_the_axis_of_time_is_in_seconds() -> None:
    assert "time 1 s" in Reader(curve("cpu", 1.0, 2.0, axis="time")).texts


def test_where_values_are_not_finite_is_marked_and_the_axis_goes_on_to_the_end() -> None:
    content = curve("loss", 3.0, 2.0, *[math.nan] * 7)

    assert "nan · 7 not finite" in Reader(content).texts
    assert "step 8" in Reader(content).texts
    [marks] = re.findall(r'<path d="([^"]+)" class="hole">', content)
    assert marks.count("M") == 7


def test_the_last_value_is_that_of_the_last_step_also_where_an_earlier_one_came_late() -> None:
    late = [step(n, values={"x": 1.0, "late": 1.0 * n} if n != 2 else {"x": 1.0}) for n in range(4)]
    run = contents("run", "numbers", [*late, step(2, values={"late": 77.0}, amendment=True)])
    series = run.history.series[SeriesName("step", "late")]

    assert numbers("late", "step", [Curve("late", series)])["said"] == "3"


def test_how_many_values_are_not_finite_is_told_of_all_and_of_what_is_new() -> None:
    curve = Curve("loss", {0: math.nan, 1: math.inf, 2: 0.5, 3: math.nan})

    assert [numbers("loss", "step", [curve], after)["holes"] for after in (None, 2, 3)] == [3, 1, 0]


@pytest.mark.parametrize("after", [None, 0])
def test_values_that_are_large_and_close_to_each_other_are_drawn_apart(after: int | None) -> None:
    """A count of tokens, or the time of day, grows by less than its sixth digit."""
    curve = Curve("tokens_seen", {n: 1_700_000_000.0 + 4 * n for n in range(4)})

    told: Any = numbers("tokens_seen", "step", [curve], after)

    [line] = told["lines"]
    assert len({value for _, value in line["points"]}) == len(line["points"]) == (4 if after is None else 3)


def test_one_point_and_a_point_between_gaps_can_be_seen() -> None:
    assert 'class="c0 dot"' in curve("loss", 0.5)
    assert 'class="c0 dot"' in curve("loss", 0.5, 0.4, math.nan, 0.3, math.nan)
    assert "dot" not in re.findall(r'<path d="[^"]+" class="([^"]+)">', curve("loss", 0.5, 0.4))


def test_values_that_are_nearly_the_same_are_told_apart_at_the_axis() -> None:
    texts = Reader(curve("close", 1.0, 1.0 + 3e-8)).texts

    assert "+3e-08" in texts
    assert Reader(curve("same", 3.0, 3.0)).texts.count("3") == 2, "one at the axis, and the last value"
    assert not [text for text in Reader(curve("rounded", 0.7, 0.7 - 1e-16)).texts if text.startswith("+")]


def test_parameters_are_not_rounded_and_say_where_they_are_cut() -> None:
    texts = shown(Params(1, 1.0, {"lr": 0.000123456789, "seed": 1234567, "factor": 1234567.25, "long": "x" * 3000}))

    assert after(texts, "lr") == "0.000123456789"
    assert after(texts, "seed") == "1234567"
    assert after(texts, "factor") == "1234567.25"
    assert after(texts, "long").endswith("x…")


def test_a_metric_of_the_job_comes_before_those_of_300_layers() -> None:
    values = {f"layer{n:03}/grad_norm": 1.0 * n for n in range(300)} | {"loss": 0.5, "time/step": 1.0, "zeta": 2.0}
    texts = shown(step(0, values=values))

    charts = [text for text in texts if text in values]
    assert charts[:4] == ["loss", "zeta", "time/step", "layer000/grad_norm"]
    more = texts.index("223 more")
    assert texts[more + 1 : more + 5] == ["series", "last value", "layer077/grad_norm", "77"]


def test_of_metrics_that_have_no_chart_the_last_value_is_their_own_and_not_of_a_reduction() -> None:
    values = {f"metric_{n:03}": 1.0 * n for n in range(90)} | {f"metric_{n:03}/max": 1000.0 for n in range(90)}
    texts = shown(step(0, values=values))

    more = texts.index("10 more")
    assert texts[more + 3 : more + 7] == ["metric_080", "80", "metric_081", "81"]


def test_of_several_runs_the_last_value_of_each_is_told() -> None:
    values = {f"metric_{n:03}": 1.0 for n in range(81)}
    runs = [
        contents(name, "numbers", [step(0, values={**values, "metric_080": at})])
        for name, at in (("a", 7.0), ("b", 8.0))
    ]

    texts = Reader(page(runs)).texts

    more = texts.index("1 more")
    assert texts[more + 3 : more + 7] == ["metric_080, a", "7", "metric_080, b", "8"]


def test_which_rank_it_was_is_said_and_is_no_curve() -> None:
    content = curve("time/forward/argmax", 3.0, 3.0)

    assert "mostly rank 3" in Reader(content).texts
    assert "time/forward/argmax over step" not in content


def test_hardware_comes_after_what_was_recorded_at_a_step() -> None:
    texts = shown(step(0, "time", values={"hw.power": 1.0}), step(0, values={"loss": 1.0, "time/step": 1.0}))

    assert texts.index("loss") < texts.index("time/step") < texts.index("hw.power")


def test_quantiles_are_in_the_chart_of_their_metric() -> None:
    texts = shown(step(0, values={"length": 1.0, "length/p50": 2.0, "length/p99.9": 3.0}))

    assert "length/p50" not in texts
    assert {"p50", "p99.9"} < set(texts)


@pytest.mark.parametrize("rank", [math.nan, math.inf])
def test_a_rank_that_is_no_number_is_nobody(rank: float) -> None:
    """Whoever records a metric of such a name may write anything into it."""
    odd = {"time/step": 1.0, "time/forward": 1.0, "time/forward/argmax": rank, "time/exposed/forward": 1.0}

    assert "Where the time goes" in shown(step(0, values={**odd, "time/exposed/forward/rank": rank}))
    assert "Where the time goes" in shown(step(0, values={**odd, "time/exposed/forward/rank": 2.0}))


def test_timers_without_argmax_have_no_column_of_ranks() -> None:
    assert "rank at the front" not in shown(step(0, values={"time/step": 1.0}))
    assert "rank at the front" in shown(step(0, values={"time/step": 1.0, "time/step/argmax": 1.0}))


def test_a_clock_that_is_an_hour_ahead_draws_nothing_before_its_cause() -> None:
    ahead, links = 3600 * 10**9, (SpanLink("0" * 32, "c" * 16),)
    made = Span("0" * 32, "c" * 16, None, "generate", ahead, ahead + 10**6, "generator", 0, "step", 1)
    used = Span("1" * 32, "d" * 16, None, "train", 0, 10**7, "trainer", 0, "step", 1, links=links)

    assert "10 ms</text>" not in timeline([made, replace(used, links=())])
    assert "11 ms</text>" in timeline([made, used])


def test_of_many_workers_those_that_are_drawn_are_in_all_of_the_last_steps_and_the_others_are_counted() -> None:
    spans = [
        Span("0" * 32, "0" * 16, None, "work", at, at + 5, "trainer", rank, "step", step)
        for step in range(4)
        for rank in range(200)
        for at in range(100 * step, 100 * step + 50, 10)
    ]

    drawn = timeline(spans)

    assert drawn.count("step 3, rank 0</title>") == drawn.count("step 3, rank 31</title>") == 5
    assert "168 workers are not drawn." in drawn
    assert "not drawn" not in timeline(spans[:5])


def test_a_text_and_a_parameter_say_where_they_are_cut() -> None:
    texts = shown(Text(1, 1.0, "note", "step", 0, "x" * 20_001), Text(2, 1.0, "short", "step", 0, "y" * 20_000))

    assert "x" * 20_000 + "…" in texts
    assert "y" * 20_000 in texts


def test_steps_that_no_double_holds_are_told_as_they_are() -> None:
    assert "step 9,007,199,254,740,995" in Reader(page([contents("run", "numbers", [step(2**53 + 3)])])).texts


def test_workers_on_every_axis_are_on_the_timeline() -> None:
    spans = [
        Span("0" * 32, "0" * 16, None, "work", n, n + 1, role, 0, axis, n)
        for role, axis, steps in (("generator", "rollout", 9), ("trainer", "step", 3))
        for n in range(steps)
    ]
    texts = shown(SpanBatch(1, spans))

    assert {"Axis rollout", "Axis step", "generator 0", "trainer 0"} < set(texts)


def test_several_runs_of_one_id_and_more_than_colours_are_told_apart() -> None:
    runs = [contents("same", f"experiment-{n}", [step(0), step(1)]) for n in range(8)]

    content = page(runs)

    assert all(f"experiment-{n}/same" in Reader(content).texts for n in range(8))
    assert len(set(re.findall(r'class="(c\d[^"]*)"', content))) == 8


def test_what_only_one_of_several_runs_has_is_in_its_own_part() -> None:
    runs = [contents("a", "numbers", [step(0, values={"loss": 1.0, "mine": 2.0})]), contents("b", "numbers", [step(0)])]

    texts = Reader(page(runs)).texts

    assert texts.index("Run a") < texts.index("mine") < texts.index("Run b")


def test_final_values_that_are_no_numbers_are_shown_as_such() -> None:
    final = {"best": math.nan, "worst": math.inf, "otel_ml/recorded": 10.0, "otel_ml/dropped/never_arrived": 3.0}
    texts = shown(step(0), Params(2, 1.0, {"world_size": math.inf}), Summary(3, 1.0, final))

    assert (after(texts, "best"), after(texts, "worst")) == ("nan", "inf")
    assert after(texts, "values lost") == "3"


def test_rows_of_a_table_that_are_shorter_than_its_columns_are_shown() -> None:
    texts = shown(Table(1, 1.0, "samples", "step", 0, ("prompt", "reward"), (("a", 0.5), ("b",), ())))

    assert texts[texts.index("reward") + 1 :][:3] == ["a", "0.5", "b"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "not known"),
        ({"otel_ml/recorded": 10.0}, "0"),
        ({"otel_ml/recorded": 10.0, "otel_ml/dropped/never_arrived": 3.0, "otel_ml/too_late": 1.0}, "4"),
        ({"otel_ml/recorded": 10.0, "otel_ml/dropped/bad_value": 3.0}, "0"),
    ],
)
def test_no_run_has_lost_nothing_before_somebody_said_so(said: dict[str, float], told: str) -> None:
    assert after(shown(step(0), Summary(2, 1.0, said)), "values lost") == told


@pytest.mark.parametrize(("value", "told"), [(9999.7, "10,000"), (-9999.7, "-10,000"), (9999.4, "9999")])
def test_a_number_that_is_rounded_up_is_told_as_what_it_has_become(value: float, told: str) -> None:
    assert chart_number(value) == told
