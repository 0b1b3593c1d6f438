"""Every example does what its docstring says: read back from the run, and from the backends' own files."""

from __future__ import annotations

import runpy
import statistics
import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import BACKENDS, environment, finished, scalars_in, the_run_in, torchrun
from tests.examples.running import EXAMPLES, run_of


def in_tensorboard(run: Path) -> dict[str, list[int]]:
    """Return tag → steps, as TensorBoard's own loader reads the event file."""
    return {name: sorted(values) for name, values in scalars_in("tensorboard", run).items()}


def test_the_single_process_loop_records_a_falling_loss(tmp_path: Path) -> None:
    run = run_of("single_process.py", tmp_path)

    shown = otel_ml.read(run)
    steps, losses = shown["loss"]
    assert steps == list(range(200))
    assert losses[0] == pytest.approx(0.693, abs=1e-3)
    assert statistics.mean(losses[-20:]) < 0.45
    assert {"time/step", "time/data", "accuracy"} <= set(shown)
    assert in_tensorboard(run)["loss"] == list(range(200))


@pytest.mark.timeout(300)  # five processes import torch
def test_the_ddp_example_is_one_run_in_every_backend_with_seven_lines(tmp_path: Path) -> None:
    script = EXAMPLES / "torchrun_ddp.py"

    finished(torchrun(4, script), environment(OTEL_ML_EXPORTERS=",".join(BACKENDS)), tmp_path)

    code = script.read_text().partition("from __future__")[2].splitlines()
    assert [line for line in code if "otel_ml" in line] == [line for line in code if line.endswith("# otel_ml")]
    assert sum(line.endswith("# otel_ml") for line in code) == 7

    run = the_run_in(tmp_path / "otel-ml-runs")
    shown = otel_ml.read(run)
    assert shown["samples"] == (list(range(40)), [128.0] * 40)
    assert shown["loss"][1][-1] < shown["loss"][1][0] / 10
    for timer in ("time/forward", "time/backward", "time/step"):
        assert shown[timer][0] == list(range(40))
    for backend in BACKENDS:
        stored = scalars_in(backend, run)
        assert stored["samples"] == dict.fromkeys(range(40), 128.0), backend
        assert stored["loss"] == pytest.approx(dict(zip(*shown["loss"], strict=True)), rel=1e-7), backend


def test_the_async_generator_keeps_its_policy_versions_apart(tmp_path: Path) -> None:
    run = run_of("async_generator.py", tmp_path)

    shown = otel_ml.read(run)
    prefix = "generator/policy_version"
    tokens = [float(sum(16 + (7 * p + 3 * v) % 48 for p in range(32))) for v in range(12)]
    assert shown[f"{prefix}/episodes"] == (list(range(12)), [32.0] * 12)
    assert shown[f"{prefix}/tokens"] == (list(range(12)), tokens)
    assert shown[f"{prefix}/reward"][1] == pytest.approx([v / 12 + 0.015 for v in range(12)])
    assert shown[f"{prefix}/time/generate"][0] == list(range(12))
    assert not any(shown.get("otel_ml/amended", ([], []))[1])
    assert in_tensorboard(run)[f"{prefix}/episodes"] == list(range(12))


def test_evaluation_every_n_steps_has_its_own_axis_and_weights(tmp_path: Path) -> None:
    run = run_of("evaluate_every_n.py", tmp_path)

    shown = otel_ml.read(run)
    assert shown["loss"][0] == list(range(100))
    assert shown["eval/error"][0] == [0, 20, 40, 60, 80]
    assert shown["eval/error"][1] == sorted(shown["eval/error"][1], reverse=True)
    assert in_tensorboard(run)["eval/error"] == [0, 20, 40, 60, 80]


@pytest.mark.feature("N25", "better", "steps that are done twice are told apart")
@pytest.mark.feature("R17", "better", "the run goes on; nothing has to be replayed")
def test_a_preempted_job_goes_on_in_the_same_run(tmp_path: Path) -> None:
    script = EXAMPLES / "resume_after_preemption.py"
    finished([sys.executable, script, "--preempt-at", 70], environment(), tmp_path, code=1)

    run = run_of("resume_after_preemption.py", tmp_path)

    shown = otel_ml.read(run)
    first, second = [1 / (1 + step) for step in range(50)], [10 + 1 / (1 + step) for step in range(50, 100)]
    assert shown["loss"] == (list(range(100)), first + second)


def test_a_library_shows_up_in_the_run_of_its_application(tmp_path: Path) -> None:
    run = run_of("library_without_dependency.py", tmp_path)

    shown = otel_ml.read(run)
    assert shown["tokenizer/tokens"] == (list(range(10)), [6.0] * 10)
    assert shown["time/tokenize"][0] == list(range(10))


def test_a_library_can_instrument_itself_without_forcing_the_dependency_on_anybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "otel_ml", None)

    library = runpy.run_path(str(EXAMPLES / "library_without_dependency.py"))

    assert library["tokenize"]("to be") == ["to", "be"]


def test_a_library_records_nothing_where_the_application_does_not_ask(tmp_path: Path) -> None:
    program = f"import runpy; runpy.run_path({str(EXAMPLES / 'library_without_dependency.py')!r})['tokenize']('to be')"

    env = {name: value for name, value in environment().items() if not name.startswith("OTEL_ML_")}

    said = finished([sys.executable, "-c", program], env, tmp_path)

    assert said == ""
    assert not (tmp_path / "otel-ml-runs").exists()


@pytest.mark.feature("F1", "better", "its values go into the trainer's rows")
def test_an_actor_that_knows_nothing_logs_into_the_trainers_rows(tmp_path: Path) -> None:
    run = run_of("actor_knows_nothing.py", tmp_path)

    shown = otel_ml.read(run)
    assert shown["loss"][0] == list(range(20))
    assert set(shown["push_weights_s"][0]) <= set(range(20))
    assert set(shown["push_weights_s"][1]) == {0.25}


def test_a_framework_that_calls_wandb_in_its_own_files_is_recorded(tmp_path: Path) -> None:
    run = run_of("migrate/framework_writer.py", tmp_path)

    shown = otel_ml.read(run)
    assert shown["train/loss"] == (list(range(10)), pytest.approx([1 / (1 + step) for step in range(10)]))
    assert shown["rollout/reward"] == ([0, 1, 2], [0.0, 0.4, 0.8])
