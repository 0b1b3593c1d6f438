"""Cross-validation: a fold that has a name, or begins after the end of the one before, is a run of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_whose_run import ids_of, values_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

FOLDS = 3
TRAIN = """
def train(fold):
    for s in otel_ml.steps(range(2)):
        otel_ml.log({"loss": 100.0 * fold + s})
"""
EACH = [[100.0 * fold + step for step in range(2)] for fold in range(FOLDS)]

LOOPS = {
    "names alone": """
for fold in range(3):
    otel_ml.init("cv", name=f"fold-{fold}", params={"fold": fold})
    train(fold)
""",
    "names, in blocks": """
for fold in range(3):
    with otel_ml.init("cv", name=f"fold-{fold}", params={"fold": fold}):
        train(fold)
""",
    "no names, in blocks": """
for fold in range(3):
    with otel_ml.init("cv", params={"fold": fold}):
        train(fold)
""",
    "no names, each ended": """
for fold in range(3):
    otel_ml.init("cv", params={"fold": fold})
    train(fold)
    otel_ml.shutdown()
""",
    "an id of each": """
for fold in range(3):
    otel_ml.init("cv", id=f"cv-{fold}", params={"fold": fold})
    train(fold)
""",
    "beside a run of the whole": """
with otel_ml.init("cv", name="all") as whole:
    for fold in range(3):
        with otel_ml.init("cv", name=f"fold-{fold}", params={"fold": fold}):
            train(fold)
        otel_ml.log({"score": fold}, step=fold)
""",
}


def params_of(server: OtlpServer) -> dict[str, object]:
    """Return the parameters of each run, by its id."""
    found: dict[str, object] = {}
    for event in server.events("ml.params"):
        found[event.resource["ml.experiment.id"]] = event.body
    return found


def losses_of(server: OtlpServer) -> dict[str, list[float]]:
    """Return the losses of each run, by its id, in the order of steps."""
    found: dict[str, list[tuple[int, float]]] = {}
    for point in server.points("loss"):
        found.setdefault(point.resource["ml.experiment.id"], []).append((point.step or 0, point.value))
    return {run_id: [value for _, value in sorted(values)] for run_id, values in found.items()}


CHECKED_FIRST = """
from otel_ml._internal.steps.stage import Stage
with otel_ml.init("cv", name="all"), otel_ml.init("cv", name="fold"):
    with Stage(None):  # as Lightning's sanity check
        for _ in range(20):
            otel_ml.log({"loss": 9.0})
    train(0)
"""


def test_what_a_check_beside_another_run_does_not_record_is_not_said_to_be_recorded(
    server: OtlpServer, tmp_path: Path
) -> None:
    run(f"import otel_ml\n{TRAIN}\n{CHECKED_FIRST}", environment(tmp_path, variables(server)), tmp_path)

    (run_id, losses) = losses_of(server).popitem()
    recorded = {
        end.resource["ml.experiment.id"]: end.attributes["otel_ml.recorded"] for end in server.events("ml.writer.end")
    }
    timers = len([point for point in server.points() if point.name.startswith("time/")])
    assert recorded[run_id] == len(losses) + timers


DASK = """
import subprocess, sys

WORKER = '''
import sys, types
module = types.ModuleType("distributed.worker")
module.get_worker = lambda: types.SimpleNamespace(name=int(sys.argv[1]))
sys.modules["distributed.worker"] = module
import otel_ml
for trial in sys.argv[2:]:
    with otel_ml.init("sweep", name=f"trial-{trial}"):
        otel_ml.log({"loss": float(trial)}, step=0)
'''
trials = [["0", "0", "2", "4"], ["1", "1", "3", "4"]]
workers = [subprocess.Popen([sys.executable, "-c", WORKER, *each]) for each in trials]
assert [worker.wait() for worker in workers] == [0, 0]
"""


def test_trials_of_several_names_on_workers_of_dask_are_runs_of_their_own(server: OtlpServer, tmp_path: Path) -> None:
    run(DASK, environment(tmp_path, variables(server)), tmp_path)

    assert sorted(losses_of(server).values()) == [[0.0], [1.0], [2.0], [3.0], [4.0, 4.0]]


@pytest.mark.parametrize("loop", LOOPS)
def test_each_fold_is_a_run_with_its_own_losses_and_parameters(server: OtlpServer, tmp_path: Path, loop: str) -> None:
    _, errors = run(f"import otel_ml\n{TRAIN}\n{LOOPS[loop]}", environment(tmp_path, variables(server)), tmp_path)

    losses, params = losses_of(server), params_of(server)
    assert sorted(losses.values()) == EACH
    assert {losses[run_id][0]: params[run_id] for run_id in losses} == {
        100.0 * fold: {"fold": fold} for fold in range(FOLDS)
    }
    assert not ids_of(server, "score") & losses.keys()
    assert "init(" not in errors


@pytest.mark.parametrize("loop", ["names alone", "names, in blocks", "beside a run of the whole"])
def test_where_the_environment_has_one_id_named_folds_are_runs_that_a_restart_goes_on_with(
    server: OtlpServer, tmp_path: Path, loop: str
) -> None:
    environ = environment(tmp_path, variables(server, OTEL_ML_EXPERIMENT_ID="grpo-7"))

    for _ in range(2):  # the scheduler starts the job again
        run(f"import otel_ml\n{TRAIN}\n{LOOPS[loop]}", environ, tmp_path)

    losses = losses_of(server)
    assert sorted(losses.values()) == [sorted(2 * values) for values in EACH]
    assert "grpo-7" in losses.keys() | ids_of(server, "score")
    assert all(run_id.startswith("grpo-7") for run_id in losses)


RESUMED = """
import pathlib, sys, time
import otel_ml
begin, end, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for fold in range(begin, end):
    with otel_ml.init("cv", name=name.format(fold=fold, now=time.time_ns())) as run:
        otel_ml.log({"loss": 100.0 * fold + begin}, step=begin)
        with pathlib.Path("ids").open("a") as ids:
            print(fold, run.id, file=ids)
"""


def ids_of_starts(folder: Path, name: str, *starts: tuple[int, int], **more: str) -> list[tuple[int, str]]:
    """Run folds in several starts of a job; return each fold that was begun, and the id of its run."""
    (folder / "folds.py").write_text(RESUMED)
    environ = environment(folder, {"OTEL_ML_EXPERIMENT_ID": "cv-7", "OTEL_ML_EXPORTERS": "jsonl", **more})
    for begin, end in starts:
        command = [sys.executable, "folds.py", str(begin), str(end), name]
        subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, timeout=100)
    lines = (folder / "ids").read_text().splitlines()
    return [(int(fold), run_id) for fold, run_id in map(str.split, lines)]


def test_a_loop_that_is_started_again_in_the_middle_goes_on_with_the_run_of_each_fold(tmp_path: Path) -> None:
    begun = ids_of_starts(tmp_path, "fold-{fold}", (0, 3), (2, 4), (0, 1), (3, 4))

    ids: dict[int, set[str]] = {}
    for fold, run_id in begun:
        ids.setdefault(fold, set()).add(run_id)
    assert ids.pop(0) == {"cv-7"}
    assert [len(each) for each in ids.values()] == [1, 1, 1]
    assert len(set.union(*ids.values()) - {"cv-7"}) == 3


@pytest.mark.parametrize("starts", [[(0, 1), (1, 2)], [(0, 2), (0, 1)]], ids=["no loop", "the first of a loop"])
def test_a_job_whose_name_is_of_the_time_goes_on_with_its_run_when_it_is_started_again(
    tmp_path: Path, starts: list[tuple[int, int]]
) -> None:
    begun = ids_of_starts(tmp_path, "fold-{fold} {now}", *starts)

    assert (begun[0][1], begun[-1][1]) == ("cv-7", "cv-7")


def test_a_job_that_sends_all_it_has_elsewhere_leaves_no_folder(server: OtlpServer, tmp_path: Path) -> None:
    ids_of_starts(tmp_path, "fold-{fold}", (0, 2), OTEL_EXPORTER_OTLP_ENDPOINT=server.url, OTEL_ML_EXPORTERS="")

    assert not (tmp_path / "runs").exists()


def test_a_fold_that_fails_is_the_one_that_failed(server: OtlpServer, tmp_path: Path) -> None:
    program = f"""
import otel_ml
{TRAIN}
for fold in range(3):
    try:
        with otel_ml.init("cv", name=f"fold-{{fold}}"):
            train(fold)
            assert fold != 1
    except AssertionError:
        pass
"""

    run(program, environment(tmp_path, variables(server)), tmp_path)

    ends = {end.resource["ml.run.name"]: end.attributes["ml.status"] for end in server.events("ml.writer.end")}
    assert ends == {"fold-0": "finished", "fold-1": "failed", "fold-2": "finished"}
    assert sorted(losses_of(server).values()) == EACH


POOLS = {
    "joblib": "Parallel(n_jobs=2)(delayed(fit)(*fold) for fold in folds)",
    "joblib's threads": "Parallel(n_jobs=2, prefer='threads')(delayed(fit)(*fold) for fold in folds)",
    "processes": "list(ProcessPoolExecutor(2, multiprocessing.get_context('spawn')).map(fit, *zip(*folds)))",
    "threads": "list(ThreadPoolExecutor(2).map(fit, *zip(*folds)))",
}


@pytest.mark.parametrize("pool", POOLS)
def test_folds_that_run_at_once_are_runs_of_their_own(server: OtlpServer, tmp_path: Path, pool: str) -> None:
    program = f"""
import multiprocessing, otel_ml
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from joblib import Parallel, delayed
from sklearn.model_selection import KFold
{TRAIN}
def fit(fold, size):
    with otel_ml.init("cv", name=f"fold-{{fold}}", params={{"fold": fold, "size": size}}):
        train(fold)

if __name__ == "__main__":
    folds = [(fold, len(rows)) for fold, (rows, _) in enumerate(KFold(3).split([[0]] * 6))]
    {POOLS[pool]}
"""

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert values_of(server, "loss") == {f"fold-{fold}": EACH[fold] for fold in range(FOLDS)}
    assert sorted(map(str, params_of(server).values())) == [f"{{'fold': {fold}, 'size': 4}}" for fold in range(FOLDS)]


SHARING = {
    "a loop": """
for fold in range(3):
    otel_ml.init("cv", params={"fold": fold, "model": "small"})
    train(fold)
""",
    "threads": """
import threading
def fit(fold):
    with otel_ml.init("cv", params={"fold": fold, "model": "small"}):
        barrier.wait(30)
        train(fold)
        barrier.wait(30)
barrier = threading.Barrier(3)
threads = [threading.Thread(target=fit, args=(fold,)) for fold in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
}


@pytest.mark.parametrize(("loop", "strict"), [("a loop", "false"), ("a loop", "true"), ("threads", "false")])
def test_folds_that_only_parameters_tell_apart_share_a_run_which_is_said(
    server: OtlpServer, tmp_path: Path, loop: str, strict: str
) -> None:
    environ = environment(tmp_path, variables(server, OTEL_ML_STRICT=strict))

    _, errors = run(f"import otel_ml\n{TRAIN}\n{SHARING[loop]}", environ, tmp_path)

    assert len(ids_of(server, "loss")) == 1
    assert errors.count("goes on with the run that is active, cv/") == 1
    assert "'fold'" in errors
    assert "'model'" not in errors
    assert "(otel-ml explain init-again)" in errors


@pytest.mark.parametrize("again", ["{'lr': 0.1}", "{'lr': 0.1, 'seed': 1}", "{'seed': 1}", "{}", "None", "7"])
def test_parameters_that_are_said_again_or_added_contradict_nothing(
    server: OtlpServer, tmp_path: Path, again: str
) -> None:
    program = f"""
import otel_ml
otel_ml.init("exp", params={{"lr": 0.1, "nested": {{"nan": float("nan"), "path": __import__("pathlib").Path("x")}}}})
otel_ml.log({{"loss": 1}}, step=0)
otel_ml.init("exp", params={again})
"""

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert "goes on with the run" not in errors
    assert len(ids_of(server, "loss")) == 1
