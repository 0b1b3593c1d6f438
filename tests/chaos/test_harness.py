"""The harness itself: the same seed gives the same faults, and what is missing or there twice is found."""

from __future__ import annotations

import gc
import itertools
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.chaos.compare import (
    Expected,
    Table,
    check_account,
    check_backends,
    check_stalls,
    check_sums,
    expect,
    is_in_memory,
    owner,
    rows_of,
)
from tests.chaos.job import Life
from tests.chaos.layout import LAYOUTS
from tests.chaos.pulse import EVERY_S, lateness_s
from tests.chaos.report import rows, sentence_of
from tests.chaos.schedule import KINDS, schedule
from tests.chaos.stalls import Stall, Watch, stalls_in
from tests.chaos.steps import Begun, begun_in, reached_in
from tests.chaos.stolen import Absence, absences_in, any_stolen_ms, stolen_ms
from tests.collector.pipeline import Service
from tests.e2e.jobs import ROOT, environment, until

modes = pytest.mark.parametrize("mode", LAYOUTS)


@modes
def test_the_same_seed_gives_the_same_faults_and_another_one_others(mode: str) -> None:
    first, again, other = (schedule(seed, LAYOUTS[mode], 50, 100.0) for seed in (1, 1, 2))

    assert first == again
    assert first != other


@modes
def test_every_kind_that_applies_is_in_a_round_and_no_target_has_two_faults_at_once(mode: str) -> None:
    faults = schedule(3, LAYOUTS[mode], 50, 100.0)

    assert len(faults) == 50
    assert {fault.kind for fault in faults} == {kind.name for kind in KINDS if kind.applies(LAYOUTS[mode])}
    by_target = defaultdict(list)
    for fault in faults:
        by_target[fault.target].append(fault)
    for one in by_target.values():
        assert all(before.at + before.seconds < after.at for before, after in itertools.pairwise(one))


def test_without_small_disks_no_disk_is_filled() -> None:
    assert not [fault for fault in schedule(1, LAYOUTS["http"], 50, 100.0, disks=False) if "disk" in fault.target]


def row(step: int, tokens: float, **more: object) -> dict[str, object]:
    return {"role": "trainer", "axis": "step", "step": step, "attempt": 0, "values": {"tokens": tokens}, **more}


def found_in(*rows: dict[str, object]) -> Table:
    """Return what is found in these rows of JSONL, where ranks 0, 1 and 2 recorded step 0 and rank 1 step 1."""
    expected, table = Expected(), Table()
    expected.must["trainer", 0] = {0, 1, 2}
    expected.must["trainer", 1] = {1}
    check_sums(list(rows), expected, table)
    return table


def test_a_sum_that_is_right_is_neither_lost_nor_doubled() -> None:
    table = found_in(row(0, 1.0 + 4.0), row(1, 4.0), row(0, 1.0 + 4.0 + 16.0, amendment=True))

    assert (table.is_fine, table.checked) == (True, 4)


def test_what_is_delivered_is_counted_in_values_as_what_is_recorded() -> None:
    whole = {"tokens": 21.0, "loss": 0.5, "time/work": 0.001}
    first = {"role": "trainer", "axis": "step", "step": 0, "attempt": 0, "values": whole}
    table = found_in(first, row(1, 4.0), {**row(1, 4.0), "values": {"loss": 0.25}, "amendment": True})

    assert (table.checked, table.delivered) == (4, 3 * 3 + 2)
    assert "  delivered                  11" in [*rows({}, table)]


def test_what_may_be_lost_is_said_in_values_too() -> None:
    assert "  within 200 ms of a kill    12" in [*rows({}, Table(unsafe=4))]


def stall(wall_ms: float, **more: float) -> Stall:
    return Stall(**{**Stall(0.0, wall_ms, 1.0, 0.0, 0.0, "log", wall_ms, 0)._asdict(), **more})


@pytest.mark.parametrize(
    ("stalls", "control", "is_fine"),
    [
        ([stall(4.9)], [], True),
        ([stall(1.0), stall(5.1), stall(2.0)], [], False),
        ([stall(30.0, queue_ms=28.0)], [], True),
        ([stall(30.0, any_stolen_ms=28.0)], [], True),
        ([stall(9.0)], [stall(10.0)], True),
        ([stall(9.0)], [stall(8.0)], False),
        ([], [stall(10.0)], True),
    ],
    ids=["short", "long", "no core", "no processor", "as the machine does", "more than the machine does", "none"],
)
def test_a_round_in_which_training_is_held_up_for_longer_than_its_bound_is_not_fine(
    stalls: list[Stall], control: list[Stall], is_fine: bool
) -> None:
    table = Table(stalls=stalls, control=control)

    check_stalls(table)

    assert table.is_fine is is_fine


def test_a_rank_that_is_missing_in_a_sum_is_lost() -> None:
    assert found_in(row(0, 1.0 + 16.0), row(1, 4.0)).lost == {"jsonl": 1}


def test_a_step_that_is_missing_is_lost() -> None:
    assert found_in(row(0, 21.0)).lost == {"jsonl": 1}


def test_a_rank_that_is_twice_in_a_sum_is_doubled() -> None:
    assert +found_in(row(0, 21.0), row(1, 8.0)).duplicated == {"jsonl": 1}


def test_what_a_former_attempt_recorded_is_seen_in_a_row_of_that_attempt_or_nowhere() -> None:
    expected, table = Expected(), Table()
    expected.must["trainer", 0] = {0, 1}
    expected.replaced = {("trainer", 0, attempt, rank) for attempt in (0, 1) for rank in (0, 1)}

    check_sums([row(0, 1.0), row(0, 5.0, attempt=2)], expected, table)

    assert (table.is_fine, table.unseen) == (True, 3)


def test_a_row_that_is_there_twice_is_doubled() -> None:
    assert +found_in(row(0, 21.0), row(0, 21.0), row(1, 4.0)).duplicated == {"rows of a step": 1}


def test_a_backend_that_misses_a_row_or_has_one_twice_is_found() -> None:
    whole = [["loss", "step", 0, 0.5, 0], ["loss", "step", 1, 0.25, 0]]
    stored = {name: {"scalars": whole, "status": "finished"} for name in ("jsonl", "tensorboard", "mlflow", "wandb")}
    stored["tensorboard"] = {"scalars": whole[:1], "status": "finished"}
    stored["wandb"] = {"scalars": [*whole, whole[0]], "status": "running"}
    table = Table()

    check_backends(stored, table)

    assert +table.lost == {"tensorboard": 1}
    assert +table.duplicated == {"wandb": 1}
    assert table.wrong


def test_a_loss_that_the_run_says_is_no_silent_one_where_a_hop_swallowed_requests() -> None:
    table = Table(recorded=30, at_least=30)
    table.lost["jsonl"] = 2

    check_account({"otel_ml/recorded": 30.0, "otel_ml/dropped/never_arrived": 6.0}, table, is_swallowed=True)

    assert (table.is_fine, table.said_lost) == (True, 6)


@pytest.mark.parametrize(
    ("said", "missing", "is_swallowed"),
    [(0.0, 2, True), (1.0, 0, False), (0.0, 2, False), (7.0, 2, True)],
    ids=["silent", "not so", "not planted", "more than there is"],
)
def test_an_account_that_is_not_true_is_found(said: float, missing: int, is_swallowed: bool) -> None:
    table = Table(recorded=30, at_least=30)
    table.lost["jsonl"] = missing

    summary = {"otel_ml/recorded": 30.0, "otel_ml/dropped/never_arrived": said}
    check_account(summary, table, is_swallowed=is_swallowed)

    assert not table.is_fine


@pytest.mark.parametrize(("said", "is_fine"), [(9.0, True), (10.0, False)])
def test_what_a_hop_swallowed_of_a_former_attempt_is_lost_too_and_no_more(said: float, is_fine: bool) -> None:
    table = Table(recorded=30, at_least=30, unseen=1)
    table.lost["jsonl"] = 2

    check_account({"otel_ml/recorded": 30.0, "otel_ml/dropped/never_arrived": said}, table, is_swallowed=True)

    assert table.is_fine is is_fine


def test_a_run_that_says_less_was_recorded_than_was_is_found() -> None:
    table = Table(recorded=30, at_least=30)

    check_account({"otel_ml/recorded": 27.0}, table, is_swallowed=False)

    assert table.wrong


def test_a_step_belongs_to_the_newest_attempt_that_began_at_or_below_it() -> None:
    assert [owner([0, 50, 40], step) for step in (39, 40, 50, 60)] == [0, 2, 2, 2]


def test_who_is_gone_while_no_spool_could_be_written_may_have_had_in_memory_what_is_younger_than_that() -> None:
    full = [(4.0, 6.0)]

    assert is_in_memory(5.0, 5.5, full)
    assert not is_in_memory(3.9, 5.5, full)  # on disk before
    assert not is_in_memory(5.0, 10.0, full)  # written when there was space again
    assert not is_in_memory(5.0, None, full)  # it lives, or somebody took all it had


def killed(folder: Path, lines: str, *, at: float) -> tuple[Expected, Table]:
    """Return what is expected of a generator that wrote these lines down and was killed."""
    (folder / "generator-0-7.steps").write_text(lines)
    (folder / "generator-0-7.pulse").write_text("".join(f"{at - 1.5 + beat / 10:.1f}\n" for beat in range(16)))
    life = Life("generator", 0, 0, SimpleNamespace(pid=7), killed_at=at)
    expected, table = Expected(), Table()
    expect(SimpleNamespace(steps=folder, spools_full=[], starts=[0]), life, expected, table)
    return expected, table


def test_what_a_process_was_about_to_record_is_safe_from_when_it_has(tmp_path: Path) -> None:
    lines = "9.0 404\n9.001 404 recorded\n9.1 405\n9.101 405 recorded\n9.2 406\n9.65 406 recorded\n9.75 407\n"

    expected, table = killed(tmp_path, lines, at=9.8)

    assert [step for _, step in expected.must if expected.must["generator", step]] == [404, 405]
    assert [step for _, step in expected.may if expected.may["generator", step]] == [406, 407]
    assert (table.recorded, table.unsafe) == (12, 2)


def test_what_a_process_did_not_live_to_say_that_it_had_recorded_may_be_lost(tmp_path: Path) -> None:
    expected, _ = killed(tmp_path, "9.0 405\n9.001 405 recorded\n9.2 406\n9.65 40", at=9.8)

    assert (expected.must["generator", 405], expected.must["generator", 406]) == ({0}, set())
    assert [*begun_in(tmp_path / "generator-0-7.steps")] == [Begun(9.0, 405, 9.001), Begun(9.2, 406)]


def test_a_thread_that_was_woken_late_before_a_kill_says_how_late(tmp_path: Path) -> None:
    pulse = tmp_path / "pulse"
    pulse.write_text("9.0\n9.1\n9.2\n9.7\n")

    assert lateness_s(pulse, 9.8) == pytest.approx(0.5 - EVERY_S)
    assert lateness_s(pulse, 11.0) == pytest.approx(1.3 - EVERY_S)


def test_a_loop_that_waits_is_held_up_by_its_own_doing_and_the_call_is_named(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "stalls")

    with watch:
        began = time.perf_counter()
        watch.call_ended("log")
        time.sleep(0.01 + 2 * (time.perf_counter() - began))  # on a busy machine the call before may have taken long
        watch.call_ended("flush")

    [stall] = stalls_in(tmp_path / "stalls")
    assert stall.call == "flush"
    assert stall.wall_ms >= stall.call_ms >= 10.0


def test_what_the_interpreter_took_to_look_for_garbage_is_said(tmp_path: Path) -> None:
    watch = Watch(tmp_path / "stalls")
    kept = [[number] for number in range(200_000)]

    with watch:
        other = threading.Thread(target=gc.collect)
        other.start()
        other.join()
        watch.call_ended("log")
    del kept

    [stall] = stalls_in(tmp_path / "stalls")
    assert 0.0 < stall.garbage_ms <= stall.wall_ms
    assert f"looked for garbage for {stall.garbage_ms:.1f} ms" in sentence_of(stall)


def test_time_in_which_another_program_had_the_core_is_not_the_loops_own() -> None:
    assert Stall(
        0.0, wall_ms=30.0, work_ms=2.0, queue_ms=28.0, others_ms=0.0, call="log", call_ms=30.0, cpu=0
    ).own_ms == pytest.approx(2.0)


def test_a_value_that_tensorboard_has_in_32_bits_is_the_same_one() -> None:
    in_jsonl, in_tensorboard = 0.001608485, struct.unpack("f", struct.pack("f", 0.001608485))[0]

    assert rows_of({"scalars": [("time/work", 0, 171, in_jsonl)]}) == rows_of(
        {"scalars": [("time/work", 0, 171, in_tensorboard)]}
    )


def test_a_stall_may_be_that_of_threads_which_got_no_core() -> None:
    stall = Stall(
        0.0, wall_ms=16.0, work_ms=0.3, queue_ms=8.8, others_ms=9.9, call="log", call_ms=15.0, cpu=0, any_stolen_ms=0.5
    )

    assert (stall.surely_own_ms, stall.own_ms) == (0.0, pytest.approx(7.2))


def test_the_time_in_which_any_processor_was_away_counts_once() -> None:
    absences = [Absence(0, 9.0, 9.9), Absence(0, 9.98, 10.02), Absence(1, 9.97, 10.0)]

    assert any_stolen_ms(absences, 9.95, 10.01) == pytest.approx(40.0)


def test_time_in_which_the_machine_lost_a_processor_is_not_the_loops_own(tmp_path: Path) -> None:
    (tmp_path / "cpu-0.stolen").write_text("0 9.0 9.9\n0 9.98 10.02\n")
    (tmp_path / "cpu-1.stolen").write_text("1 9.99 10.0\n1 9.99")
    (tmp_path / "stalls").write_text("10.0 30.0 28.0 1.0 0.0 log 28.0 0 0.0\n10.0 30.0 28.0 1.0 0.0 log 28.0 1 0.0\n")

    on_first, on_second = stalls_in(tmp_path / "stalls", absences_in(tmp_path))

    assert (on_first.stolen_ms, on_first.own_ms) == (pytest.approx(20.0), pytest.approx(10.0))
    assert (on_first.any_stolen_ms, on_first.surely_own_ms) == (pytest.approx(20.0), pytest.approx(9.0))
    assert (on_second.stolen_ms, on_second.own_ms) == (pytest.approx(10.0), pytest.approx(20.0))


def test_a_watcher_that_could_not_run_for_a_while_says_when(tmp_path: Path) -> None:
    program = f"from pathlib import Path; from tests.chaos.stolen import watch; watch(Path({str(tmp_path)!r}), 0)"
    watcher = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    until(lambda: (tmp_path / "cpu-0.stolen").exists())

    watcher.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(watcher.pid).status() == psutil.STATUS_STOPPED)
    began = time.monotonic()
    time.sleep(0.05)  # how long it is stopped is what is measured
    ended = time.monotonic()
    watcher.send_signal(signal.SIGCONT)

    until(lambda: stolen_ms(absences_in(tmp_path), 0, began, ended) > 45.0)
    (tmp_path / "stop").touch()
    assert watcher.wait(20) == 0


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_rank_whose_clock_is_an_hour_behind_delivers_all_the_same(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "trainer-0.clock").write_text("-3600000000000")
    with Service(tmp_path) as service:
        env = environment(
            OTEL_ML_EXPERIMENT_ID="behind",
            OTEL_SERVICE_NAME="trainer",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{service.grpc if protocol == 'grpc' else service.http}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            RANK=0,
        )
        rank = subprocess.Popen([sys.executable, "-m", "tests.chaos.rank", tmp_path, "0", "0.02"], env=env, cwd=ROOT)
        until(lambda: reached_in(tmp_path, "trainer") >= 5)
        (tmp_path / "stop").touch()
        assert rank.wait(60) == 0

        account = service.wait_for_the_end_of("behind", seconds=30)

    assert account["recorded"] >= 3 * 5
    assert not account["lost"]
