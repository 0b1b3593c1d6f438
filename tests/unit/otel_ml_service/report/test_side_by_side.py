"""Runs side by side: each number is what its column says, of all that was measured, or says of which part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import pytest

from otel_ml_exporters.records import Params, Record, RunStatus, SpanBatch, StepRecord, Summary
from otel_ml_service.report.contents import Contents, contents
from otel_ml_service.report.page import page
from otel_ml_service.report.scalability import scaling
from tests.unit.otel_ml_service.report.runs import spans_of

STEPS = {"time/step": 1.0}


def run_of(
    rows: Sequence[Mapping[str, float]] = (STEPS, STEPS, STEPS),
    *,
    ranks: int = 4,
    summary: Mapping[str, float] | None = None,
    axis: str = "step",
    params: Mapping[str, object] | None = None,
    others: Sequence[Record] = (),
    status: Literal["finished", "failed"] = "finished",
    name: str = "run",
) -> Contents:
    """Return a run of `ranks` trainers (0: nobody says how many) with a step for each of `rows`."""
    found: list[Record] = [Params(1, 1.0, params or {})]  # type: ignore[arg-type]
    found += [StepRecord(2 + n, "trainer", axis, n, 0, 1.0 + n, values) for n, values in enumerate(rows)]
    found += [*others, Summary(1000, 9.0, summary or {})]
    if ranks:
        found.append(SpanBatch(1001, spans_of(range(1), ranks)))
    return contents(name, "scaling", [*found, RunStatus(1002, 10.0, status)])


def gpu(name: str, host: str, number: int) -> str:
    return f"{name}/host.name/{host}/hw.id/gpu{number}/hw.type/gpu"


def test_the_energy_of_a_run_is_the_sum_over_its_ranks() -> None:
    (row,) = scaling([run_of(summary={f"hw.energy.total/rank_{rank}": 100.0 + rank for rank in range(4)})])

    assert row.energy_j == 406.0
    assert row.energy_of == "4 ranks"


def test_energy_of_a_part_of_the_ranks_says_of_how_many() -> None:
    (row,) = scaling([run_of(summary={"hw.energy.total/rank_0": 100.0, "hw.energy.total/rank_2": 50.0})])

    assert (row.energy_j, row.energy_of) == (150.0, "2 of 4 ranks")


def test_where_a_rank_was_killed_its_energy_until_then_counts() -> None:
    """It has no total; its steps have it."""
    rows = [STEPS | {"hw.energy.step": 40.0, "hw.energy.step/mean": 10.0}] * 2
    rows += [STEPS | {"hw.energy.step": 30.0, "hw.energy.step/mean": 10.0}]

    (row,) = scaling([run_of(rows, summary={f"hw.energy.total/rank_{rank}": 30.0 for rank in range(3)})])

    assert (row.energy_j, row.energy_of) == (110.0, "3 to 4 of 4 ranks")


def test_energy_of_steps_that_were_done_again_was_used_twice_and_corrections_once() -> None:
    used = {"hw.energy.step": 40.0, "hw.energy.step/mean": 10.0}
    again = [StepRecord(50 + step, "trainer", "step", step, 1, 5.0, STEPS | used) for step in (1, 2)]
    corrected = StepRecord(60, "trainer", "step", 2, 1, 6.0, used | {"hw.energy.step": 44.0}, amendment=True)

    (row,) = scaling([run_of([STEPS | used] * 3, others=[*again, corrected])])

    assert row.energy_j == 5 * 40.0 + 4.0


def test_energy_of_gpus_is_the_sum_of_all_rows_of_all_gpus_with_and_without_a_prefix() -> None:
    facts = {"hardware": {host: {f"gpu{n}": {"vendor": "nvidia"} for n in range(2)} | {"cpus": 8} for host in "ab"}}
    rows = [{f"{before}{gpu('hw.energy', host, n)}": 5.0 + step for host in "ab" for n in range(2)}
            for before in ("", "system/", "driver/") for step in range(3)]  # fmt: skip

    runs = [run_of([STEPS, *rows[at : at + 3]], params=facts) for at in (0, 3, 6)]

    assert [(row.energy_j, row.energy_of) for row in scaling(runs)] == [(72.0, "4 GPUs")] * 3


def test_energy_of_a_part_of_the_gpus_says_of_how_many() -> None:
    facts = {"hardware": {"a": {f"gpu{n}": {"vendor": "nvidia"} for n in range(4)}}}
    rows = [{gpu("hw.energy", "a", n): 5.0 for n in range(3)}]

    some, fewer_than_ranks = scaling([run_of(rows, params=facts), run_of(rows, ranks=8)])

    assert (some.energy_j, some.energy_of) == (15.0, "3 of 4 GPUs")
    assert fewer_than_ranks.energy_of == "3 GPUs for 8 ranks"


def test_what_ranks_used_and_what_gpus_used_is_not_added_up() -> None:
    rows = [STEPS | {gpu("hw.energy", "a", 0): 500.0}]
    (row,) = scaling([run_of(rows, ranks=1, summary={"hw.energy.total/rank_0": 100.0})])

    assert (row.energy_j, row.energy_of) == (100.0, "1 rank")


def test_megatrons_energy_of_a_gpu_is_the_runs_times_its_ranks() -> None:
    (row,) = scaling([run_of([STEPS | {"iter-energy/gpu": 10.0}] * 3)])

    assert (row.energy_j, row.energy_of) == (120.0, "4 ranks")


def test_an_energy_that_is_none_of_hardware_is_not_the_runs() -> None:
    """Force fields are trained on energies, too; and kilowatt-hours are not joules."""
    rows = [STEPS | {"val/energy_mae": 3.0, "energy_kWh": 0.1, "loss/energy": 1.0}]
    (row,) = scaling([run_of(rows, summary={"test/energy_rmse": 2.0})])

    assert row.energy_j is None


def test_utilization_of_gpus_is_the_mean_over_gpus_and_that_of_processors_is_another_column() -> None:
    """A GPU that has fewer samples counts as much as another."""
    rows = [{gpu("hw.gpu.utilization", "a", 0): 1.0, "hw.gpu.memory.utilization/host.name/a/hw.id/gpu0": 0.9,
             "system.cpu.utilization/host.name/a": 0.1, "system.memory.utilization/host.name/a": 0.7,
             "rl/buffer/utilisation": 0.5}] * 3  # fmt: skip
    rows += [{gpu("hw.gpu.utilization", "a", 1): 0.5, "system.cpu.utilization/host.name/b": 0.3}]

    (row,) = scaling([run_of(rows, ranks=2)])

    assert row.utilization == pytest.approx(0.75)
    assert row.cpu_utilization == pytest.approx(0.2)
    assert row.utilization_of == "2 GPUs, 2 hosts"


def test_a_run_without_hardware_has_no_such_numbers_and_no_such_columns() -> None:
    run = run_of()
    (row,) = scaling([run])

    assert (row.energy_j, row.energy_of, row.utilization, row.cpu_utilization, row.utilization_of) == (None,) * 5
    assert "utilization" not in page([run, run])


@pytest.mark.parametrize("name", ["generator/time/step", "rollout/time/step", "generator/rollout/time/step"])
def test_seconds_of_a_step_are_found_on_whichever_axis_and_role_has_steps(name: str) -> None:
    runs = [run_of([{name: seconds, f"{name}/mean": 9.0}] * 3, ranks=ranks, axis="rollout")
            for ranks, seconds in ((1, 2.0), (2, 1.0))]  # fmt: skip

    rows = scaling(runs)

    assert [(row.step_s, row.steps, row.speed_up) for row in rows] == [(2.0, 3, 1.0), (1.0, 3, 2.0)]
    assert name.removesuffix("/time/step") in page(runs)


def test_all_runs_are_compared_by_the_same_steps() -> None:
    """One run has steps of trainer and generator, the other of the generator only."""
    both = run_of([{"time/step": 1.0, "generator/time/step": 8.0}], ranks=1)
    other = run_of([{"generator/time/step": 4.0}], ranks=2)

    assert [row.step_s for row in scaling([both, other])] == [8.0, 4.0]


def test_a_run_of_which_nobody_says_how_many_ranks_it_had_is_no_baseline() -> None:
    rows = scaling([run_of(ranks=0), run_of(ranks=4), run_of([{"time/step": 0.5}], ranks=8)])

    assert [(row.ranks, row.speed_up, row.efficiency) for row in rows] == [(4, 1, 1), (8, 2, 1), (None, 1, None)]


def test_where_all_runs_say_how_much_they_did_in_a_second_that_is_compared() -> None:
    """More ranks with a larger batch take as long for a step, and do more in it."""
    runs = [run_of([STEPS | {"throughput/samples_per_sec": 100.0 * ranks}] * 3, ranks=ranks) for ranks in (2, 4)]

    rows = scaling(runs)

    assert [(row.throughput, row.speed_up, row.efficiency) for row in rows] == [(200, 1, 1), (400, 2, 1)]
    assert "samples per s" in page(runs)
    rows = scaling([*runs, run_of([{"time/step": 0.25}], ranks=8)])
    assert [(row.throughput, row.speed_up) for row in rows] == [(None, 1), (None, 1), (None, 4)]


def test_how_a_run_ended_and_how_many_steps_it_did_stands_beside_its_numbers() -> None:
    rows = scaling([run_of([STEPS] * 3, ranks=1), run_of([STEPS], ranks=2, status="failed")])

    assert [(row.status, row.steps) for row in rows] == [(None, 3), ("failed", 1)]


def test_values_that_are_no_numbers_are_left_out() -> None:
    used = {"hw.energy.step": math.nan, gpu("hw.gpu.utilization", "a", 0): math.nan, "time/step": math.nan}

    (row,) = scaling([run_of([used, used], summary={"hw.energy.total/rank_0": math.inf})])

    assert (row.step_s, row.energy_j, row.utilization) == (None, None, None)


def test_runs_are_called_by_their_names_and_by_their_ids_where_two_have_one_name() -> None:
    runs = [run_of(name=f"id-{number}") for number in range(4)]
    for run, name in zip(runs, ["small batch", "baseline", "baseline", ""], strict=True):
        run.name = name

    html = page(runs)

    assert [row.run for row in scaling(runs)] == ["small batch", "id-1", "id-2", "id-3"]
    assert "Speed-up is over small batch" in html
    assert "id-0" not in html
