"""Several runs side by side: what each column counts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from otel_ml.wire.published_name import published_name
from otel_ml_exporters.records import Params, Record, RunStatus, StepRecord, Summary
from otel_ml_service.report.contents import Contents, contents
from otel_ml_service.report.page import page
from otel_ml_service.report.scalability import Scaling, scaling, yardstick


def run_of(
    *rows: Mapping[str, float],
    axis: str = "step",
    ranks: int = 2,
    summary: Mapping[str, float] | None = None,
    status: str = "finished",
    name: str = "run",
) -> Contents:
    records: list[Record] = [Params(1, 1000.0, {"world_size": ranks})]
    for step, values in enumerate(rows):
        records.append(StepRecord(len(records) + 1, "trainer", axis, step, 0, 1000.0 + step, values))
    if summary:
        records.append(Summary(len(records) + 1, 2000.0, summary))
    records.append(RunStatus(len(records) + 1, 2001.0, status))  # type: ignore[arg-type]
    return contents(name, "scaling", records)


def of_gpu(metric: str, host: str, gpu: str) -> str:
    """Name a series of `hardware.Monitor`."""
    return published_name("trainer", "time", metric, [("host.name", host), ("hw.id", gpu), ("hw.type", "gpu")])


def row_of(run: Contents) -> Scaling:
    [row] = scaling([run])
    return row


def test_energy_is_that_of_all_devices_over_all_lives_of_the_job() -> None:
    here, there = of_gpu("hw.energy", "n1", "gpu0"), of_gpu("hw.energy", "n2", "gpu0")
    of_the_last_life = {"hw.energy.total/host.name/n1/hw.id/gpu0": 5.0}
    windows = ({here: 100.0, there: 10.0}, {here: 200.0}, {here: 5.0, there: 20.0})

    row = row_of(run_of(*windows, axis="time", summary=of_the_last_life))

    assert (row.gpus, row.energy_j) == (2, 335.0)


def test_energy_that_each_rank_says_at_the_end_is_added_up() -> None:
    each = {"hw.energy.total/rank_0": 100.0, "hw.energy.total/rank_1": 120.0}
    devices = {"hw.energy.total/host.name/n1/hw.id/gpu0": 70.0, "hw.energy.total/host.name/n1/hw.id/gpu1": 80.0}

    assert row_of(run_of({"loss": 1.0}, summary=each)).energy_j == 220.0
    assert row_of(run_of({"loss": 1.0}, summary=devices)).energy_j == 150.0


def test_energy_of_ranks_comes_before_that_of_gpus_which_a_run_may_not_use() -> None:
    windows = ({of_gpu("hw.energy", "n1", f"gpu{gpu}"): 300.0 for gpu in range(8)},)

    assert row_of(run_of(*windows, axis="time", ranks=1, summary={"hw.energy.total/rank_0": 300.0})).energy_j == 300.0


def test_energy_of_steps_is_added_up_and_other_energies_are_not_guessed_at() -> None:
    assert row_of(run_of({"hw.energy.step": 3.0, "hw.energy.step/mean": 1.5}, {"hw.energy.step": 4.0})).energy_j == 7.0
    assert row_of(run_of({"free_energy": -3.0}, summary={"energy_kWh": 2.0})).energy_j is None


def test_utilization_is_that_of_gpus_each_counted_once() -> None:
    one, other = of_gpu("hw.gpu.utilization", "n1", "gpu0"), of_gpu("hw.gpu.utilization", "n1", "gpu1")
    more = {
        of_gpu("hw.gpu.memory.utilization", "n1", "gpu0"): 0.01,
        published_name("trainer", "time", "system.cpu.utilization", [("host.name", "n1")]): 0.02,
    }

    row = row_of(run_of({one: 0.9, other: 0.4, **more}, {one: 0.7, **more}, axis="time"))

    assert row.utilization == pytest.approx((0.8 + 0.4) / 2)


def test_a_run_without_trainers_is_compared_by_the_steps_that_it_has() -> None:
    runs = [
        run_of({"generator/time/step": seconds}, {"generator/time/step": seconds}, ranks=ranks)
        for ranks, seconds in ((2, 1.0), (4, 0.5))
    ]

    assert [(row.step_s, row.speed_up, row.efficiency) for row in scaling(runs)] == [(1.0, 1.0, 1.0), (0.5, 2.0, 1.0)]


def test_a_run_that_did_not_finish_is_said_to_be_that() -> None:
    shown = page([run_of({"loss": 1.0}, name="good"), run_of({"loss": 1.0}, name="bad", status="failed")])

    assert "<th>status</th>" in shown
    assert "<td>failed</td>" in shown


def test_where_every_run_has_two_kinds_of_steps_the_trainers_are_the_yardstick() -> None:
    """The generator's are more, and its name comes first."""
    steps = published_name("generator", "rollout", "time/step")
    records: list[Record] = [StepRecord(n + 1, "generator", "rollout", n, 0, 1000.0, {steps: 2.0}) for n in range(6)]
    records += [StepRecord(n + 7, "trainer", "step", n, 0, 1000.0, {"time/step": 1.0}) for n in range(3)]
    run = contents("run", "scaling", [*records, RunStatus(10, 2000.0, "finished")])

    assert yardstick([run]).step == "time/step"


def test_of_several_rates_the_same_one_is_taken_each_time() -> None:
    """Names that are equally long are in a set, whose order is another one in each process."""
    rates = {f"role_{letter}/throughput/samples_per_sec": 1.0 for letter in "hgfedcba"}
    runs = [run_of(rates, name="a"), run_of(rates, name="b")]

    assert yardstick(runs).rate == "role_a/throughput/samples_per_sec"
