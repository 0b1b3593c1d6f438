"""What AReaL 1.0.4 traces, by the calls that its trainers, engines and workflows make, is in the run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import otel_ml
from otel_ml._internal.series.definition import DEFINITIONS
from otel_ml.integrations.areal import instrument_areal
from otel_ml.integrations.areal.__main__ import main
from otel_ml.integrations.missing_package import PackageError
from otel_ml.testing import Capture, capture


class Category(str, Enum):
    COMPUTE = "compute"
    SYNC = "sync"


class PerfTracer:
    """AReaL's own, as far as otel_ml calls it and is called by it."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.asked: list[tuple[str, object, object]] = []

    def trace_scope(self, name: str, *, category: object = None, args: object = None, **more: object) -> object:
        self.asked.append((name, category, args))
        return nullcontext(more)

    def atrace_scope(self, name: str, *, category: object = None, args: object = None, **more: object) -> object:
        self.asked.append((name, category, args))
        return nullcontext(more)

    def instant(self, name: str, *, category: object = None, args: object = None) -> None:
        self.asked.append((name, category, args))

    def save(self, *, step: int | None = None, force: bool = False) -> None:
        self.asked.append(("save", step, force))


class SessionTracer:
    def __init__(self) -> None:
        self.next = 0
        self.asked: list[tuple[object, ...]] = []

    def register_session(self, task_id: int) -> int:
        self.next += 1
        return self.next - 1

    def record_event(self, session_id: int, event: object, **payload: object) -> None:
        self.asked.append(("record_event", session_id, event, payload))

    def increment_counter(self, session_id: int, name: str, value: int = 1) -> None:
        self.asked.append(("increment_counter", session_id, name, value))

    def reset(self) -> None:
        self.asked.append(("reset",))
        self.next = 0


@pytest.fixture
def areal(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    perf_tracer = ModuleType("areal.utils.perf_tracer")
    tracers = {"PerfTracer": type("PerfTracer", (), dict(vars(PerfTracer)))}
    tracers["SessionTracer"] = type("SessionTracer", (), dict(vars(SessionTracer)))
    vars(perf_tracer).update(tracers)
    utils = ModuleType("areal.utils")
    utils.perf_tracer = perf_tracer  # type: ignore[attr-defined]
    for name, module in {"areal": ModuleType("areal"), "areal.utils": utils, perf_tracer.__name__: perf_tracer}.items():
        monkeypatch.setitem(sys.modules, name, module)
    instrument_areal()
    return SimpleNamespace(**tracers)


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def counts(captured: Capture) -> Mapping[tuple[str, int | None], int]:
    return {(point.name, point.step): point.count for point in captured.points}


def test_scopes_are_timers_at_the_global_step_that_they_name(areal: Any, captured: Capture) -> None:
    tracer = areal.PerfTracer()
    for step in (4, 5):
        with tracer.trace_scope("train.rollout", category=Category.COMPUTE, args={"global_step": step}):
            pass
        with tracer.trace_scope("train.rollout_pause", category="instr"), tracer.trace_scope("fsdp_engine.step"):
            pass

    assert counts(captured) == {
        (f"time/{name}", step): 1
        for step in (4, 5)
        for name in ("train.rollout", "train.rollout_pause", "fsdp_engine.step")
    }
    assert captured.notices == []
    assert tracer.asked[0] == ("train.rollout", Category.COMPUTE, {"global_step": 4})


def test_scopes_of_tasks_are_timed_beside_each_other(areal: Any, captured: Capture) -> None:
    tracer = areal.PerfTracer()

    async def of_a_task() -> None:
        async with tracer.atrace_scope("ppo_actor.ppo_update", category="compute"):
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(of_a_task(), of_a_task())

    otel_ml.set_step(1)
    asyncio.run(both())

    assert counts(captured) == {("time/ppo_actor.ppo_update", 1): 2}
    assert captured.spans == ["ppo_actor.ppo_update", "ppo_actor.ppo_update"]


def test_a_scope_that_raises_is_timed_and_raises_on(areal: Any, captured: Capture) -> None:
    otel_ml.set_step(1)
    with pytest.raises(ZeroDivisionError), areal.PerfTracer().trace_scope("train.eval", args={"global_step": 2}):
        _ = 1 / 0

    assert counts(captured) == {("time/train.eval", 2): 1}


def test_where_ranks_wait_for_each_other_by_areals_category_nobody_is_called_slow(
    areal: Any, captured: Capture
) -> None:
    tracer = areal.PerfTracer()
    for name, category in (("train.update_weights", "communication"), ("train.eval", Category.SYNC), ("train.save", 7)):
        with tracer.trace_scope(name, category=category, args={"global_step": 1}):
            pass

    assert DEFINITIONS.timers == {"train.update_weights": "wait", "train.eval": "wait"}
    assert captured.notices == []


def test_where_areals_tracer_is_off_nothing_is_recorded(areal: Any, captured: Capture) -> None:
    tracer = areal.PerfTracer(enabled=False)
    with tracer.trace_scope("train.rollout", args={"global_step": 4}):
        tracer.instant("rollout_controller.rollout_batch", args={"data": 8})

    assert captured.points == []
    assert captured.events == []


def test_an_instant_is_an_event_with_its_category_and_what_it_was_given(areal: Any, captured: Capture) -> None:
    otel_ml.set_step(3)
    areal.PerfTracer().instant("rollout_controller.rollout_batch", category="scheduler", args={"data": 8})

    [event] = captured.events
    assert (event.kind, event.step) == ("rollout_controller.rollout_batch", 3)
    assert event.attributes["category"] == "scheduler"
    assert event.attributes["data"] == 8


def test_a_worker_that_is_told_no_step_counts_by_what_it_is_asked_to_save(areal: Any, captured: Capture) -> None:
    tracer = areal.PerfTracer()
    for step in (6, 7):
        with tracer.trace_scope("rpc.ppo_update", category="compute", args={"method": "ppo_update"}):
            pass
        tracer.save(step=step)
    tracer.save(force=True)

    # The service puts what a process records before its first step into that step, which is 6.
    assert counts(captured) == {
        ("time/rpc.ppo_update", None): 1,
        ("time/perf_tracer.save", 6): 1,
        ("time/rpc.ppo_update", 7): 1,
        ("time/perf_tracer.save", 7): 1,
    }
    assert tracer.asked[-1] == ("save", None, True)


def test_a_trainer_that_names_its_steps_is_not_moved_by_what_it_saves(areal: Any, captured: Capture) -> None:
    tracer = areal.PerfTracer()
    with tracer.trace_scope("train.rollout", args={"global_step": 6}):
        pass
    tracer.save(step=6)
    with tracer.trace_scope("train.rollout_onload"):
        pass

    assert counts(captured) == {
        ("time/train.rollout", 6): 1,
        ("time/perf_tracer.save", 6): 1,
        ("time/train.rollout_onload", 6): 1,
    }


def test_a_session_and_its_phases_are_timers_and_metrics_of_the_step_in_which_it_ends(
    areal: Any, captured: Capture
) -> None:
    tracer = areal.SessionTracer()
    otel_ml.set_step(1)
    first, second, third = (tracer.register_session(task) for task in (7, 7, 8))
    for session in (first, second):
        tracer.record_event(session, SimpleNamespace(value="generate_start"))
    for session in (first, second):
        tracer.record_event(session, SimpleNamespace(value="generate_end"))
        tracer.record_event(session, SimpleNamespace(value="reward_start"))
        tracer.record_event(session, SimpleNamespace(value="reward_end"))
    tracer.increment_counter(first, "turns", 3)
    otel_ml.set_step(2)
    for session, status in ((first, "accepted"), (second, "accepted"), (third, "failed")):
        tracer.record_event(session, SimpleNamespace(value="finalized"), status=status, reason=None)
        tracer.record_event(session, SimpleNamespace(value="finalized"), status=status)

    found = {point.name: point for point in captured.points if point.step == 2}
    assert {name: point.count for name, point in found.items()} == {
        "time/session": 3,
        "session/total_s": 3,
        "session/generate_s": 2,
        "session/reward_s": 2,
        "session/accepted": 2,
        "session/failed": 1,
        "session/turns": 1,
    }
    assert found["session/turns"].value == 3
    assert found["time/session"].reduction == "max>max"
    assert found["session/accepted"].reduction == "sum"
    assert {point.name: point.count for point in captured.points if point.step == 1} == {
        "time/session/generate": 2,
        "time/session/reward": 2,
    }
    assert captured.notices == []


def test_a_phase_that_runs_again_counts_each_time_and_one_without_a_begin_counts_nothing(
    areal: Any, captured: Capture
) -> None:
    tracer = areal.SessionTracer()
    otel_ml.set_step(1)
    session = tracer.register_session(7)
    for _ in range(2):
        tracer.record_event(session, SimpleNamespace(value="toolcall_start"))
        tracer.record_event(session, SimpleNamespace(value="toolcall_end"))
    tracer.record_event(session, SimpleNamespace(value="reward_end"))
    tracer.record_event(99, SimpleNamespace(value="toolcall_start"))
    tracer.record_event(session, SimpleNamespace(value="finalized"), status="rejected")

    found = {point.name: point for point in captured.points}
    assert found["time/session/toolcall"].count == 2
    assert found["session/toolcall_s"].count == 1
    assert found["session/toolcall_s"].value == pytest.approx(found["time/session/toolcall"].value, abs=1e-3)
    assert "time/session/reward" not in found


def test_sessions_of_a_tracer_that_is_reset_are_forgotten(areal: Any, captured: Capture) -> None:
    tracer = areal.SessionTracer()
    otel_ml.set_step(1)
    before = tracer.register_session(7)
    tracer.reset()
    tracer.record_event(before, SimpleNamespace(value="finalized"), status="accepted")

    assert captured.points == []


def test_instrumented_twice_it_counts_once(areal: Any, captured: Capture) -> None:
    instrument_areal()
    with areal.PerfTracer().trace_scope("train.rollout", args={"global_step": 1}):
        pass

    assert counts(captured) == {("time/train.rollout", 1): 1}


def test_without_areal_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "areal", None)

    with pytest.raises(PackageError, match="areal"):
        instrument_areal()


@pytest.mark.parametrize(
    "told", [["--role", "actor", "--worker-index", "2"], ["--role=actor", "--worker-index=2"]], ids=["words", "equals"]
)
def test_a_worker_of_areals_runs_its_module_as_the_rank_and_role_that_areal_gives_it(
    areal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Sequence[str]
) -> None:
    (tmp_path / "of_a_worker.py").write_text(
        "import json, os, sys\n"
        "json.dump([__name__, sys.argv[1:], os.environ['OTEL_SERVICE_NAME'], os.environ['OTEL_ML_RANK']],"
        " open('told.json', 'w'))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("OTEL_SERVICE_NAME", "OTEL_ML_RANK"):
        monkeypatch.setenv(name, "controller's")
    monkeypatch.setattr(sys, "argv", sys.argv)
    arguments = ["--port", "1", *told]

    main(["of_a_worker", *arguments])

    assert json.loads((tmp_path / "told.json").read_text()) == ["__main__", arguments, "actor", "2"]


def test_a_worker_without_a_module_says_what_it_expects() -> None:
    with pytest.raises(SystemExit, match=r"areal\.infra\.rpc\.rpc_server"):
        main([])


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("enabled", [True, False])
def test_areal_traces_all_that_it_traced_before(areal: Any, enabled: bool) -> None:
    tracer, sessions = areal.PerfTracer(enabled=enabled), areal.SessionTracer()
    with tracer.trace_scope("a", category=Category.SYNC, args={"x": 1}, of_the_profiler=2) as theirs:
        assert enabled or theirs == {"of_the_profiler": 2}
    tracer.atrace_scope("b")
    tracer.instant("c", category="misc", args={"y": 3})
    tracer.save(step=4, force=True)
    number = sessions.register_session(7)
    sessions.record_event(number, "mark", reward=1.0)
    sessions.increment_counter(number, "tokens", 5)
    sessions.reset()

    assert tracer.asked == [
        ("a", Category.SYNC, {"x": 1}), ("b", None, None), ("c", "misc", {"y": 3}), ("save", 4, True),
    ]  # fmt: skip
    assert (number, sessions.next) == (0, 0)
    assert sessions.asked == [
        ("record_event", 0, "mark", {"reward": 1.0}), ("increment_counter", 0, "tokens", 5), ("reset",),
    ]  # fmt: skip
